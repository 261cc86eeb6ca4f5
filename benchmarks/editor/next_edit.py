"""Next edits against the edits that were really made, between two successive releases of a package.

    python -m benchmarks next-edit [--part held-out|tuning|all|blind] [--examples]

    older release ─► its differences to the newer one, one after another, top to bottom, through the text store;
                     an offered edit that is right is accepted, another one is rejected
                 └─► after each: the producer's edit ─► right: every line it writes stands at that place in the newer
                                                        release; exact: it is one whole difference that is still to come
                 └─► the next difference begun: its first line is half typed, up to a place where people pause
    newer release, one difference made last ─► quiet: nothing is left to change, so no edit is right

edit_replay/release_edits.py has the packages and their parts. Top to bottom is not the order in which people work, so
the rates hold for this test only. Times are of the processor. Writes benchmarks/results/next-edit.json, of the blind
part next-edit-blind.json.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks import results_file
from benchmarks.editor.edit_replay.edit_counts import Count
from benchmarks.editor.edit_replay.release_edits import (
    BLIND,
    BLIND_LIST,
    MAX_PACKAGE_STATES,
    MORE,
    PARTS,
    language_of,
    listed_packages,
    replayed,
)
from benchmarks.editor.edit_replay.replay_states import HALF_TYPED, QUIET, STATE, ReplayState, states
from benchmarks.editor.edit_replay.replayed_file import EditProducer, rules
from benchmarks.quality import edits
from speclsp.cli import terminal
from speclsp.lsp.next_edit.producer import PRODUCER, Proposal


def replay(
    path: str, before: str, after: str, producer: EditProducer, count: Count
) -> Iterator[tuple[bool, Proposal, str]]:
    """Replay one file into `count`. Yields (right, edit, text before) for each edit that would be shown."""
    for state in states(path, before, after, producer):
        count.states += state.kind == STATE
        count.half_typed += state.kind == HALF_TYPED
        proposal = state.file.propose(state.cursor, count.ms)
        if state.kind == QUIET:
            count.quiet_states += 1
            count.quiet += proposal is None
        elif proposal is not None:
            yield judged(state, proposal, count)


def judged(state: ReplayState, proposal: Proposal, count: Count) -> tuple[bool, Proposal, str]:
    """Count an edit that would be shown."""
    file = state.file
    text, now, proposed = file.document.text, file.lines(), file.with_edit(proposal)
    right, exact = state.verdict(proposal)
    if state.kind == STATE:
        file.answer(proposal, right)
    count.undoing += undoes(state.earlier, now, proposed)
    if state.kind == HALF_TYPED:
        count.half_typed_shown += 1
        count.half_typed_right += right
    else:
        count.shown, count.right, count.exact = count.shown + 1, count.right + right, count.exact + exact
        count.by_kind[proposal.kind] += 1
        count.right_by_kind[proposal.kind] += right
    return right, proposal, text[proposal.place.start : proposal.place.end]


def undoes(earlier: Sequence[str], now: Sequence[str], proposed: Sequence[str]) -> bool:
    """True if most lines that an edit changes go back to the text before the user's last edits.

    Lines without a letter or digit do not count.
    """
    gone, come = lines_between(earlier, now)
    removed, added = lines_between(now, proposed)
    changed = removed.total() + added.total()
    return bool(changed) and ((removed & come).total() + (added & gone).total()) * 2 > changed


def lines_between(before: Sequence[str], after: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """(lines that went, lines that came)."""
    old, new = (Counter(line.strip() for line in lines if any(map(str.isalnum, line))) for lines in (before, after))
    return old - new, new - old


def measured(options: argparse.Namespace) -> dict[str, dict[str, Count]]:
    """{part: {language: counts}} of the chosen parts."""
    chosen = PARTS[:2] if options.part == "all" else (options.part,)
    counts: dict[str, dict[str, Count]] = {part: {} for part in chosen}
    with terminal.progress() as bar:
        packages = listed_packages(bar, (BLIND_LIST,) if options.part == BLIND else (edits.LIST, MORE))
        for number, (package, part) in enumerate(packages):
            if part not in counts:
                continue
            bar.show("replaying", number / len(packages), package.name)
            producer, states = rules(), 0
            for path, before, after in replayed(package):
                count = counts[part].setdefault(language_of(path, package), Count())
                count.packages.add(package.name)
                states -= count.states
                for right, proposal, line in replay(path, before, after, producer, count):
                    if options.examples and part == PARTS[1]:
                        print(f"{'right' if right else 'wrong'} {path} {proposal.kind}: {line!r} -> {proposal.text!r}")
                states += count.states
                if states >= MAX_PACKAGE_STATES:
                    break
    return counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks next-edit`."""
    parser.add_argument("--part", choices=(*PARTS, BLIND), default="all", help="packages to replay (default: all)")
    parser.add_argument("--examples", action="store_true", help="print the edits that were shown for tuning packages")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    counts = measured(options)
    parts = {
        part: Count.sum(by_language.values()).figures()
        | {"languages": {language: count.figures() for language, count in sorted(by_language.items())}}
        for part, by_language in counts.items()
    }
    print(results_file.as_text(parts))
    directory = results_file.RESULTS if options.part in ("all", BLIND) else results_file.RAW
    name = f"next-edit-{BLIND}" if options.part == BLIND else "next-edit"
    print(f"wrote {results_file.write('next-edit', {'producer': PRODUCER, 'parts': parts}, name, directory)}")
    return 0
