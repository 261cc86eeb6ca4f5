"""The fit of the gate of next edits: the table is what the fitter writes, and the simulation shows the likely edits."""

from __future__ import annotations

import json
from functools import partial

from benchmarks.editor.edit_replay.gate import next_edit_gate
from benchmarks.editor.edit_replay.gate.candidates import Recorder, Row, rows_of
from benchmarks.editor.edit_replay.gate.regression import ABOVE, INTERCEPT, by_weights, examples, fit, show
from benchmarks.editor.edit_replay.replay_states import STATE
from benchmarks.results_file import CHECKOUT
from speclsp.lsp.next_edit import edit_likelihood as gate

BEFORE = "".join(f"read_{n} = lib.read(open_file, {n})\n\nx_{n} = 0\n" for n in range(6))
AFTER = BEFORE.replace("open_file", "shared.file")


def candidate(right: bool, times: int = 2, change: str = "a", **features: float) -> Row:
    return {
        "change": ["lines", change, "b"],
        "times": times,
        "proven": False,
        "above": False,
        "right": right,
        "features": {"lines": 1.0, **features},
    }


def state(*candidates: Row, kind: str = STATE, package: str = "p") -> Row:
    return {"package": package, "path": "a.py", "kind": kind, "candidates": list(candidates)}


def test_the_weights_of_the_product_are_those_of_the_result_file():
    result = json.loads((CHECKOUT / "benchmarks" / "results" / f"{next_edit_gate.NAME}.json").read_text("utf-8"))
    table = next_edit_gate.TABLE.search(next_edit_gate.TABLE_FILE.read_text("utf-8"))
    kinds = {INTERCEPT, *gate.FEATURES}  # the fit had kinds of edits that are not offered
    weights = {name: weight for name, weight in result["weights"].items() if name in kinds}
    assert table is not None and table[0] == next_edit_gate.source(weights, result["thresholds"])


def test_what_the_fitter_writes_is_read_back_as_it_was():
    fitted = {INTERCEPT: -1.0, "lines": 0.5, "times": 0.25, "left": 0.0, ABOVE: -3.0}
    scope: dict[str, object] = {}
    exec(f"from collections.abc import Mapping\n{next_edit_gate.source(fitted, {'lines': 0.7})}", scope)
    assert scope["THRESHOLDS"] == {"lines": 0.7} and scope["INTERCEPT"] == -1.0
    assert scope["WEIGHTS"] == {"lines": 0.5, "times": 0.25}


def test_a_fit_finds_the_features_that_tell_and_keeps_the_signs():
    rows = [
        state(candidate(number % 4 > 0, pure=1.0, times=3.0), candidate(number % 4 == 0), package=f"p{number % 7}")
        for number in range(80)
    ]
    fitted = fit(examples(rows))
    assert fitted["pure"] + fitted["times"] > 0
    assert all(fitted[name] * sign >= 0 for name, sign in gate.SIGNS.items())
    judge = by_weights(fitted)
    assert judge("p", {"lines": 1.0, "pure": 1.0, "times": 3.0}) > 0.6 > 0.4 > judge("p", {"lines": 1.0})


def test_the_first_likely_edit_is_shown_and_not_again_before_there_is_more_evidence():
    rows = [
        state(candidate(False, pure=0.1), candidate(False, change="b", pure=1.0)),
        state(candidate(False, change="b", pure=1.0)),
        state(candidate(True, 3, change="b", pure=1.0)),
        state(candidate(True, 4, change="b", accepted=1.0)),
    ]
    shown = show(rows, lambda package, features: features.get("pure", 0.0), {"lines": 0.5})
    assert (shown.shown[STATE], shown.right[STATE]) == (3, 2)


def test_the_thresholds_are_the_lowest_with_the_precision():
    rows = [state(candidate(n > 69, change=str(n), pure=n / 100)) for n in range(100)]
    judge = lambda package, features: features.get("pure", 0.0)  # noqa: E731
    chosen = partial(next_edit_gate.chosen_thresholds, rows, judge, next_edit_gate.curve_of(rows, judge))
    assert [chosen(aim)["lines"] for aim in (0.6, 0.75, 0.99)] == [0.5, 0.6, 0.7]
    assert chosen(0.99)["rename"] == 0.5, "too few are shown"


def test_a_recording_has_every_candidate_and_its_verdict_and_a_chain_goes_on_behind_an_accepted_edit():
    rows = list(rows_of("app.py", BEFORE, AFTER, Recorder(), "p"))
    listed = [candidate for row in rows for candidate in row["candidates"]]
    assert any(candidate["right"] for candidate in listed)
    assert all(set(candidate["features"]) <= set(gate.FEATURES) for candidate in listed)
    assert any(gate.goes_on(candidate["features"]) for candidate in listed)
