"""Walks through real code, edited by hand: is what a careful user wants next offered, and nothing wrong?

    python -m benchmarks next-edit-walks [--before RESULT]

tests/unit/lsp/next_edit/walks/real-*.txt has the walks, written without regard to what the product offers. After the
user's edits the offer is compared with the wanted edits, in any order; an offer that is none of them is wrong and ends
the walk. A wanted edit that is not offered is made by hand. Writes benchmarks/results/next-edit-walks.json.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

from support.lsp.edit_walks import NEXT, Walk, Walker, walks

from benchmarks import results_file
from benchmarks.editor.edit_replay.edit_counts import rate
from speclsp.lsp.syntax.grammars import known_id


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks next-edit-walks`."""
    parser.add_argument("--before", type=Path, help="an earlier result, to be kept beside this one and later ones")


def counted(walk: Walk) -> Counter[str]:
    """The counts of one walk. `first`: 1 if something right is offered at the first place where something is wanted."""
    walker, wrong = Walker(replace(walk, missing="counted here")), 0
    try:
        walker.go()
    except AssertionError:
        wrong = 1
    right, wanted = sum(walker.offered), any(step.action == NEXT for step in walk.steps)
    first = wanted and walker.offered[:1] == [True]
    print(walk.row, known_id(walk.file), walk.title, *("+" if item else "-" for item in walker.offered), "!" * wrong)
    return Counter(walks=1, wanted=wanted, first=first, offers=right + wrong, right=right)


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    rows: dict[str, Counter[str]] = {"all": Counter()}
    for walk in [walk for walk in walks() if walk.source]:
        rows.setdefault(walk.row, Counter()).update(counts := counted(walk))
        rows["all"].update(counts)
    figures = {name: {**counts, "precision": rate(counts["right"], counts["offers"])} for name, counts in rows.items()}
    print(json.dumps(figures, indent=1))
    file = options.before or results_file.RESULTS / "next-edit-walks.json"
    earlier = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    before = {name: earlier[name] for name in ("commit", "rows")} if options.before else earlier.get("before")
    summary = {"rows": figures, "before": before}
    print(f"wrote {results_file.write('next-edit-walks', summary)}")
    return 0
