"""Terminals of the tests of the command line."""

from __future__ import annotations

import pytest
from support.cli.terminal import add_console


@pytest.fixture(autouse=True)
def console(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Terminal` is a terminal on every system."""
    add_console(monkeypatch)
