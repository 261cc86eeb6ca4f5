"""Release metadata: absolute links, project addresses, and what a compiled library needs of its system."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
NO_ADDRESSES = dict.fromkeys(
    ("repository", "issues", "documentation", "changelog", "nvim_plugin", "files", "raw_files"), ""
)
ADDRESSES = NO_ADDRESSES | {"repository": "https://h/r", "files": "https://h/r/f/v1/", "raw_files": "https://h/raw/v1"}


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return load("release/build_artifacts.py")


@pytest.fixture(scope="module")
def hatch_build() -> ModuleType:
    return load("hatch_build.py")


def load(path: str) -> ModuleType:
    """The module in a file outside of the packages."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_list_has_every_address_that_the_build_reads(release: ModuleType):
    assert release.read_addresses().keys() == NO_ADDRESSES.keys()


def test_links_and_images_become_absolute_and_anchors_stay(release: ModuleType):
    text = '[a](../docs/b.md#c) ![p](images/p.png) [x](#x) [w](https://w) <img src="images/p.png"> <a href="c.md">'
    assert release.absolute_links(text, PurePosixPath("editors/README.md"), ADDRESSES) == (
        "[a](https://h/r/f/v1/docs/b.md#c) ![p](https://h/raw/v1/editors/images/p.png) [x](#x) [w](https://w) "
        '<img src="https://h/raw/v1/editors/images/p.png"> <a href="https://h/r/f/v1/editors/c.md">'
    )


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "editors/nvim/README.md"])
def test_pages_stay_the_same_without_addresses_and_lose_all_relative_links_with_them(release: ModuleType, page: str):
    text = (ROOT / page).read_text("utf-8")
    assert release.absolute_links(text, PurePosixPath(page), NO_ADDRESSES) == text
    absolute = release.absolute_links(text, PurePosixPath(page), ADDRESSES)
    links = [match[3] for pattern in (release.MARKDOWN_LINK, release.HTML_LINK) for match in pattern.finditer(absolute)]
    assert [link for link in links if "://" not in link and not link.startswith("#")] == []


def test_project_urls_hold_the_known_addresses_only(release: ModuleType):
    assert release.project_urls(NO_ADDRESSES) == ""
    assert release.project_urls(ADDRESSES) == '\n[project.urls]\n"Repository" = "https://h/r"\n'
    assert release.package_fields(NO_ADDRESSES) == {}


def test_the_newest_glibc_version_is_compared_as_numbers(release: ModuleType):
    library = b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.9\0libgomp.so.1\0"
    assert release.newest_glibc(library) == (2, 17)
    assert release.linked_libraries(library) == {"libc.so.6", "libgomp.so.1"}


class Warnings(list[str]):
    """Hatchling's application, as far as the hook uses it."""

    display_warning = list.append


def test_a_library_that_cannot_be_built_is_a_warning_and_the_wheel_is_pure(
    hatch_build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPECLSP_WHEEL_PLATFORM", "linux-aarch64")
    warnings = Warnings()
    (tmp_path / "models").mkdir()
    # A root without the folder of the libraries: nothing can be written there, as in a read-only checkout.
    hook = hatch_build.ForwardBuilder(str(tmp_path), {}, None, None, "", "wheel", warnings)
    build = {"force_include": {}, "artifacts": []}
    hook.initialize("standard", build)
    assert build == {"force_include": {}, "artifacts": []}
    assert len(warnings) == 1 and "_forward_neon.so was not compiled, speclsp will be slower" in warnings[0]


def test_a_built_library_replaces_the_old_one_in_one_step(
    hatch_build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    built, target = tmp_path / "built.so", tmp_path / "package" / "_forward.so"
    target.parent.mkdir()
    built.write_bytes(b"new")
    target.write_bytes(b"old")
    copies: list[Path] = []

    def fill_disk(_: Path, copy: Path) -> None:
        copies.append(copy)
        copy.write_bytes(b"ne")
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(shutil, "copy", fill_disk)
        hatch_build.install(built, target)
    assert [path.name for path in target.parent.iterdir()] == ["_forward.so"] and target.read_bytes() == b"old"
    assert [copy.suffix for copy in copies] == [".so"], "git and the sdist ignore a copy of a killed build"
    hatch_build.install(built, target)
    assert [path.name for path in target.parent.iterdir()] == ["_forward.so"] and target.read_bytes() == b"new"


def launcher() -> bytes:
    """A Windows program that pip has for its own use; it needs KERNEL32.dll and SHLWAPI.dll."""
    spec = importlib.util.find_spec("pip._vendor.distlib")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).with_name("t64.exe").read_bytes()


def test_the_dlls_that_a_windows_library_needs_are_read_from_its_import_table(release: ModuleType):
    assert release.imported_dlls(launcher()) == ["KERNEL32.dll", "SHLWAPI.dll"]


@pytest.mark.parametrize(
    ("libraries", "complaint"),
    [(1, r"a0\.dll needs \['SHLWAPI\.dll'\]"), (2, "holds 2 compiled libraries instead of 1")],
)
def test_a_wheel_with_other_libraries_than_its_own_is_refused(
    release: ModuleType, libraries: int, complaint: str, tmp_path: Path
):
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        for number in range(libraries):
            wheel.writestr(f"a{number}.dll", launcher())
    with pytest.raises(SystemExit, match=complaint):
        release.check_imports(tmp_path / "x.whl", 1)


def test_the_plugins_page_has_no_link_out_of_its_directory(release: ModuleType):
    page = release.plugin_readme((ROOT / "editors/nvim/README.md").read_text("utf-8"))
    assert "](../" not in page and "/path/to/speclsp/editors" not in page
    assert "`docs/install.md` in speclsp's repository" in page
