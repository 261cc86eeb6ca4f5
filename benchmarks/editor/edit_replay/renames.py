"""Renames made by program: are the other uses of a renamed definition offered, and nothing else?

    python -m benchmarks renames [--part tuning|held-out] [--renames 300] [--members] [--examples]

    definition and all of its uses (rename_truth/) ─► a new name ─► states (rename_states.py), through the text store
                                                                 └─► the producer's edit ─► right: only places of this
                                                                                           definition, the new name

The uses are not those of speclsp's own resolver. Python: the standard library's `symtable` and `ast`. TypeScript, TSX,
JavaScript: rename locations of the TypeScript compiler. Go and Rust, members only: a rule on the text. Other languages
are left out. rename_cases.py has the packages.

Each state is asked within the product's budget, and once more without one (`without_budget`), because the budget ends
sooner on a busy machine. `--examples` prints what is wrong or missing without one. Writes
benchmarks/results/renames.json, of members renames-members.json, of tuning packages another with -tuning.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping

from benchmarks import results_file
from benchmarks.editor.edit_replay import rename_cases
from benchmarks.editor.edit_replay.rename_cases import HELD_OUT, TRUTHS, TUNING, Case
from benchmarks.editor.edit_replay.rename_states import Example, RenameCount, replay
from benchmarks.editor.edit_replay.rename_truth.definition import KINDS, MEMBER
from benchmarks.editor.edit_replay.replayed_file import EditProducer, Rules
from speclsp.cli import terminal
from speclsp.lsp.next_edit.producer import BUDGET_MS, Producer

RENAMES = 300
NO_LIMIT_MS = 10_000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks renames`."""
    parser.add_argument("--part", choices=(HELD_OUT, TUNING), default=HELD_OUT, help="(default: held-out)")
    parser.add_argument("--renames", type=int, default=RENAMES, help=f"(default: {RENAMES})")
    parser.add_argument("--members", action="store_true", help="members of interfaces, records and structs alone")
    parser.add_argument("--examples", action="store_true", help="print what was wrong or missing in tuning packages")


def measured(
    cases: list[Case], bar: terminal.ProgressLine, budget_ms: float, shown: bool = False
) -> dict[tuple[str, str], RenameCount]:
    """{(language, kind): counts}. `shown`: print what is wrong or missing."""
    counts = defaultdict[tuple[str, str], RenameCount](RenameCount)
    producer = warm({case.file.language for case in cases}, budget_ms)
    for number, case in enumerate(cases):
        bar.show("renaming", number / len(cases), case.file.package)
        for example in replay(case, producer, counts[case.file.language, case.definition.kind]):
            if shown:
                print(as_text(case, example))
    return dict(counts)


def warm(languages: set[str], budget_ms: float) -> EditProducer:
    """The rules with the grammars loaded, as the product loads them before the first edit."""
    rules = Producer()
    for language in languages:
        rules.warm_up(language)
    return Rules(rules, budget_ms)


def as_text(case: Case, example: Example) -> str:
    """A wrong or missing edit, on one line."""
    file, definition = case.file, case.definition
    rename = f"{definition.kind} {definition.name} -> {case.new}"
    after = f" => {example.after.strip()}" if example.after else ""
    place = f"{file.package} {file.path}:{example.line}"
    return (
        f"{example.verdict} | {example.state} | {file.language} | {rename} | {place} | {example.before.strip()}{after}"
    )


def figures(counts: Mapping[tuple[str, str], RenameCount]) -> dict[str, object]:
    """The figures of all renames, of each language, and of each kind."""

    def by(index: int) -> dict[str, object]:
        names = sorted({key[index] for key in counts})
        rows = {name: [count for key, count in counts.items() if key[index] == name] for name in names}
        return {name: RenameCount.sum(row).figures() for name, row in rows.items()}

    return {"all": RenameCount.sum(counts.values()).figures(), "languages": by(0), "kinds": by(1)}


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    with terminal.progress() as bar:
        cases = rename_cases.cases(options.part, options.renames, bar, (MEMBER,) if options.members else KINDS)
        counts = measured(cases, bar, BUDGET_MS)
        unlimited = measured(cases, bar, NO_LIMIT_MS, options.examples and options.part == TUNING)
    name = "renames" + "-members" * options.members + "-tuning" * (options.part == TUNING)
    summary = {
        "part": options.part,
        "renames_sha256": rename_cases.checksum(cases),
        "packages": len({case.file.package for case in cases}),
        "ground_truth": {language: TRUTHS[language] for language in sorted({case.file.language for case in cases})},
        **figures(counts),
        "without_budget": figures(unlimited)["all"],
    }
    print(results_file.as_text({key: summary[key] for key in ("all", "languages", "without_budget")}))
    print(f"wrote {results_file.write('renames', summary, name)}")
    return 0
