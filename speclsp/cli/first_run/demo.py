"""`speclsp demo`: shows a real completion as in an editor, then proves that speculation changed its time only.

The last line on stdout is one JSON object with the figures; the lines above it are for people.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclsp.cli import measure, terminal
from speclsp.cli.complete import answers, own_model, positions
from speclsp.cli.terminal import streams
from speclsp.config import Config
from speclsp.errors import InputError

PACKAGE = Path(__file__).resolve().parents[2]
EXAMPLES = PACKAGE / "examples" if (PACKAGE / "examples").is_dir() else PACKAGE.parent / "examples"
HOLE, OTHER_HOLE = "settings_reader.py", "geometry.py"


def main(config: Config, hole: Path | None = None, repeats: int = 3) -> int:
    """Show and compare; 0 when plain and speculative decoding gave the same tokens, else 1. Raises SpeclspError."""
    file = hole or example(HOLE)
    warm_up = example(OTHER_HOLE) if file.name != OTHER_HOLE else example(HOLE)
    prepared, before = hole_in(file, config), hole_in(warm_up, config)
    snapshot = prepared.snapshot

    with terminal.progress() as bar:
        completer, _ = own_model.open_engine(config, bar)
        bar.step(0.0, "warming up on another example")
        for speculate in (False, True):
            measure.complete_once(
                completer, replace(before.request, speculate=speculate, session=f"warm-up-{speculate}")
            )
        bar.step(1.0, "warming up on another example")
    about = answers.about(completer)
    line = snapshot.text.count("\n", 0, snapshot.cursor) + 1
    print(f"\nspeclsp completes {file.name}, line {line}, with {in_words(about)}\n")
    shown = answers.answer(completer, prepared)
    if not shown.text:
        why = shown.reason.meaning if shown.reason else "no text"
        raise InputError(f"{about['model']} suggests nothing at the mark of {file}: {why}.")

    before_it, after_it = snapshot.text[: snapshot.cursor], snapshot.text[snapshot.cursor :]
    print(terminal.code_at_cursor(before_it, shown.text, after_it, streams.coloured(sys.stdout)))
    with terminal.progress() as bar:
        bar.step(0.0, "measuring")
        slowly = answers.answer(completer, replace(prepared, request=replace(prepared.request, speculate=False)))
        tokens = len(slowly.result.tokens)  # to where the suggestion ends: a plain step never brings more than it needs
        comparison = measure.compare(completer, prepared.request, repeats, tokens, bar.step)
    numbers = measure.facts(comparison)
    numbers["identical"] = numbers["identical"] and slowly.text == shown.text
    print("\n" + table(numbers))
    sys.stdout.flush()
    print(json.dumps({"suggestion": shown.text, **about, **numbers}))
    return 0 if numbers["identical"] else 1


def hole_in(path: Path, config: Config) -> answers.CompletionPoint:
    """The completion point at a file's mark. Raises InputError when nothing can be completed there."""
    point = answers.prepare(positions.at_mark(path, config.context.max_file_bytes), config)
    if isinstance(point, answers.CompletionPoint):
        return point
    raise InputError(f"{path} cannot be completed at its mark: {point.reason.meaning}.")


def example(name: str) -> Path:
    """A bundled example: in examples/ of a checkout, in speclsp/examples of an installed wheel. Raises InputError."""
    path = EXAMPLES / name
    if not path.is_file():
        raise InputError(f"{path} is missing: install speclsp again, or name a file with a `# <cursor>` mark.")
    return path


def in_words(about: Mapping[str, object]) -> str:
    """ "qwen2.5-coder-1.5b-instruct drafted by qwen2.5-coder-0.5b-instruct on cpu (2 threads)"."""
    drafter = f"n-grams and {about['draft']}" if about["draft"] else "n-grams of the text"
    return f"{about['target']}, drafted by {drafter}, on {about['device']}"


ROWS = (  # name, key in the figures of a way, format
    ("rounds", "rounds", "{}"),
    ("tokens per round", "tokens_per_round", "{:.2f}"),
    ("drafted", "drafted_tokens", "{}"),
    ("accepted", "accepted_tokens", "{}"),
    ("time to first token", "ttft_ms", "{:.0f} ms"),
    ("decoding", "decode_ms", "{:.0f} ms"),
    ("per token", "ms_per_token", "{:.1f} ms"),
    ("whole answer", "total_ms", "{:.0f} ms"),
)


def table(numbers: Mapping[str, Any]) -> str:
    """A table of both ways of decoding, side by side."""
    ways = ("plain", "speculative")
    rows = [[name, *(form.format(numbers[way][key]) for way in ways)] for name, key, form in ROWS]
    speed_ups = f"decoding {numbers['decode_speed_up']:.2f} x, whole answer {numbers['total_speed_up']:.2f} x"
    same = "identical" if numbers["identical"] else "DIFFERENT: this is a bug, please report it"
    return (
        f"Medians of {numbers['repeats']} alternating runs each, without a cached prompt:\n"
        f"{terminal.aligned([['', *ways], *rows], right={1, 2})}\n"
        f"speed-up: {speed_ups}\ntext and tokens: {same}"
    )
