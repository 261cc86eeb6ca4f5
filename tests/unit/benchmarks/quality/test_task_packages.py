"""Packages of the quality tasks: pinned by checksum and unpacked inside one folder, or refused with one sentence."""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks.packages import Archive, CorpusError

ENTRY = """
[[package]]
ecosystem = "{ecosystem}"
name = "{name}"
languages = ["python"]
folders = {folders}
version = "1.0"
file = "{file}"
bytes = {bytes}
sha256 = "{sha256}"
released = "2026-01-02"
licence = "MIT"
"""


def archive_of(folder: Path, file: str, members: dict[str, str], links: dict[str, str] | None = None) -> Path:
    """An archive named `file` holding these texts, under `top/` when it is not a wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    if file.endswith(".whl"):
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in members.items():
                wheel.writestr(name, text)
        return path
    with tarfile.open(path, "w:gz") as packed:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            packed.addfile(info, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            packed.addfile(info)
    return path


class Index:
    """Package index in a folder. Records the name of each requested archive."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.requests, self.lock = folder, list[str](), threading.Lock()

    def get(self, archive: Archive, file: Path) -> None:
        with self.lock:
            self.requests.append(archive.name)
        shutil.copy(self.folder / archive.file, file)


def listed(tmp_path: Path, *archives: Path, folders: str = "[]", sha256: str = "") -> Path:
    entries = [
        ENTRY.format(
            ecosystem="pypi-wheel" if file.suffix == ".whl" else "pypi-sdist",
            name=file.name.split("-")[0],
            file=file.name,
            bytes=file.stat().st_size,
            sha256=sha256 or corpus.sha256(file),
            folders=folders,
        )
        for file in archives
    ]
    path = tmp_path / "packages.toml"
    path.write_text("".join(entries))
    return path


def test_a_package_is_fetched_once_and_unpacked_into_its_own_folder(tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    one = archive_of(index.folder, "one-1.0.tar.gz", {"one-1.0/one/a.py": "a = 1\n", "one-1.0/data.bin": "no source"})
    two = archive_of(index.folder, "two-1.0-py3-none-any.whl", {"two/b.py": "b = 2\n"})
    reports: list[tuple[int, int]] = []
    first = corpus.fetch(
        lambda done, total: reports.append((done, total)), listed(tmp_path, one, two), tmp_path, index.get
    )
    assert [
        (package.root / inside).read_text() for package, inside in zip(first, ("one/a.py", "two/b.py"), strict=True)
    ]
    assert not (first[0].root / "data.bin").exists(), "only source is unpacked"
    assert reports[0][0] == 0 and reports[-1][0] == reports[-1][1] == one.stat().st_size + two.stat().st_size
    again = corpus.fetch(listed=tmp_path / "packages.toml", into=tmp_path, get=index.get)
    assert again == first and sorted(index.requests) == ["one", "two"]


def test_build_outputs_stay_in_the_archive(tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    both = {
        "package/src/a.ts": "export const a = 1\n",
        "package/dist/a.js": "exports.a = 1\n",
        "package/package.json": "{}",
    }
    file = archive_of(index.folder, "both-1.0.tgz", both)
    (package,) = corpus.fetch(listed=listed(tmp_path, file, folders='["src"]'), into=tmp_path, get=index.get)
    inside = sorted(path.relative_to(package.root).as_posix() for path in package.root.rglob("*") if path.is_file())
    assert inside == ["package.json", "src/a.ts"]
    (package,) = corpus.fetch(listed=listed(tmp_path, file, folders='["dist"]'), into=tmp_path, get=index.get)
    assert (package.root / "dist/a.js").exists() and len(index.requests) == 2, "other folders are another unpacking"


@pytest.mark.parametrize("name", ["../out.py", "/out.py", "top/../../out.py", "top\\..\\out.py", "C:/out.py"])
@pytest.mark.parametrize("file", ["bad-1.0.tar.gz", "bad-1.0-py3-none-any.whl"])
def test_an_archive_with_a_path_outside_its_folder_is_refused(tmp_path: Path, file: str, name: str) -> None:
    index = Index(tmp_path / "index")
    bad = archive_of(index.folder, file, {"top/fine.py": "fine = 1\n", name: "out = 1\n"})
    with pytest.raises(CorpusError, match="leads out of its folder"):
        corpus.fetch(listed=listed(tmp_path, bad), into=tmp_path / "cache", get=index.get)
    assert not list(tmp_path.rglob("out.py")) and not list((tmp_path / "cache").rglob("*.py"))


def test_a_link_in_an_archive_is_skipped(tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    file = archive_of(index.folder, "linked-1.0.tar.gz", {"t/a.py": "a = 1\n"}, {"t/b.py": "/etc/passwd", "t/c": ".."})
    (package,) = corpus.fetch(listed=listed(tmp_path, file), into=tmp_path, get=index.get)
    assert [path.name for path in package.root.rglob("*")] == ["a.py"]


def test_an_archive_with_another_checksum_is_refused_and_the_others_are_kept(tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    bad = archive_of(index.folder, "bad-1.0.tar.gz", {"bad/a.py": "a = 1\n"})
    good = archive_of(index.folder, "good-1.0.tar.gz", {"good/a.py": "a = 1\n"})
    text = listed(tmp_path, bad, sha256="0" * 64).read_text() + listed(tmp_path, good).read_text()
    (tmp_path / "packages.toml").write_text(text)
    with pytest.raises(CorpusError, match="not the archive that was pinned") as refused:
        corpus.fetch(listed=tmp_path / "packages.toml", into=tmp_path, get=index.get)
    assert "\n" not in str(refused.value) and corpus.sha256(bad) in str(refused.value)
    assert (tmp_path / "pypi-sdist/good-1.0/a.py").exists() and not (tmp_path / "pypi-sdist/bad-1.0").exists()


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_FILES", 3)
    index = Index(tmp_path / "index")
    file = archive_of(index.folder, "many-1.0.tar.gz", {f"t/{n}.py": "a = 1\n" for n in range(4)})
    with pytest.raises(CorpusError, match="more than 3 files"):
        corpus.fetch(listed=listed(tmp_path, file), into=tmp_path, get=index.get)


def test_a_truncated_archive_raises_an_error_and_leaves_no_files(tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    file = archive_of(index.folder, "half-1.0.tar.gz", {"t/a.py": "".join(f"a{n} = {n * 7919}\n" for n in range(3000))})
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CorpusError, match="not a whole archive"):
        corpus.fetch(listed=listed(tmp_path, file), into=tmp_path / "cache", get=index.get)
    assert not list((tmp_path / "cache").rglob("*.py"))


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)], ids=["encrypted member", "unknown compression"])
def test_a_member_that_cannot_be_read_is_one_sentence(tmp_path: Path, at: int, value: int) -> None:
    """`at`: of the field in a member's local header; it stands two bytes later in the directory at the end."""
    index = Index(tmp_path / "index")
    file = archive_of(index.folder, "odd-1.0-py3-none-any.whl", {"t/a.py": "a = 1\n"})
    content = bytearray(file.read_bytes())
    content[content.index(b"PK\3\4") + at] = content[content.index(b"PK\1\2") + at + 2] = value
    file.write_bytes(content)
    with pytest.raises(CorpusError, match="not a whole archive"):
        corpus.fetch(listed=listed(tmp_path, file), into=tmp_path / "cache", get=index.get)


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"packages\.toml: benchmarks need a whole checkout"):
        corpus.packages(tmp_path / "packages.toml")


