"""Weights of the gate of next edits, fitted to edits between releases, and its threshold.

    python -m benchmarks next-edit-gate [--record] [--share N]

    candidates.py ─► build/benchmarks/next-edit-gate-PART.jsonl ─► regression.py ─► edit_likelihood.py

Fitted and chosen on the packages of models/training and the tuning packages, cross-validated by package. The threshold
of a kind is the lowest one with which a share of its edits is right, chains included. The share is the same for all
kinds: the lowest one with which AIM of all shown edits are right. `python -m benchmarks next-edit` judges the gate, on
held-out and blind packages. Nothing here has a limit of time. `--record` replays the packages anew: the candidates
change with the producer, and the chains with the gate. It takes about five minutes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import results_file
from benchmarks.editor.edit_replay.gate import regression
from benchmarks.editor.edit_replay.gate.candidates import TRAINING, Row, record
from benchmarks.editor.edit_replay.gate.regression import ABOVE, INTERCEPT, Judge, Shown, Weights, show
from benchmarks.editor.edit_replay.release_edits import PARTS
from benchmarks.editor.edit_replay.replay_states import STATE
from speclsp.lsp.next_edit import edit_likelihood as gate

NAME = "next-edit-gate"
FITTED = (TRAINING, PARTS[1])
THRESHOLDS = tuple(step / 50 for step in range(25, 48))  # from 0.5 on: an edit is likelier right than wrong
MIN_SHOWN = 50  # edits of a kind that is judged by itself; the threshold of another one is the lowest
AIM = 0.85  # precision
Curve = Sequence[tuple[float, Shown]]  # what each of THRESHOLDS shows
TABLE_FILE = Path(gate.__file__)
TABLE = re.compile(r"(?ms)^THRESHOLDS: .*?^(?=# End)")


def rows_of(part: str, *, anew: bool, share: int) -> list[Row]:
    """The recorded states of a part. It is replayed if it has no recording, or `anew`."""
    file = results_file.RAW / f"{NAME}-{part}.jsonl"
    if anew or not file.is_file():
        record(part, file, share)
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def thresholds_of(curve: Curve, share: float) -> dict[str, float]:
    """The lowest threshold of each kind with which this share of its edits is right; the highest if none is."""
    known = [kind for kind in gate.KINDS if curve[0][1].by_kind[kind] >= MIN_SHOWN]
    reached = {kind: [at for at, shown in curve if shown.precision_of(kind) >= share] for kind in known}
    lowest = {kind: min(listed, default=THRESHOLDS[-1]) for kind, listed in reached.items()}
    return dict.fromkeys(gate.KINDS, THRESHOLDS[0]) | lowest


def chosen_thresholds(rows: Sequence[Row], judge: Judge, curve: Curve, aim: float = AIM) -> dict[str, float]:
    """The thresholds with which `aim` of all shown edits are right, with the same share of each kind."""
    tables = [thresholds_of(curve, percent / 100) for percent in range(50, round(100 * aim) + 1)]
    return next((table for table in tables if show(rows, judge, table).precision >= aim), tables[-1])


def point(threshold: float, shown: Shown) -> dict[str, object]:
    """One point of the curve."""
    number, right = shown.shown[STATE], shown.right[STATE]
    return {"threshold": threshold, "shown": number, "right": right, "precision": round(shown.precision, 3)}


def source(weights: Weights, thresholds: Mapping[str, float]) -> str:
    """The tables of edit_likelihood.py. Weights of 0 are left out."""
    kept = {name: weight for name, weight in weights.items() if weight and name not in (INTERCEPT, ABOVE)}
    return f"{table('THRESHOLDS', thresholds)}INTERCEPT = {weights[INTERCEPT]}\n{table('WEIGHTS', kept)}"


def table(name: str, values: Mapping[str, float]) -> str:
    rows = (f'    "{key}": {value},\n' for key, value in values.items())
    return "".join([f"{name}: Mapping[str, float] = {{\n", *rows, "}\n"])


def curve_of(rows: Sequence[Row], judge: Judge) -> Curve:
    """The edits that each threshold shows, if all kinds have it."""
    return [(at, show(rows, judge, dict.fromkeys(gate.KINDS, at))) for at in THRESHOLDS]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks next-edit-gate`."""
    parser.add_argument("--record", action="store_true", help="replay the packages, even where recordings exist")
    parser.add_argument("--share", type=int, default=1, help="replay one of so many packages, and write no table")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    rows = [row for part in FITTED for row in rows_of(part, anew=options.record, share=options.share)]
    with_candidates = [row for row in rows if row["candidates"]]
    judge, weights = regression.crossed(with_candidates), regression.fit(regression.examples(with_candidates))
    curve = curve_of(with_candidates, judge)
    thresholds = chosen_thresholds(with_candidates, judge, curve)
    points = [point(*item) for item in curve]
    fitted: dict[str, object] = {
        "packages": len({row["package"] for row in rows}),
        "states": sum(row["kind"] == STATE for row in rows),
        "after": show(with_candidates, judge, thresholds).figures(),
        "curve": points,
    }
    print("\n".join(map(json.dumps, [weights, *points, thresholds, fitted["after"]])))
    if options.share == 1:
        text = TABLE.sub(lambda _: source(weights, thresholds), TABLE_FILE.read_text("utf-8"), count=1)
        TABLE_FILE.write_text(text, encoding="utf-8")
        result = {"thresholds": thresholds, "aim": AIM, "weights": weights, "parts": {"fitted": fitted}}
        print(f"wrote {TABLE_FILE} and {results_file.write(NAME, result, NAME)}")
    return 0
