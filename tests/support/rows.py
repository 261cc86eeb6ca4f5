"""Rows of parametrized tests that are data: `rows.toml` beside the tests, one table for each test file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    return tomllib.loads(path.read_text("utf-8"))


def rows(test_file: str) -> dict[str, list[Any]]:
    """{test without "test_": the values of its parameters, case by case}."""
    path = Path(test_file)
    table: dict[str, list[Any]] = read(path.with_name("rows.toml"))[path.stem]
    return table
