"""A body is typed over LSP once: each position has a row, and the cache continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.keystrokes.economy import recording
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.typing import SETTINGS
from speclsp import config

TEXT = "\n    total = 0\n    return total"


@pytest.fixture
def body(tmp_path: Path) -> Body:
    (tmp_path / "b.py").write_text("def g(items):\n    total = 0\n    return total\n")
    return Body(
        id="b", package="p", root=str(tmp_path), path="a.py", language="python", group="python",
        above="def f(items):", text=TEXT, below="\n\n\nf([])\n", open_paths=("b.py",),
    )  # fmt: skip


@pytest.mark.soak
@pytest.mark.slow
def test_a_body_is_recorded_once(body: Body):
    settings = config.load({"model": "tiny", **SETTINGS})
    (recorded,) = recording.record(settings, [body])
    assert len(recorded.rows) == len(body.keys) + 1
    assert all(row["text"] or row["reason"] for row in recorded.rows)
    assert any(row["lines"] for row in recorded.rows)
    offsets = [row["cursor"] - len(body.above) for row in recorded.rows if "cursor" in row]
    assert offsets == sorted(offsets) and offsets[-1] <= len(TEXT)

    def fail(done: int, total: int) -> None:
        raise AssertionError("it was recorded already")

    assert recording.record(settings, [body], fail) == [recorded]


def test_the_key_of_a_recording_names_the_settings_that_decide_a_candidate():
    one, other, same = (
        recording.candidate_source(config.load({"model": "tiny", **SETTINGS, **more}))
        for more in ({}, {"completion.multiline": "always"}, {})
    )
    assert one == same != other
