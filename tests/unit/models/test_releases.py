"""Releases of a list: the last one of each package is downloaded and unpacked."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path

import pytest

from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks.packages import Archive
from models.training import releases

VERSIONS = {"gamma": ("1.0", "1.1", "2.0"), "delta": ("0.9", "0.10")}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of packages whose wheels a folder serves in place of PyPI. Returns the list."""
    served, tables = tmp_path / "served", []
    served.mkdir()
    for name, versions in VERSIONS.items():
        rows = [row_of(wheel(served, name, version), version) for version in versions]
        tables.append(
            f'[[package]]\necosystem = "pypi-wheel"\nname = "{name}"\nlanguages = ["python"]\nlicence = "MIT"\n'
            f"releases = [\n{''.join(rows)}]\n"
        )
    (tmp_path / "packages.toml").write_text("\n".join(tables), encoding="utf-8")

    def copy(archive: Archive, file: Path) -> None:
        shutil.copy(served / archive.file, file)

    monkeypatch.setattr(corpus, "bring", copy)
    return tmp_path / "packages.toml"


def wheel(folder: Path, name: str, version: str) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f'VERSION = "{version}"\n')
    return path


def row_of(file: Path, version: str) -> str:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f'    {{version = "{version}", file = "{file.name}", bytes = {file.stat().st_size}, sha256 = "{digest}"}},\n'


def unpacked(into: Path) -> set[str]:
    return {path.name for path in (into / "pypi-wheel").iterdir() if path.is_dir()}


def test_fetched_unpacks_the_last_release_of_each_package(index: Path, tmp_path: Path):
    done: list[tuple[int, int]] = []
    into = tmp_path / "corpus"
    learned = releases.fetched(lambda *bytes_of: done.append(bytes_of), index, into)
    assert unpacked(into) == {f"{name}-{versions[-1]}" for name, versions in VERSIONS.items()}
    assert [len(package.roots) for package in learned] == [len(versions) for versions in VERSIONS.values()]
    assert done[-1][0] == done[-1][1] == sum(package.archives[-1].bytes for package in learned)
    for package in learned:
        newest = VERSIONS[package.name][-1]
        assert package.files(package.roots[-1]) == {f"{package.name}/__init__.py": f'VERSION = "{newest}"\n'}
