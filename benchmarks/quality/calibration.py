"""How often a suggestion is right that the model was so sure of: the gate's weights and thresholds, by arithmetic.

    python -m benchmarks calibration [--pair P] [--set full|quick]

Takes what `python -m benchmarks quality` left for a pair: each task's text, what the model thought of its tokens, and whether
its first line was what the person wrote. Fits the few weights of lsp/confidence.py, once on all packages, and once on
each half of them to judge the other half; only the latter is reported. Asks no model. Writes
benchmarks/results/calibration-<pair>.json and prints the table for the source.

What a bar costs somebody who types along says `python -m benchmarks keystrokes --set completion.eagerness=high`, made with
these very weights: without it, or with others, "medium" goes by the tasks alone, and the command says so.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import results_file
from speclsp import config as settings_of
from speclsp.errors import InputError
from speclsp.lsp.completion.confidence import (
    MIN_LOGPROB,
    TokenProb,
    confidence,
    lines,
    share_log_odds,
    sigmoid,
    token_spans,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAIR = "qwen2.5-coder-0.5b-instruct"
WRONG = 0.2  # what a wrong suggestion costs, where a right one is worth 1: reading it, and going on
MOST_LOST = 0.01  # of the right suggestions, that "medium" may hide
MOST_SAVED_LOST = 0.02  # the same of the characters that all suggestions save somebody who accepts word by word
MOST_TYPED_LOST = 0.05  # the same of the keys that type a suggestion along
PRECISION_OF_LOW = 0.5  # "low" wants what is right more often than not
NO_TYPING = (
    "typed along: not known for these weights. Paste them, run `python -m benchmarks keystrokes --set "
    "completion.eagerness=high`, and this again."
)
ROUNDED = 0.00005  # of what a trace tells of a confidence
LEAST = 10  # right ones, and wrong ones, that a fit needs
RIDGE = 1.0  # against large weights: as if that much had been seen beside
GROWS = ("share", "total", "worst", "first")  # weights that are not negative: the surer the model, the surer the gate
TRIED: Mapping[str, tuple[str, ...]] = {  # which of them are worth their place
    "mean": ("mean",),
    "share": ("share",),
    "total": ("total",),
    "worst": ("worst",),
    "probabilities": ("total", "worst", "first", "length"),
    "place": ("total", "worst", "blank", "word", "amid"),
    "all": ("share", "total", "worst", "first", "length", "blank", "word", "amid"),
    "share and total": ("share", "total"),
    "used": ("share",),
}
USED = TRIED["used"]


class Place(NamedTuple):
    """Position of the cursor in its line."""

    blank: bool = True  # nothing but blanks before it
    word: bool = False  # right behind a letter, digit or underscore
    amid: bool = False  # text right of it

    @staticmethod
    def of(before: str, after: str) -> Place:
        """From the text of the line on either side of the cursor."""
        return Place(not before.strip(), before[-1:].isalnum() or before[-1:] == "_", bool(after.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A suggestion whose answer is known."""

    package: str
    language: str
    thoughts: tuple[TokenProb, ...]  # of the first line's tokens
    place: Place
    right: bool
    saved: int = 0  # characters that somebody gets of it who accepts word by word
    later: tuple[tuple[TokenProb, ...], ...] = ()  # of each further line's
    later_right: tuple[bool, ...] = ()  # whether all up to this one is right


@dataclass(frozen=True, slots=True)
class Read:
    """What there is to go by."""

    examples: list[Example]  # shown, with probabilities
    tasks: int  # all of them, those with nothing to show too
    exact: int  # of all


