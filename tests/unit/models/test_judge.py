"""The judge of next edits: a right answer is the whole window, and two runs are compared case by case."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from models.training import edit_examples, judge
from speclsp.engine.api import Request
from speclsp.errors import InputError

OLD = "".join(f"def use_{n}(key):\n    first = {n}\n    return fetch(key) + first\n\n\n" for n in range(12))
NEW = OLD.replace("fetch(key)", "fetch(key, default)")
CASES = list(edit_examples.cases({"f.py": OLD}, {"f.py": NEW}, "seed"))


class Rewriter:
    """An engine that makes the edit, if it may, and else gives the window back. It reads the prompt's window."""

    def __init__(self, edits: bool) -> None:
        self.edits = edits
        self.prompter = SimpleNamespace(encode_once=list)

    def complete(self, request: Request, _cancel: object) -> list[SimpleNamespace]:
        assert request.raw_prompt is not None and not request.heal
        window = request.raw_prompt.split("<|file_sep|>current\n")[1].split("<|file_sep|>")[0]
        lines = window.split("\n")
        if self.edits:
            lines = [line.replace("fetch(key)", "fetch(key, default)") for line in lines]
        text = "\n".join(lines)
        return [SimpleNamespace(text=text[:7]), SimpleNamespace(text=text[7:])]


def test_right_is_the_whole_window_and_alone_is_the_window_as_it_is():
    whole = [case for case in CASES if case.kind in ("derivable", "unchanged")]
    edited, alone = (judge.answers(Rewriter(edits), whole, lambda number: None) for edits in (True, False))
    for case, made, kept in zip(whole, edited, alone, strict=True):
        assert made["right"] and kept["alone"]
        assert kept["right"] == (case.kind == "unchanged")
        assert made["kind"] == ("quiet" if case.kind == "unchanged" else "follows")


def test_two_runs_are_compared_in_pairs_and_other_cases_are_refused():
    edited, alone = (judge.answers(Rewriter(edits), CASES, lambda number: None) for edits in (True, False))
    figures = judge.compared(alone, edited)["follows"]
    assert figures["base"] == 0 and figures["other"] > 0
    assert 0 < figures["difference"]["low"] <= figures["difference"]["value"] <= 1
    with pytest.raises(InputError, match="other cases"):
        judge.compared(alone, edited[1:])
