"""Packages of the quality tasks: pinned by checksum and unpacked inside one folder, or refused with one sentence."""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
import zipfile
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
