"""Calibration of confidence: the curve's weights and the thresholds that hide a suggestion, computed without a model.

    python -m benchmarks calibration [--model P] [--set full|quick]

Reads the rows that `python -m benchmarks quality` left for a pair: each task's text, the log-probabilities of its
tokens, and whether its first line equals the person's. Fits the few weights of lsp/completion/confidence.py, once on
all packages, and once on each half of them to judge the other half; only the latter is reported. No model runs. Writes
benchmarks/results/calibration-<pair>.json and prints the table for the source.

A threshold also costs users who type through suggestions. `keystrokes --set completion.eagerness=high` measures
that, with these very weights. Without it, or with other weights, "medium" follows from the tasks alone, and the command
prints a notice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from benchmarks import results_file
from speclsp import config as settings_of
from speclsp.errors import InputError
from speclsp.lsp.completion.confidence import (
    confidence,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from benchmarks.quality.calibration.examples import Example, Read, Typing, read
from benchmarks.quality.calibration.fit import TRIED, crossed, fit, quality, reliability, weighed
from benchmarks.quality.calibration.thresholds import WRONG, at_threshold, saved_kept, thresholds

PAIR = "qwen2.5-coder-0.5b-instruct"
NO_TYPING = (
    "typed along: not known for these weights. Paste them, run `python -m benchmarks keystrokes --set "
    "completion.eagerness=high`, and this again."
)
LEAST = 10  # right ones, and wrong ones, that a fit needs


def figures(found: Read, typing: Typing | None = None) -> dict[str, Any]:
    """All figures of the report."""
    examples = found.examples
    right = [example.right for example in examples]
    tried = {name: crossed(examples, names) for name, names in TRIED.items()}
    sure = tried["used"]
    weights = fit(examples)
    followed = typing.followed if typing is not None and typing.weights == weights else []
    levels = thresholds(sure, right, [example.saved for example in examples], followed)
    expected = {
        name: round(sum(shown) / len(shown), 2) if (shown := [p for p in sure if p >= least]) else 0.5
        for name, least in levels.items()
    }
    languages = sorted({example.language for example in examples})
    return {
        "tasks": found.tasks,
        "exact": found.exact,
        "suggested": len(examples),
        "packages": len({example.package for example in examples}),
        "worth_of": {"right": 1, "wrong": -WRONG},
        "weights": weights,
        "wanted": levels,
        "expected": expected,
        "features": {name: quality(column, right) for name, column in tried.items()},
        "at": {
            name: at_threshold(sure, right, least, found.tasks) | {"saved_kept": saved_kept(examples, sure, least)}
            for name, least in levels.items()
        },
        "hiding": {
            f"{part:.0%}": {name: lost(tried[name], examples, part) for name in ("total", "share")}
            for part in (0.05, 0.1, 0.15, 0.2)
        },
        "curve": [at_threshold(sure, right, step / 50, found.tasks) for step in range(48)],
        "reliability": reliability(sure, right),
        "languages": {
            name: {
                "suggested": len(own),
                "said": round(sum(sure[at] for at in own) / len(own), 3),
                "true": round(sum(right[at] for at in own) / len(own), 3),
            }
            for name in languages
            if (own := [at for at, column in enumerate(examples) if column.language == name])
        },
        "later_lines": later_lines(examples, weights, levels),
        "typed_along": {name: typed_along(followed, least) for name, least in levels.items()} if followed else None,
    }


def typed_along(followed: Sequence[tuple[float, int]], least: float) -> dict[str, float | int]:
    """Hidden shares of the suggestions in replayed typing, and of the keys that typed through them."""
    hidden = [keys for p, keys in followed if p < least]
    every = sum(keys for _, keys in followed)
    return {
        "suggestions": len(followed),
        "hidden": round(len(hidden) / len(followed), 4),
        "keys": every,
        "keys_lost": round(sum(hidden) / every, 4) if every else 0.0,
        "hidden_and_never_typed": round(sum(not keys for keys in hidden) / len(hidden), 4) if hidden else 0.0,
    }


def lost(sure: Sequence[float], examples: Sequence[Example], part: float) -> dict[str, float]:
    """Shares of correct suggestions and of saved characters that the least confident `part` of all suggestions has."""
    order = sorted(range(len(sure)), key=lambda at: sure[at])[: int(part * len(sure))]
    right, saved = sum(example.right for example in examples), sum(example.saved for example in examples)
    return {
        "right": round(sum(examples[at].right for at in order) / right, 4),
        "saved": round(sum(examples[at].saved for at in order) / saved, 4),
    }


def later_lines(
    examples: Sequence[Example], table: Mapping[str, float], wanted: Mapping[str, float]
) -> dict[str, dict[str, int]]:
    """Blocks cut before the first line below the threshold: counts of right and wrong lines, and of those cut."""
    by_eagerness = {}
    for name, least in wanted.items():
        counts = {"right": 0, "right_cut": 0, "wrong": 0, "wrong_cut": 0}
        for example in examples:
            shown = weighed(example, table) >= least
            for thoughts, hit in zip(example.later, example.later_right, strict=True):
                shown = shown and (not thoughts or confidence(thoughts, table) >= least)
                counts["right" if hit else "wrong"] += 1
                counts["right_cut" if hit else "wrong_cut"] += not shown
        by_eagerness[name] = counts
    return by_eagerness


def source(summary: Mapping[str, Any], pair: str, name: str) -> str:
    """The lines for CURVES of lsp/confidence.py."""
    judged = summary["features"]["used"]
    rows = [f"        {key}={json.dumps(summary[key])}," for key in ("weights", "wanted", "expected")]
    about = (
        f"    # {date.today()}, {name} set: {summary['suggested']} suggestions from {summary['packages']} packages; "
        "on the\n"
        f"    # half that it is not made from, area under ROC {judged['area']:.2f}, Brier's score {judged['brier']:.2f}"
    )
    return "\n".join([about, f'    "{pair}": Curve(', *rows, "    ),"])


def in_words(summary: Mapping[str, Any]) -> str:
    """The table and curves as text."""
    names = ("least", "shown", "precision", "right_kept", "saved_kept", "worth")
    rows = [
        f"{name:8}" + "".join("-".rjust(12) if row[what] is None else f"{row[what]:>12.3f}" for what in names)
        for name, row in summary["at"].items()
    ]
    head = " " * 8 + "".join(f"{what:>12}" for what in names)
    tried = [f"{name:15} " + "  ".join(f"{k} {v}" for k, v in row.items()) for name, row in summary["features"].items()]
    bins = [f"  said {row['said']:.2f} true {row['true']:.2f} ({row['examples']})" for row in summary["reliability"]]
    typing = f"typed along: {summary['typed_along']}" if summary["typed_along"] else NO_TYPING
    return "\n".join([head, *rows, "", *tried, "", *bins, "", f"later lines: {summary['later_lines']}", typing])


def draw(figure: Figure, data: Mapping[str, Any]) -> None:
    """Plot precision and share shown by threshold, and reliability: the share right by confidence."""
    trade, true = figure.subplots(1, 2)
    curve = [point for point in data["curve"] if point["precision"] is not None]
    least = [point["least"] for point in curve]
    for what, label in (("precision", "right, of those shown"), ("shown", "shown, of all tasks")):
        trade.plot(least, [point[what] for point in curve], label=label)
    for name, point in data["at"].items():
        trade.axvline(point["least"], color=trade.xaxis.label.get_color(), linewidth=1, linestyle=":")
        trade.annotate(name, (point["least"], 1.0), rotation=90, fontsize=8, va="top", ha="right")
    trade.set_xlabel("least confidence that is shown")
    trade.set_ylabel("share")
    trade.set_ylim(0, 1.02)
    trade.set_title("Precision and what is shown")
    trade.legend(fontsize=8)
    confidences = [point["said"] for point in data["reliability"]]
    true.plot([0, 1], [0, 1], color=true.xaxis.label.get_color(), linewidth=1)
    true.plot(confidences, [point["true"] for point in data["reliability"]], marker="o")
    true.set_xlabel("confidence")
    true.set_ylabel("right, of a tenth of the suggestions")
    true.set_title("What was said, and what came true")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--model and --set, as of the run of `python -m benchmarks quality`."""
    parser.add_argument("--model", metavar="NAME", default=PAIR, help=f"model pair (default: {PAIR})")
    parser.add_argument("--set", choices=("quick", "full"), default="full", dest="set_name", help="task set")
    parser.add_argument("--variant", metavar="NAME", default="full", help="of the quality run (default: full)")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    texts = settings_of.cache_dir() / "quality" / "texts" / f"quality-{options.set_name}-{options.model}"
    data = read(texts / f"{options.variant}.jsonl")
    right = sum(example.right for example in data.examples)
    if min(right, len(data.examples) - right) < LEAST:
        raise InputError(
            f"{right} of {len(data.examples)} suggestions are right, and a fit needs {LEAST} of either: more tasks."
        )
    result = figures(data, Typing.read(results_file.RESULTS / f"keystrokes-high-{options.model}.json"))
    print(
        in_words(result),
        "\n\nFor speclsp/lsp/completion/confidence.py:\n",
        source(result, options.model, options.set_name),
        sep="",
    )
    about = {"pair": options.model, "set": options.set_name, "variant": options.variant}
    file = results_file.write("calibration", {**about, **result}, f"calibration-{options.model}")
    print(f"\nwrote {file}")
    return 0
