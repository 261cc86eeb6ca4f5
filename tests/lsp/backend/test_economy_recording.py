"""A body is typed over LSP once: each position has a row, the cache continues, and a live run equals the replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.keystrokes.economy import live, recording
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.person import PERSONS
from benchmarks.keystrokes.economy.policies import by_value
from benchmarks.keystrokes.economy.replay import replay
from benchmarks.keystrokes.economy.typing import SETTINGS
from speclsp import config
from speclsp.lsp.completion.confidence import Bar

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
def test_a_body_is_recorded_once_and_a_live_run_equals_its_replay(body: Body):
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
    typist = PERSONS[1]
    (counts,) = live.live(settings, [body], typist)
    replayed = replay(recorded, by_value({}, Bar()), typist)
    assert (counts.keys, counts.pressed, counts.stay) == (replayed.keys, replayed.pressed, replayed.stay)


def test_the_key_of_a_recording_names_the_settings_that_decide_a_candidate():
    one, other, same = (
        recording.candidate_source(config.load({"model": "tiny", **SETTINGS, **more}))
        for more in ({}, {"completion.multiline": "always"}, {})
    )
    assert one == same != other
