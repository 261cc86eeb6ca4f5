"""The list of tests that Wine cannot run names tests that exist."""

from __future__ import annotations

from pathlib import Path

from windows.harness import not_run


def test_every_row_of_the_list_names_a_test_that_exists():
    """A renamed test does not stay in the list."""
    root = Path(__file__).parents[3]
    assert not_run.rows("program") and not_run.rows("python")
    for way in ("windows", "program", "python"):
        for row in not_run.rows(way):
            for test in row.tests:
                file, _, name = test.partition("::")
                text = (root / file).read_text("utf-8")
                assert f"def {name.rstrip('*')}" in text, test
