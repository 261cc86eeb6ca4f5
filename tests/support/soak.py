"""Parameters of tests that only `make soak` uses, beside those that `make test` uses too."""

from __future__ import annotations

from typing import Any

import pytest


def in_soak(*values: Any) -> list[Any]:
    """Values of a parameter for `make soak` alone; a tuple stands for several parameters."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.soak) for value in values
    ]
