"""Calibration of confidence: the weights of the curve, fitted to the recording of `python -m benchmarks economy`.

    python -m benchmarks calibration [--model P] [--bodies N]

Fits the few weights of lsp/completion/confidence.py, once on all packages, and once on each half of them to judge the
other half; only the latter is reported. A recording that is missing is made first. Writes
benchmarks/results/calibration-<model>.json and prints the entry for CURVES. The costs in COSTS are chosen by `economy`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.keystrokes.economy.bodies import bodies
from benchmarks.keystrokes.economy.economy import USUAL_BODIES
from benchmarks.keystrokes.economy.policies import judge
from benchmarks.keystrokes.economy.recording import Recording, record
from benchmarks.keystrokes.economy.typing import SETTINGS
from benchmarks.quality.calibration.examples import Example, examples
from benchmarks.quality.calibration.fit import TRIED, USED, crossed, fit, quality, reliability
from benchmarks.quality.tasks import packages as corpus
from speclsp.cli import terminal
from speclsp.errors import InputError
from speclsp.lsp.completion.confidence import COSTS, DEFAULT, Curve, best_lines
from speclsp.weights import auto_choice

LEAST = 10  # right lines, and wrong ones, that a fit needs


def calibrate(recordings: Sequence[Recording]) -> dict[str, Any]:
    """All figures of the report. Raises InputError where there are too few lines."""
    first, later = examples(recordings)
    if not is_enough(first):
        raise InputError(f"{len(first)} first lines: a fit needs {LEAST} right and {LEAST} wrong ones, so more bodies.")
    fresh = [number for number, example in enumerate(first) if example.weight == 1.0]
    answers = [first[number].right for number in fresh]
    columns = {name: at(crossed(first, names), fresh) for name, names in TRIED.items()}
    used = columns["used"]
    later_weights = fit(later, USED) if is_enough(later) else dict(DEFAULT.later)
    curve = Curve(first=fit(first, USED), later=later_weights, expected=0.5)
    return {
        "bodies": len(recordings),
        "packages": len({recording.body.package for recording in recordings}),
        "candidates": len(fresh),
        "right": round(sum(answers) / len(answers), 3),
        "first": curve.first,
        "later": curve.later,
        "expected": expected(recordings, curve),
        "features": {name: quality(column, answers) for name, column in columns.items()},
        "reliability": reliability(used, answers),
        "later_lines": quality(crossed(later, USED), [example.right for example in later])
        if is_enough(later)
        else None,
        "languages": by_language([first[number] for number in fresh], used),
    }


def is_enough(lines: Sequence[Example]) -> bool:
    """True if a fit of these lines is more than chance."""
    right = sum(example.right for example in lines)
    return min(right, len(lines) - right) >= LEAST


def expected(recordings: Sequence[Recording], curve: Curve) -> float:
    """The mean confidence of the new candidates that "medium" shows."""
    shown = [
        values[0].confidence
        for recording in recordings
        for position, values in judge(recording, curve).items()
        if not recording.rows[position]["typed"] and best_lines(values, COSTS["medium"])
    ]
    return round(sum(shown) / len(shown), 2) if shown else 0.5


def at(column: Sequence[float], numbers: Sequence[int]) -> list[float]:
    """The entries of a column with these numbers."""
    return [column[number] for number in numbers]


def by_language(lines: Sequence[Example], sure: Sequence[float]) -> dict[str, Any]:
    """For each language, the mean confidence and the share that was right."""
    rows = {}
    for language in sorted({example.language for example in lines}):
        own = [number for number, example in enumerate(lines) if example.language == language]
        rows[language] = {
            "candidates": len(own),
            "said": round(sum(sure[number] for number in own) / len(own), 3),
            "true": round(sum(lines[number].right for number in own) / len(own), 3),
        }
    return rows


def source(summary: Mapping[str, Any], model: str) -> str:
    """The lines for CURVES of lsp/completion/confidence.py."""
    judged = summary["features"]["used"]
    rows = [f"        {key}={json.dumps(summary[key])}," for key in ("first", "later", "expected")]
    made_of = f"{summary['candidates']} candidates in {summary['bodies']} bodies of {summary['packages']} packages"
    about = (
        f"    # {date.today()}: {made_of};\n    # on the half that it is not made from, "
        f"area under ROC {judged['area']:.2f}, Brier's score {judged['brier']:.2f}"
    )
    return "\n".join([about, f'    "{model}": Curve(', *rows, "    ),"])


def in_words(summary: Mapping[str, Any]) -> str:
    """The comparison of features, and the reliability, as text."""
    tried = [f"{name:16} " + "  ".join(f"{k} {v}" for k, v in row.items()) for name, row in summary["features"].items()]
    bins = [f"  said {row['said']:.2f} true {row['true']:.2f} ({row['examples']})" for row in summary["reliability"]]
    return "\n".join([*tried, "", *bins, "", f"later lines: {summary['later_lines']}"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--model, --set and --bodies, as of `python -m benchmarks economy`."""
    model_options.add_arguments(parser)
    parser.add_argument(
        "--bodies", metavar="N", type=int, default=USUAL_BODIES, help=f"bodies (default: {USUAL_BODIES})"
    )


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    for config in model_options.settings(options, SETTINGS):
        model = auto_choice.auto(config)[0].name
        with terminal.progress() as bar:
            packages = corpus.fetch(lambda done, total, bar=bar: bar.bytes(done, total, "fetching packages"))  # type: ignore[misc]
            recordings = record(config, bodies(packages, options.bodies))
        result = calibrate(recordings)
        print(in_words(result), "\n\nFor speclsp/lsp/completion/confidence.py:\n", source(result, model), sep="")
        print(f"\nwrote {results_file.write('calibration', {'pair': model, **result}, f'calibration-{model}')}")
    return 0
