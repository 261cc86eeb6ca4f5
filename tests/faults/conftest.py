"""Fixtures shared by the fault tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.faults.broken_engines import Trouble
from support.weights.faulty_hub import FaultyHubRun


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyHubRun]:
    """A separate speclsp installation with a model hub that can be made to fail."""
    installation = FaultyHubRun(tmp_path_factory.mktemp("house"))
    yield installation
    installation.close()


@pytest.fixture
def trouble(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Trouble:
    """Faults of the engines that this test starts."""
    return Trouble(isolated, monkeypatch)


@pytest.fixture
def disk_of(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """`disk_of(mib)` is a file system of its own of that size."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(mib: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("only root may mount a small disk")
        return folder

    yield mount
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
