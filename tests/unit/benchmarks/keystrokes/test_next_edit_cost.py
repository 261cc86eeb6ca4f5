"""Cost of next edits at the keys: keys are compared with themselves, and only where every run answered."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import main
from benchmarks.keystrokes.next_edit_cost import Presses, compared
from benchmarks.keystrokes.replay_editor import Press


def run_of(times_ms: dict[int, float], *, along: bool = True) -> Presses:
    """A run: milliseconds by the document's version."""
    presses = [
        Press("python", "file:///a.py", "type", version, version, 0.0, 0.0, along, 500.0, ms / 1000)
        for version, ms in times_ms.items()
    ]
    return {(press.uri, press.version, press.kind): press for press in presses}


def test_the_ratio_is_that_of_each_key_to_itself():
    slow_and_fast = {1: 2.0, 2: 200.0, 3: 4.0}
    without = [run_of(slow_and_fast)] * 2
    with_edits = [run_of({version: ms * 1.1 for version, ms in slow_and_fast.items()})] * 2
    along = compared(without, with_edits)["along"]
    assert along["keys"] == 3 and along["without_ms"] == [4.0, 4.0]
    assert along["ratios"] == [1.1, 1.1] and along["ratio"] == 1.1


def test_a_key_counts_only_where_every_run_answered_in_time():
    runs = [run_of({1: 2.0, 2: 3.0, 3: 4.0}), run_of({1: 2.0, 2: 3.0, 3: 900.0}), run_of({1: 2.0, 3: 4.0})]
    assert compared(runs[:2], [runs[2], runs[2]])["all"]["keys"] == 1
    assert "along" not in compared(runs[:1], [run_of({1: 2.0}, along=False)])


@pytest.mark.parametrize("flags", [("--minutes", "0"), ("--runs", "0")])
def test_a_length_of_nothing_is_an_error(flags: tuple[str, str], capsys: pytest.CaptureFixture[str]):
    assert main(["next-edit-cost", "--model", "echo", *flags]) == 2
    assert "expected numbers above 0" in capsys.readouterr().err
