"""Calibration of confidence: the weights of the curve, fitted to the recording of `python -m benchmarks economy`.

Fits the few weights of lsp/completion/confidence.py, once on all packages, and once on each half of them to judge the
other half; only the latter is reported. `economy` prints the entry for CURVES.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from benchmarks.keystrokes.economy.recording import Recording
from benchmarks.quality.calibration.examples import Example, examples
from benchmarks.quality.calibration.fit import crossed, fit, halves, quality, reliability
from speclsp.errors import InputError
from speclsp.lsp.completion.confidence import QWEN_05B, Curve

LEAST = 10  # right lines, and wrong ones, that a fit needs


def crossed_curves(recordings: Sequence[Recording]) -> dict[str, Curve]:
    """For each package, a curve from the packages of the other half."""
    first, later = examples(recordings)
    half = halves([recording.body.package for recording in recordings])
    curves = [
        Curve(
            first=fit([example for example in first if half[example.package] != fold]),
            later=fit([example for example in later if half[example.package] != fold]),
        )
        for fold in (0, 1)
    ]
    return {package: curves[fold] for package, fold in half.items()}


def calibrate(recordings: Sequence[Recording]) -> dict[str, Any]:
    """The curve of a model, and its quality. Raises InputError where there are too few lines."""
    first, later = examples(recordings)
    if not is_enough(first):
        raise InputError(f"{len(first)} first lines: a fit needs {LEAST} right and {LEAST} wrong ones, so more bodies.")
    fresh = [number for number, example in enumerate(first) if example.weight == 1.0]
    answers, all_sure = [first[number].right for number in fresh], crossed(first)
    sure = [all_sure[number] for number in fresh]
    later_weights = fit(later) if is_enough(later) else dict(QWEN_05B.later)
    curve = Curve(first=fit(first), later=later_weights)
    return {
        "bodies": len(recordings),
        "packages": len({recording.body.package for recording in recordings}),
        "candidates": len(fresh),
        "right": round(sum(answers) / len(answers), 3),
        "first": curve.first,
        "later": curve.later,
        "quality": quality(sure, answers),
        "reliability": reliability(sure, answers),
        "later_lines": quality(crossed(later), [example.right for example in later]) if is_enough(later) else None,
        "languages": by_language([first[number] for number in fresh], sure),
    }


def is_enough(lines: Sequence[Example]) -> bool:
    """True if a fit of these lines is more than chance."""
    right = sum(example.right for example in lines)
    return min(right, len(lines) - right) >= LEAST


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
    judged = summary["quality"]
    rows = [f"        {key}={json.dumps(summary[key])}," for key in ("first", "later")]
    made_of = f"{summary['candidates']} candidates in {summary['bodies']} bodies of {summary['packages']} packages"
    about = (
        f"    # {date.today()}: {made_of};\n    # on the half that it is not made from, "
        f"area under ROC {judged['area']:.2f}, Brier's score {judged['brier']:.2f}"
    )
    return "\n".join([about, f'    "{model}": Curve(', *rows, "    ),"])
