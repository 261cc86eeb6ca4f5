"""Benchmark of a model's next edits: the sample, the verdict, the rows and the thresholds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.editor import next_edit_model as bench
from benchmarks.editor.edit_replay.release_edits import PARTS, is_held_out
from benchmarks.quality import edits
from speclsp.errors import InputError
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece
from speclsp.lsp.next_edit.model_producer import EditEngine, EditModel, ModelProducer
from speclsp.lsp.next_edit.producer import Producer

BEFORE = (
    "class Job:\n    name = ''\n\n    def load(self, data):\n        self.name = data['name']\n        return self\n"
)
AFTER = BEFORE.replace("''\n", "''\n    size = 0\n").replace("data['name']\n", "data['name']\n        self.size = 0\n")
CASE = bench.Case(package="some", path="job.py", before=BEFORE, after=AFTER, kind=bench.STATE, number=0)
ROW = {
    "id": "a", "part": PARTS[1], "kind": bench.STATE, "outcome": "shown", "right": True, "exact": True, "same": False,
    "rules": None, "ms": 1.0,
}  # fmt: skip


def asked(case: bench.Case, old: str, new: str) -> dict[str, Any]:
    """The row of a model that answers with the window, `new` in place of `old`, at probability 0.9 a token."""

    async def model() -> EditModel:
        return EditModel("window", least_probability=0.0)

    async def stream(request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        for line in request.draft_window.replace(old, new).splitlines(keepends=True):
            yield StreamPiece(text=line, tokens=1, logprobs=((len(line), -0.1),))
        yield StreamPiece(cost=CompletionCost(stop_type="eos"))

    producer = ModelProducer(EditEngine(model, stream, lambda uri: "s", lambda uri: "job.py"))
    return asyncio.run(bench.row_of(case, Producer(), producer))


LOAD = "        self.name = data['name']\n"


@pytest.mark.parametrize(
    ("new", "outcome", "right", "exact"),
    [
        (LOAD, "unchanged", False, False),
        (LOAD + "        self.size = 0\n", "shown", True, True),
        (LOAD + "        self.size = 1\n", "shown", False, False),
        ("", "shown", False, False),
    ],
)
def test_an_edit_is_right_if_the_newer_release_has_its_lines(new: str, outcome: str, right: bool, exact: bool):
    row = asked(CASE, LOAD, new)
    assert (row["outcome"], row["right"], row["exact"]) == (outcome, right, exact)
    assert row["probability"] == (0.9048 if outcome == "shown" else None)


def test_nothing_is_right_in_a_quiet_state():
    last = bench.Case(package="some", path="job.py", before=BEFORE, after=AFTER, kind=bench.QUIET, number=0)
    assert asked(last, LOAD, LOAD)["outcome"] == "unchanged"
    row = asked(last, "        return self\n", "        self.done = True\n        return self\n")
    assert (row["outcome"], row["right"]) == ("shown", False)


def test_the_model_is_asked_at_the_cursor_and_where_the_rules_point():
    filler = "".join(f"value_{n} = {n}\n" for n in range(9))
    before = "".join(f"read_{n} = lib.read(open_file, {n})\n{filler}" for n in range(4))
    files = [("job.py", before, before.replace("open_file", "shared.file"))]
    cases = [*bench.with_offers(bench.cases_of("some", files), Producer())]
    assert [(case.kind, case.number) for case in cases] == [(bench.STATE, 1), (bench.STATE, 2)]
    right, wrong, none = (
        asked(cases[0], "read_2 = lib.read(open_file, 2)", f"read_2 = lib.read({new}2)")
        for new in ("shared.file, ", "", "open_file, ")
    )
    for row in (right, wrong, none):
        assert row["outcome"] == "unchanged", "the cursor's window has nothing to change"
        assert (row["rules"]["kind"], row["rules"]["right"]) == ("phrase", True)
    at_the_place = [row["rules"]["model"] for row in (right, wrong, none)]
    assert [(answer["right"], answer["same"]) for answer in at_the_place] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    assert [bench.shown(right, way, 0.8) for way in bench.WAYS] == [
        (True, True, False), None, None, (True, True, False), (True, True, False),
    ]  # fmt: skip
    assert [bench.shown(wrong, way, 0.8) for way in bench.WAYS[1:]] == [None, None, (False, False, False), None]
    assert bench.shown(right, bench.POINTED, 0.95) is None, "not sure enough"
    rates = bench.figures([right, wrong, none], bench.AGREES)
    assert (rates["shown"], rates["right"], rates["new"]) == (1, 1, 0)


def test_an_edit_is_new_if_it_is_right_and_the_rules_do_not_show_it():
    offer = {"kind": "phrase", "right": True, "exact": True, "model": ROW | {"probability": None}}
    rows = [
        ROW | {"probability": 0.9},
        ROW | {"probability": 0.9, "right": False},
        ROW | {"probability": 0.9, "rules": offer},
        ROW | {"probability": 0.9, "rules": offer, "same": True},
    ]
    counts = {way: bench.figures(rows, way, 0.5) for way in bench.WAYS}
    names = ("shown", "right", "new")
    assert {way: tuple(rates[name] for name in names) for way, rates in counts.items()} == {
        "rules": (2, 2, 0), "model": (4, 3, 2), "silent": (2, 1, 1), "pointed": (0, 0, 0), "agrees": (0, 0, 0),
    }  # fmt: skip


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=8), st.integers(0, 8), st.integers(0, 3), st.data())
def test_a_block_has_the_same_effect_at_all_its_slides(old: list[str], at: int, size: int, data: st.DataObject):
    at = min(at, len(old))
    lines = data.draw(st.lists(st.sampled_from("ab"), min_size=size, max_size=size))
    end = data.draw(st.integers(at, len(old)))
    new = [*old[:at], *lines, *old[end:]]
    first = bench.difference(old, new)
    for low, high, block in bench.slides(old, *first) if new != old else ():
        assert [*old[:low], *block, *old[high:]] == new


def test_the_sample_is_the_same_in_any_order_and_has_both_kinds():
    files = [(f"package{n}", "job.py", BEFORE, AFTER) for n in range(40)]
    drawn = bench.sample(files, PARTS[:2], 5, 3)
    assert drawn == bench.sample(random.Random(1).sample(files, 40), PARTS[:2], 5, 3) and len(drawn) == 16
    assert {case.kind for case in drawn} == {bench.STATE, bench.QUIET}
    fewer = bench.sample(files, PARTS[:1], 2, 0)
    assert fewer == [case for case in drawn if case.part == PARTS[0]][:2]
    assert all(is_held_out(case.package) == (case.part == PARTS[0]) for case in drawn)
    assert len(edits.hunks(BEFORE, AFTER)) == 2


def test_rows_are_kept_without_an_incomplete_last_one(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    bench.Rows(path, "model").add(ROW)
    with path.open("a") as file:
        file.write('{"id": "b", ')
    assert bench.Rows(path, "model").by_id == {"a": ROW}
    bench.Rows(path, "model").add(ROW | {"id": "c"})
    assert set(bench.Rows(path, "model").by_id) == {"a", "c"}
    with pytest.raises(InputError, match="has rows of model, not of another"):
        bench.Rows(path, "another")
    path.write_text('{"model": "model"}\n')
    with pytest.raises(InputError, match="remove it"):
        bench.Rows(path, "model")


def test_the_lowest_threshold_that_meets_both_aims_is_chosen():
    sure = [ROW | {"probability": 0.9, "right": n < 9} for n in range(12)]
    unsure = [ROW | {"probability": 0.5, "right": False} for n in range(12)]
    quiet = [ROW | {"kind": bench.QUIET, "probability": None, "outcome": "unchanged"} for n in range(10)]
    assert bench.chosen([*sure, *unsure, *quiet]) == 0.55
    assert bench.chosen([*sure, *quiet]) == 0.0
    assert bench.chosen([*sure[:9], *quiet]) is None, "too few shown"
    assert bench.chosen([*unsure, *quiet]) is None
    assert bench.chosen([*sure, *(row | {"probability": 0.9} for row in quiet)]) is None, "not quiet"
    by_rules = [row | {"rules": {"right": True, "exact": True, "model": row}} for row in unsure]
    rates = bench.figures([*sure, *by_rules, *quiet], bench.SILENT, 0.4)
    assert (rates["states"], rates["shown"], rates["precision"], rates["quiet_rate"]) == (24, 12, 0.75, 1.0)
    assert f"| {PARTS[1]} | silent | 0.8 | 12 | 9 | 12 | 9 | 0.75 | 1.0 |" in bench.table({PARTS[1]: [*sure, *quiet]})
    assert bench.is_kept(sure, 0.5) and not bench.is_kept([*sure, *unsure], 0.5) and not bench.is_kept([], 0.5)
    assert not bench.is_kept([row | {"same": True} for row in sure], 0.5), "nothing new"
