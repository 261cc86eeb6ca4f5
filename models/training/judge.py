"""Judge of an adapter's next edits: windows of packages that no training has read, with the adapter and without it.

    python -m models.training.judge --model NAME --set engine.adapter=none --out none.json
    python -m models.training.judge --model NAME --set engine.adapter=ADAPTER --out with.json
    python -m models.training.judge --compare none.json with.json

    follows   the next hunk follows from those before it: right is the whole window, to the letter
    quiet     nothing changes in the window: right is the window as it is

The model's whole answer is judged, by the engine itself, at temperature 0. The product shows the first hunk only, and
only above its gate, so `bench next-edit` has the rates that a user sees. Intervals are paired: both runs draw the same
cases.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import model_options
from benchmarks.editor.edit_replay.release_edits import MORE, files_of, is_held_out
from benchmarks.quality import edits
from benchmarks.quality.scoring import bootstrap
from benchmarks.quality.tasks import packages as corpus
from models.training.data import SEED, digest
from models.training.edit_examples import EditCase, cases_of_file
from speclsp import private_files
from speclsp.cli import terminal
from speclsp.engine.api import Request
from speclsp.errors import InputError, SpeclspError
from speclsp.lsp.backend.edit_prompt import STOPS, expected_answer, format_window

KINDS = {"derivable": "follows", "half-typed": "follows", "unchanged": "quiet"}
CASES = 160  # of each kind
PER_PACKAGE = 24  # of each kind
SPARE_CHARACTERS = 200  # that an answer may have beyond its window


def held_out_cases(packages: Sequence[corpus.Package]) -> list[EditCase]:
    """CASES of each kind, the same on any machine. Raises InputError if there are fewer."""
    import random

    pools: dict[str, list[tuple[str, EditCase]]] = {kind: [] for kind in set(KINDS.values())}
    known = set()
    for package in packages:
        if not is_held_out(package.name) or package.name in known:
            continue
        known.add(package.name)
        cases: dict[str, list[EditCase]] = {kind: [] for kind in pools}
        for path, before, after in files_of(package):
            for case in cases_of_file(path, before, after, random.Random(f"{SEED} judge {package.name} {path}")):
                if case.kind in KINDS:
                    cases[KINDS[case.kind]].append(case)
        for kind, listed in cases.items():
            listed.sort(key=lambda case: digest(case.edit.path, case.edit.window, case.after))
            pools[kind] += [(package.name, case) for case in listed[:PER_PACKAGE]]
    for kind, pool in pools.items():
        pool.sort(key=lambda named: digest(named[0], named[1].edit.path, named[1].edit.window))
        if len(pool) < CASES:
            raise InputError(f"the held-out packages have {len(pool)} windows of the kind {kind!r}, not {CASES}.")
    return [case for kind in sorted(pools) for _, case in pools[kind][:CASES]]


def answers(engine: Any, cases: Sequence[EditCase], show: Any) -> list[dict[str, Any]]:
    """A row for each case: its kind, whether the answer is right, and its time."""
    rows = []
    for number, case in enumerate(cases):
        show(number)
        window = expected_answer(case.edit.window)
        tokens = len(engine.prompter.encode_once(window + "x" * SPARE_CHARACTERS))
        request = Request(raw_prompt=format_window(case.edit), heal=False, max_tokens=tokens, stop=STOPS)
        began_s = perf_counter()
        answer = "".join(piece.text for piece in engine.complete(request, threading.Event()))
        rows.append(
            {
                "case": hashlib.sha256(repr((case.edit, case.after)).encode()).hexdigest()[:12],
                "kind": KINDS[case.kind],
                "right": answer.rstrip("\n") == expected_answer(case.after).rstrip("\n"),
                "alone": answer.rstrip("\n") == window.rstrip("\n"),
                "ms": round((perf_counter() - began_s) * 1e3, 1),
            }
        )
    return rows


def compared(base: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each kind: right answers of both runs, and the difference with its interval. Raises InputError."""
    if [row["case"] for row in base] != [row["case"] for row in other]:
        raise InputError("the two runs have other cases: make both with the same packages and the same code.")
    result = {}
    for kind in sorted({row["kind"] for row in base}):
        base_right, other_right = (
            [float(row["right"]) for row in rows if row["kind"] == kind] for rows in (base, other)
        )
        whole = [1.0] * len(base_right)
        difference = bootstrap.difference((other_right, whole), (base_right, whole), bootstrap.draws(len(base_right)))
        assert difference is not None
        result[kind] = {
            "cases": len(base_right),
            "base": sum(base_right),
            "other": sum(other_right),
            "difference": difference.json(),
        }
    return result


def run(options: argparse.Namespace) -> None:
    """Ask for all cases, write the rows."""
    with terminal.progress() as bar:
        in_python = [package for package in corpus.fetch(listed=MORE) if "python" in package.languages]
        packages = [*corpus.fetch(listed=edits.LIST), *in_python]
        cases = held_out_cases(packages)
        (config,) = model_options.settings(options)
        engine = model_options.engine(config)
        rows = answers(
            engine, cases, lambda number: bar.show("asking", number / len(cases), f"{number} of {len(cases)}")
        )
    private_files.replace(options.out, json.dumps(rows, indent=1).encode(), mode=0o644)
    for kind in sorted(set(KINDS.values())):
        of_kind = [row for row in rows if row["kind"] == kind]
        right, alone = (sum(row[key] for row in of_kind) for key in ("right", "alone"))
        print(f"{kind}: {right} of {len(of_kind)} right, {alone} left alone")
    print(f"median {statistics.median(row['ms'] for row in rows):.0f} ms; wrote {options.out}")


def main(arguments: Sequence[str]) -> int:
    """Exit code 0; 1 with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m models.training.judge", description=__doc__.splitlines()[0])
    model_options.add_arguments(parser)
    parser.add_argument("--out", type=Path, default=Path("judge.json"), help="the rows (default: judge.json)")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BASE", "OTHER"), help="two files of rows")
    options = parser.parse_args(arguments)
    try:
        if options.compare:
            base, other = (json.loads(path.read_text(encoding="utf-8")) for path in options.compare)
            print(json.dumps(compared(base, other), indent=1))
        else:
            run(options)
    except (SpeclspError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
