"""Fixtures shared by the tests of weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.weights.wheel_index import Shop, open_shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A package index with one GGUF of a few kilobytes, and no hub."""
    return open_shop(tmp_path, monkeypatch)
