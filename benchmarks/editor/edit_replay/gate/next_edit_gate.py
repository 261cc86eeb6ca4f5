"""Weights of the gate of next edits, fitted to edits between releases, and the rates of the gate.

    python -m benchmarks next-edit-gate [--record]

    candidates.py ─► build/benchmarks/next-edit-gate-PART.jsonl ─► regression.py ─► edit_likelihood.py

Fitted and chosen on the packages of models/training and the tuning packages, cross-validated by package: the threshold
is the highest that shows at least as many right edits there as the fixed gates did. Held-out and blind packages judge.
The fixed gates required a change to be made twice, or once in whole lines of which 80 % stay,
in like surroundings. Their figures (`before`) are kept from the result file. Nothing here has a limit of time.
`--record` replays the packages anew; the candidates change with the producer.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.editor.edit_replay.gate import regression
from benchmarks.editor.edit_replay.gate.candidates import TRAINING, Row, record
from benchmarks.editor.edit_replay.gate.regression import ABOVE, INTERCEPT, Judge, Shown, Weights, show
from benchmarks.editor.edit_replay.release_edits import BLIND, PARTS
from benchmarks.editor.edit_replay.replay_states import HALF_TYPED, QUIET, STATE
from speclsp.lsp.next_edit import edit_likelihood as gate

NAME = "next-edit-gate"
FITTED, JUDGES = (TRAINING, PARTS[1]), (PARTS[0], BLIND)
THRESHOLDS = tuple(step / 50 for step in range(5, 48))
AIMS = (0.7, 0.8, 0.9)  # precisions of the table
TABLE_FILE = Path(gate.__file__)
TABLE = re.compile(r"(?ms)^THRESHOLD = .*?^(?=# End)")


def rows_of(part: str, *, anew: bool) -> list[Row]:
    """The recorded states of a part. It is replayed if it has no recording, or `anew`."""
    file = results_file.RAW / f"{NAME}-{part}.jsonl"
    if anew or not file.is_file():
        record(part, file)
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def chosen_threshold(rows: Sequence[Row], judge: Judge, least_right: int) -> float:
    """The highest threshold that shows at least so many right edits."""
    return max(
        (threshold for threshold in THRESHOLDS if show(rows, judge, threshold).right[STATE] >= least_right),
        default=THRESHOLDS[0],
    )


def curve(rows: Sequence[Row], judge: Judge, states: int, least_right: int) -> dict[str, dict[str, object] | None]:
    """For each aim the point that shows most right edits with that precision; and the last with `least_right`."""
    points = {threshold: show(rows, judge, threshold) for threshold in THRESHOLDS}
    reached = {f"{aim:.0%}": [at for at in THRESHOLDS if points[at].precision >= aim] for aim in AIMS}
    best = {aim: max(listed, key=lambda at: points[at].right[STATE], default=None) for aim, listed in reached.items()}
    best["as many right"] = max((at for at in THRESHOLDS if points[at].right[STATE] >= least_right), default=None)
    return {aim: None if at is None else point(at, points[at], states) for aim, at in best.items()}


def point(threshold: float, shown: Shown, states: int) -> dict[str, object]:
    """One point of a curve."""
    number, right = shown.shown[STATE], shown.right[STATE]
    return {
        "threshold": threshold,
        "shown": number,
        "right": right,
        "precision": round(right / number, 3),
        "shown_rate": round(number / states, 4),
    }


def source(weights: Weights, threshold: float) -> str:
    """The table of edit_likelihood.py. Weights of 0 are left out."""
    lines = [
        f'    "{name}": {weight},' for name, weight in weights.items() if weight and name not in (INTERCEPT, ABOVE)
    ]
    table = "\n".join(["WEIGHTS: Mapping[str, float] = {", *lines, "}"])
    return f"THRESHOLD = {threshold}\nINTERCEPT = {weights[INTERCEPT]}\n{table}\n"


def fitted(rows: Sequence[Row], least_right: int) -> tuple[Judge, float, dict[str, float]]:
    """(the judge by packages of other folds, its threshold, the weights of all packages).

    The first fit knows no rejections: they follow from what a gate shows.
    """
    show(rows, regression.crossed(rows), gate.THRESHOLD)
    judge = regression.crossed(rows)
    return judge, chosen_threshold(rows, judge, least_right), regression.fit(regression.examples(rows))


def part_figures(rows: Sequence[Row], judge: Judge, threshold: float, before: Any) -> dict[str, object]:
    """The figures of one part."""
    states = Counter(row["kind"] for row in rows)
    with_candidates = [row for row in rows if row["candidates"]]
    return {
        "packages": len({row["package"] for row in rows}),
        "states": states[STATE],
        "half_typed_states": states[HALF_TYPED],
        "quiet_states": states[QUIET],
        "before": before,
        "after": show(with_candidates, judge, threshold).figures(),
        "curve": curve(with_candidates, judge, states[STATE], before["right"]),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks next-edit-gate`."""
    parser.add_argument("--record", action="store_true", help="replay the packages, even where recordings exist")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    kept = json.loads((results_file.RESULTS / f"{NAME}.json").read_text("utf-8"))
    before: Mapping[str, Any] = {part: figures["before"] for part, figures in kept["parts"].items()}
    rows = [row for part in FITTED for row in rows_of(part, anew=options.record)]
    with_candidates = [row for row in rows if row["candidates"]]
    judge, threshold, weights = fitted(with_candidates, before["fitted"]["right"])
    text = TABLE.sub(lambda _: source(weights, threshold), TABLE_FILE.read_text("utf-8"), count=1)
    TABLE_FILE.write_text(text, encoding="utf-8")
    parts = {"fitted": part_figures(rows, judge, threshold, before["fitted"])}
    for part in JUDGES:
        judged = rows_of(part, anew=options.record)
        parts[part] = part_figures(judged, regression.by_weights(weights), threshold, before[part])
    for part, figures in parts.items():
        print(part, json.dumps({name: figures[name] for name in ("before", "after", "curve")}))
    result = {"threshold": threshold, "weights": weights, "parts": parts}
    print(f"wrote {TABLE_FILE} and {results_file.write(NAME, result, NAME)}")
    return 0
