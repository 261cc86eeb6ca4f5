"""The program on Windows for tests: a Windows Python under Wine, made by `make windows`.

Tests here are collected only if SPECLSP_WINDOWS_PYTHON names the launcher that harness/install.py prints.
"""

from __future__ import annotations

import os

import pytest

VARIABLE = "SPECLSP_WINDOWS_PYTHON"

collect_ignore_glob = [] if os.environ.get(VARIABLE) else ["test_*.py"]


@pytest.fixture(scope="session")
def windows() -> list[str]:
    """The words that start the Windows Python; append `-m`, `speclsp` and further words."""
    launcher = os.environ.get(VARIABLE)
    assert launcher, f"{VARIABLE} is not set: run `make windows`, or set it to the launcher of a Windows Python"
    return [launcher]
