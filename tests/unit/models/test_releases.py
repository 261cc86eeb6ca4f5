"""Releases of a list: downloaded archives are unpacked beside each other; all of a package, or its last one."""

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


@pytest.mark.parametrize("newest_only", [False, True])
def test_fetched_unpacks_each_release_or_only_the_last_of_each_package(index: Path, tmp_path: Path, newest_only: bool):
    done: list[tuple[int, int]] = []
    into, first = tmp_path / "corpus", -1 if newest_only else 0
    learned = releases.fetched(lambda *bytes_of: done.append(bytes_of), index, into, newest_only=newest_only)
    wanted = {f"{name}-{version}" for name, versions in VERSIONS.items() for version in versions[first:]}
    assert unpacked(into) == wanted
    assert [len(package.roots) for package in learned] == [len(versions) for versions in VERSIONS.values()]
    assert done[-1][0] == done[-1][1] == sum(archive.bytes for other in learned for archive in other.archives[first:])
    for package in learned:
        newest = VERSIONS[package.name][-1]
        assert package.files(package.roots[-1]) == {f"{package.name}/__init__.py": f'VERSION = "{newest}"\n'}