@dataclass(frozen=True, slots=True)
class Typing:
    """What became of suggestions in replayed typing where none was hidden."""

    weights: Mapping[str, float]  # that made their confidences
    followed: list[tuple[float, int]]  # confidence, and the keys that typed it along

    @staticmethod
    def read(file: Path) -> Typing | None:
        """Of a run of `python -m benchmarks keystrokes`; None where there is none, or no confidence in it."""
        try:
            told = json.loads(file.read_text(encoding="utf-8"))["confidence"]
        except (FileNotFoundError, KeyError):
            return None
        return told and Typing(told["weights"], [(p, keys) for p, keys in told["followed"]])


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def read(file: Path) -> Read:
    """The rows that `python -m benchmarks quality` left of a variant. Raises InputError."""
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        raise InputError(
            f"{file} is not there: run `python -m benchmarks quality` for that pair and set first."
        ) from None
    made = [one for row in rows if row["judged"]["shown"] and (one := example(row)) is not None]
    return Read(made, len(rows), sum(bool(row["judged"]["exact"]) for row in rows))


def example(row: Mapping[str, Any]) -> Example | None:
    """A row that was shown; None where nothing is known of its tokens."""
    pieces = list(zip(row["characters"], row["logprobs"], strict=True))
    found = list(lines(row["said"], token_spans(pieces)))
    if not found or not found[0].tokens:
        return None
    meant, said = row["written"].split("\n"), row["text"].rstrip().split("\n")
    first = next((at for at, one in enumerate(said) if one.strip()), 0)
    same = [said[: at + 1] == meant[: at + 1] for at in range(first + 1, len(said)) if said[at].strip()]
    later = [one.tokens for one in found[1 : len(same) + 1]]
    return Example(
        package=row["package"],
        language=row["language"],
        thoughts=found[0].tokens,
        place=Place.of(row["line"], row["rest"]),
        right=bool(row["judged"]["exact"]),
        saved=row["judged"]["saved"],
        later=tuple(later),
        later_right=tuple(same[: len(later)]),
    )


# ── the fit ──────────────────────────────────────────────────────────────────────────────────────────────────


def features(tokens: Sequence[TokenProb], place: Place) -> dict[str, float]:
    """All features that a fit may weigh, of a line with at least one token. The product uses "share" alone."""
    logprobs = [min(0.0, max(MIN_LOGPROB, logprob)) for _, logprob in tokens]
    return {
        "intercept": 1.0,
        "share": share_log_odds(tokens),
        "total": sum(logprobs),
        "mean": sum(logprobs) / len(logprobs),
        "worst": min(logprobs),
        "first": logprobs[0],
        "length": math.log(len(logprobs)),
        "blank": float(place.blank),
        "word": float(place.word),
        "amid": float(place.amid),
    }


def fit(examples: Sequence[Example], names: Sequence[str] = USED) -> dict[str, float]:
    """The weights that make these examples likeliest (logistic regression); one that would be negative is left out."""
    import numpy as np

    kept = ["intercept", *names]
    answers = np.array([one.right for one in examples], dtype=float)
    rows = [features(one.thoughts, one.place) for one in examples]
    while True:
        x = np.array([[row[name] for name in kept] for row in rows])
        ridge = RIDGE * np.diag([0.0, *[1.0] * (len(kept) - 1)])
        weights = np.zeros(len(kept))
        for _ in range(50):
            p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
            slope = x.T @ (answers - p) - ridge @ weights
            step = np.linalg.solve((x.T * (p * (1 - p) + 1e-9)) @ x + ridge + 1e-9 * np.eye(len(kept)), slope)
            weights += step
            if np.abs(step).max() < 1e-8:
                break
        found = dict(zip(kept, map(float, weights), strict=True))
        wrong = [name for name in GROWS if found.get(name, 0.0) < 0]
        if not wrong:
            return {name: round(weight, 3) for name, weight in found.items()}
        kept.remove(min(wrong, key=lambda name: found[name]))


def weighed(one: Example, table: Mapping[str, float]) -> float:
    """The confidence in an example."""
    own = features(one.thoughts, one.place)
    return sigmoid(sum(weight * own[name] for name, weight in table.items()))