@pytest.mark.parametrize("ecosystem", ["npm", "pypi-sdist"])
def test_a_failed_connection_raises_one_sentence_with_the_fix(
    ecosystem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(command: list[str], **_: object) -> object:
        assert not any("install" in word for word in command), "nothing is ever installed"
        return type("Said", (), {"stdout": "", "stderr": "warning\nno route to host\n"})()

    monkeypatch.setattr("subprocess.run", offline)
    monkeypatch.setattr(corpus, "npm", lambda: ["npm"])
    archive = Archive(ecosystem=ecosystem, name="one", version="1.0", file="one.tgz", bytes=1, sha256="")
    with pytest.raises(CorpusError, match=r"one 1\.0 .*no route to host.*run this again") as error:
        corpus.bring(archive, tmp_path / "one.tgz")
    assert "\n" not in str(error.value)


def test_a_missing_npm_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    monkeypatch.setattr("shutil.which", nothing)
    with pytest.raises(CorpusError, match=r"tests/support/editors/install\.py node"):
        corpus.npm()


def test_the_list_pins_thirty_packages_of_2026_with_permissive_licences() -> None:
    packages = corpus.packages()
    assert len(packages) >= 30 and len({package.name for package in packages}) == len(packages)
    for package in packages:
        assert package.released.startswith("2026"), package.name
        assert package.licence in {"MIT", "Apache-2.0", "BSD-3-Clause", "PSF-2.0"}, package.name
        assert len(package.archive.sha256) == 64 and package.archive.bytes > 0
        is_new = not package.first_release or package.first_release >= "2024-10"
        assert is_new or package.before is not None or package.cursors, f"{package.name} could have been seen"
    assert sum(package.archive.bytes for package in packages) < 300 << 20


def test_failed_fetches_stop_further_requests(tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    files = [archive_of(index.folder, f"p{n}-1.0.tar.gz", {"t/a.py": "a = 1\n"}) for n in range(40)]
    requests: list[str] = []

    def offline(archive: Archive, file: Path) -> None:
        requests.append(archive.name)
        raise CorpusError(f"{archive} could not be fetched.")

    with pytest.raises(CorpusError, match="could not be fetched"):
        corpus.fetch(listed=listed(tmp_path, *files), into=tmp_path, get=offline)
    assert len(requests) <= 2 * corpus.AT_ONCE
