"""Fixtures shared by the fault tests."""

from __future__ import annotations

from collections.abc import Iterator
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
