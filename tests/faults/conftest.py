"""What the tests of one run share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.weights.faulty_hub import FaultyHubRun


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyHubRun]:
    """An installation of its own, with a hub that can fail."""
    made = FaultyHubRun(tmp_path_factory.mktemp("house"))
    yield made
    made.close()