def crossed(examples: Sequence[Example], names: Sequence[str] = USED) -> list[float]:
    """Each example's confidence, by weights from packages that are not its own."""
    packages = sorted({one.package for one in examples})
    half = {package: number % 2 for number, package in enumerate(packages)}
    tables = [fit([one for one in examples if half[one.package] != fold], names) for fold in (0, 1)]
    return [weighed(one, tables[half[one.package]]) for one in examples]


def quality(sure: Sequence[float], right: Sequence[bool]) -> dict[str, float]:
    """How good confidences are: log loss and Brier's score (less is better), and the area under the ROC curve."""
    n = len(sure)
    loss = -sum(math.log(max(1e-9, p if hit else 1 - p)) for p, hit in zip(sure, right, strict=True)) / n
    brier = sum((p - hit) ** 2 for p, hit in zip(sure, right, strict=True)) / n
    order = sorted(range(n), key=lambda at: sure[at])
    hits, below = sum(right), 0.0
    seen = 0
    for at in order:
        below += seen if right[at] else 0
        seen += not right[at]
    area = below / (hits * (n - hits)) if 0 < hits < n else math.nan
    return {"log_loss": round(loss, 4), "brier": round(brier, 4), "area": round(area, 4)}


def reliability(sure: Sequence[float], right: Sequence[bool], bins: int = 10) -> list[dict[str, float]]:
    """Bins of as many examples each: what was said, and what came true."""
    order = sorted(range(len(sure)), key=lambda at: sure[at])
    made = []
    for number in range(bins):
        own = order[len(order) * number // bins : len(order) * (number + 1) // bins]
        if own:
            said, true = sum(sure[at] for at in own) / len(own), sum(right[at] for at in own) / len(own)
            made.append({"said": round(said, 3), "true": round(true, 3), "examples": len(own)})
    return made


# ── the thresholds ───────────────────────────────────────────────────────────────────────────────────────────


def at_threshold(sure: Sequence[float], right: Sequence[bool], least: float, tasks: int) -> dict[str, float | None]:
    """What is shown where less is not; None where there is nothing to divide by."""
    shown = [hit for p, hit in zip(sure, right, strict=True) if p >= least]
    hits, every = sum(shown), sum(right)
    return {
        "least": round(least, 3),
        "shown": round(len(shown) / tasks, 4),
        "shown_of_suggested": round(len(shown) / len(sure), 4),
        "precision": round(hits / len(shown), 4) if shown else None,
        "right_kept": round(hits / every, 4) if every else None,
        "worth": round((hits - WRONG * (len(shown) - hits)) / tasks, 4),
    }


def saved_kept(examples: Sequence[Example], sure: Sequence[float], least: float) -> float | None:
    """Of the characters that suggestions save, those of the ones that are shown."""
    every = sum(one.saved for one in examples)
    return (
        round(sum(one.saved for one, p in zip(examples, sure, strict=True) if p >= least) / every, 4) if every else None
    )


def thresholds(
    sure: Sequence[float],
    right: Sequence[bool],
    saved: Sequence[int],
    followed: Sequence[tuple[float, int]] = (),
) -> dict[str, float]:
    """For "medium", the most that hides nothing worth showing, few right ones, little of what others would save and,
    of suggestions in replayed typing (confidence, keys that typed it along), little that is typed along; for "low",
    what is right often enough."""
    most = [WRONG / (1 + WRONG)]
    for of, share in (([float(hit) for hit in right], MOST_LOST), ([float(one) for one in saved], MOST_SAVED_LOST)):
        most.append(bar(sure, of, share))
    told = [one - ROUNDED for one, _ in followed]  # as it was at the least
    most.append(bar(told, [float(keys) for _, keys in followed], MOST_TYPED_LOST))
    medium = max(0, math.floor(min(most) * 1000)) / 1000
    grid = [step / 100 for step in range(1, 100)]
    low = next((at for at in grid if at > medium and precision(sure, right, at) >= PRECISION_OF_LOW), 0.99)
    return {"low": low, "medium": medium, "high": 0.0}


def bar(sure: Sequence[float], worth: Sequence[float], share: float) -> float:
    """The most that may be wanted before more than `share` of all that is worth something is hidden."""
    lost = 0.0
    for p, one in sorted(zip(sure, worth, strict=True)):
        lost += one
        if lost > share * sum(worth):
            return p
    return 1.0


def precision(sure: Sequence[float], right: Sequence[bool], least: float) -> float:
    """How many of those shown are right."""
    shown = [hit for p, hit in zip(sure, right, strict=True) if p >= least]
    return sum(shown) / len(shown) if shown else 1.0


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────


def figures(found: Read, typing: Typing | None = None) -> dict[str, Any]:
    """All that is to be said."""
    examples = found.examples
    right = [one.right for one in examples]
    tried = {name: crossed(examples, names) for name, names in TRIED.items()}
    sure = tried["used"]
    weights = fit(examples)
    followed = typing.followed if typing is not None and typing.weights == weights else []
    wanted = thresholds(sure, right, [one.saved for one in examples], followed)
    expected = {
        name: round(sum(shown) / len(shown), 2) if (shown := [p for p in sure if p >= least]) else 0.5
        for name, least in wanted.items()
    }
    languages = sorted({one.language for one in examples})
    return {
        "tasks": found.tasks,
        "exact": found.exact,
        "suggested": len(examples),
        "packages": len({one.package for one in examples}),
        "worth_of": {"right": 1, "wrong": -WRONG},
        "weights": weights,
        "wanted": wanted,
        "expected": expected,
        "features": {name: quality(one, right) for name, one in tried.items()},
        "at": {
            name: at_threshold(sure, right, least, found.tasks) | {"saved_kept": saved_kept(examples, sure, least)}
            for name, least in wanted.items()
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
            if (own := [at for at, one in enumerate(examples) if one.language == name])
        },
        "later_lines": later_lines(examples, weights, wanted),
        "typed_along": {name: typed_along(followed, least) for name, least in wanted.items()} if followed else None,
    }


def typed_along(followed: Sequence[tuple[float, int]], least: float) -> dict[str, float | int]:
    """Of the suggestions in replayed typing, and of the keys that typed them along: what is hidden."""
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
    """Of what is right and of what is saved, the shares that go with the least sure `part` of all suggestions."""
    order = sorted(range(len(sure)), key=lambda at: sure[at])[: int(part * len(sure))]
    right, saved = sum(one.right for one in examples), sum(one.saved for one in examples)
    return {
        "right": round(sum(examples[at].right for at in order) / right, 4),
        "saved": round(sum(examples[at].saved for at in order) / saved, 4),
    }


def later_lines(
    examples: Sequence[Example], table: Mapping[str, float], wanted: Mapping[str, float]
) -> dict[str, dict[str, int]]:
    """Of blocks that are cut before the first line which is not sure enough: what of the right and the wrong is cut."""
    made = {}
    for name, least in wanted.items():
        counts = {"right": 0, "right_cut": 0, "wrong": 0, "wrong_cut": 0}
        for one in examples:
            shown = weighed(one, table) >= least
            for thoughts, hit in zip(one.later, one.later_right, strict=True):
                shown = shown and (not thoughts or confidence(thoughts, table) >= least)
                counts["right" if hit else "wrong"] += 1
                counts["right_cut" if hit else "wrong_cut"] += not shown
        made[name] = counts
    return made


def source(told: Mapping[str, Any], pair: str, name: str) -> str:
    """The lines for CURVES of lsp/confidence.py."""
    judged = told["features"]["used"]
    rows = [f"        {key}={json.dumps(told[key])}," for key in ("weights", "wanted", "expected")]
    about = (
        f"    # {date.today()}, {name} set: {told['suggested']} suggestions from {told['packages']} packages; on the\n"
        f"    # half that it is not made from, area under ROC {judged['area']:.2f}, Brier's score {judged['brier']:.2f}"
    )
    return "\n".join([about, f'    "{pair}": Curve(', *rows, "    ),"])


def in_words(told: Mapping[str, Any]) -> str:
    """What the person reads."""
    names = ("least", "shown", "precision", "right_kept", "saved_kept", "worth")
    rows = [
        f"{name:8}" + "".join("-".rjust(12) if one[what] is None else f"{one[what]:>12.3f}" for what in names)
        for name, one in told["at"].items()
    ]
    head = " " * 8 + "".join(f"{what:>12}" for what in names)
    tried = [f"{name:15} " + "  ".join(f"{k} {v}" for k, v in one.items()) for name, one in told["features"].items()]
    bins = [f"  said {one['said']:.2f} true {one['true']:.2f} ({one['examples']})" for one in told["reliability"]]
    typing = f"typed along: {told['typed_along']}" if told["typed_along"] else NO_TYPING
    return "\n".join([head, *rows, "", *tried, "", *bins, "", f"later lines: {told['later_lines']}", typing])


def draw(figure: Figure, data: Mapping[str, Any]) -> None:
    """What is shown and what of it is right, by what is wanted; and what came true of what was said."""
    trade, true = figure.subplots(1, 2)
    curve = [one for one in data["curve"] if one["precision"] is not None]
    least = [one["least"] for one in curve]
    for what, label in (("precision", "right, of those shown"), ("shown", "shown, of all tasks")):
        trade.plot(least, [one[what] for one in curve], label=label)
    for name, one in data["at"].items():
        trade.axvline(one["least"], color=trade.xaxis.label.get_color(), linewidth=1, linestyle=":")
        trade.annotate(name, (one["least"], 1.0), rotation=90, fontsize=8, va="top", ha="right")
    trade.set_xlabel("least confidence that is shown")
    trade.set_ylabel("share")
    trade.set_ylim(0, 1.02)
    trade.set_title("Precision and what is shown")
    trade.legend(fontsize=8)
    said = [one["said"] for one in data["reliability"]]
    true.plot([0, 1], [0, 1], color=true.xaxis.label.get_color(), linewidth=1)
    true.plot(said, [one["true"] for one in data["reliability"]], marker="o")
    true.set_xlabel("confidence")
    true.set_ylabel("right, of a tenth of the suggestions")
    true.set_title("What was said, and what came true")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--pair and --set, as of the run of `python -m benchmarks quality`."""
    parser.add_argument("--pair", metavar="NAME", default=PAIR, help=f"model pair (default: {PAIR})")
    parser.add_argument("--set", choices=("quick", "full"), default="full", dest="set_name", help="task set")
    parser.add_argument("--variant", metavar="NAME", default="full", help="of the quality run (default: full)")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    texts = settings_of.cache_dir() / "quality" / "texts" / f"quality-{options.set_name}-{options.pair}"
    found = read(texts / f"{options.variant}.jsonl")
    right = sum(one.right for one in found.examples)
    if min(right, len(found.examples) - right) < LEAST:
        raise InputError(
            f"{right} of {len(found.examples)} suggestions are right, and a fit needs {LEAST} of either: more tasks."
        )
    made = figures(found, Typing.read(results_file.RESULTS / f"keystrokes-high-{options.pair}.json"))
    print(
        in_words(made),
        "\n\nFor speclsp/lsp/completion/confidence.py:\n",
        source(made, options.pair, options.set_name),
        sep="",
    )
    about = {"pair": options.pair, "set": options.set_name, "variant": options.variant}
    file = results_file.write("calibration", {**about, **made}, f"calibration-{options.pair}")
    print(f"\nwrote {file}")
    return 0
