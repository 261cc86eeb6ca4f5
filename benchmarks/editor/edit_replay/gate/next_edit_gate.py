"""Weights of the gate of next edits, fitted to edits between releases, and its threshold.

    python -m benchmarks next-edit-gate [--record] [--share N]

    candidates.py ─► build/benchmarks/next-edit-gate-PART.jsonl ─► regression.py ─► edit_likelihood.py

Fitted and chosen on the packages of models/training and the tuning packages. The threshold is the lowest one with which
AIM of the shown edits are right, cross-validated by package. `python -m benchmarks next-edit` judges the gate, on
held-out and blind packages. Nothing here has a limit of time. `--record` replays the packages anew: the candidates
change with the producer, and the chains with the gate. It takes about five minutes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results_file
from benchmarks.editor.edit_replay.gate import regression
from benchmarks.editor.edit_replay.gate.candidates import TRAINING, Row, record
from benchmarks.editor.edit_replay.gate.regression import ABOVE, INTERCEPT, Judge, Shown, Weights, show
from benchmarks.editor.edit_replay.release_edits import PARTS
from benchmarks.editor.edit_replay.replay_states import HALF_TYPED, STATE
from speclsp.lsp.next_edit import edit_likelihood as gate

NAME = "next-edit-gate"
FITTED = (TRAINING, PARTS[1])
THRESHOLDS = tuple(step / 50 for step in range(15, 48))
AIM = 0.87  # precision; on other packages it was two points lower
TABLE_FILE = Path(gate.__file__)
TABLE = re.compile(r"(?ms)^THRESHOLD = .*?^(?=# End)")


def rows_of(part: str, *, anew: bool, share: int) -> list[Row]:
    """The recorded states of a part. It is replayed if it has no recording, or `anew`."""
    file = results_file.RAW / f"{NAME}-{part}.jsonl"
    if anew or not file.is_file():
        record(part, file, share)
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def chosen_threshold(curve: Sequence[tuple[float, Shown]], aim: float = AIM) -> float:
    """The lowest threshold with the precision `aim`; the most precise one if none has it."""
    reached = [threshold for threshold, shown in curve if shown.precision >= aim]
    return min(reached) if reached else max(curve, key=lambda item: item[1].precision)[0]


def point(threshold: float, shown: Shown) -> dict[str, object]:
    """One point of the curve."""
    number, right = shown.shown[STATE], shown.right[STATE]
    return {"threshold": threshold, "shown": number, "right": right, "precision": round(shown.precision, 3)}


def source(weights: Weights, threshold: float) -> str:
    """The table of edit_likelihood.py. Weights of 0 are left out."""
    lines = [
        f'    "{name}": {weight},' for name, weight in weights.items() if weight and name not in (INTERCEPT, ABOVE)
    ]
    table = "\n".join(["WEIGHTS: Mapping[str, float] = {", *lines, "}"])
    return f"THRESHOLD = {threshold}\nINTERCEPT = {weights[INTERCEPT]}\n{table}\n"


def curve_of(rows: Sequence[Row]) -> list[tuple[float, Shown]]:
    """The edits that each threshold shows. Each package is judged by the weights of the other folds."""
    judge: Judge = regression.crossed(rows)
    return [(threshold, show(rows, judge, threshold)) for threshold in THRESHOLDS]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks next-edit-gate`."""
    parser.add_argument("--record", action="store_true", help="replay the packages, even where recordings exist")
    parser.add_argument("--share", type=int, default=1, help="replay one of so many packages, and write no table")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    rows = [row for part in FITTED for row in rows_of(part, anew=options.record, share=options.share)]
    states, with_candidates = Counter(row["kind"] for row in rows), [row for row in rows if row["candidates"]]
    curve, weights = curve_of(with_candidates), regression.fit(regression.examples(with_candidates))
    threshold = chosen_threshold(curve)
    points = [point(*item) for item in curve]
    fitted: dict[str, object] = {
        "packages": len({row["package"] for row in rows}),
        "states": states[STATE],
        "half_typed_states": states[HALF_TYPED],
        "after": dict(curve)[threshold].figures(),
        "curve": points,
    }
    print("\n".join(map(json.dumps, [weights, *points, threshold, fitted["after"]])))
    if options.share == 1:
        text = TABLE.sub(lambda _: source(weights, threshold), TABLE_FILE.read_text("utf-8"), count=1)
        TABLE_FILE.write_text(text, encoding="utf-8")
        result = {"threshold": threshold, "aim": AIM, "weights": weights, "parts": {"fitted": fitted}}
        print(f"wrote {TABLE_FILE} and {results_file.write(NAME, result, NAME)}")
    return 0
