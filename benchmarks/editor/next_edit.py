"""Next edits against the edits that were really made, between two successive releases of a package.

    python -m benchmarks next-edit [--part held-out|tuning|all] [--examples]
    python -m benchmarks next-edit --producer model      the same states and a model: next_edit_model.py

    older release ─► its differences to the newer one, one after another, top to bottom, through the text store
                 └─► after each: the producer's edit ─► right: every line it writes stands at that place in the newer
                                                        release; exact: it is one whole difference that is still to come
    newer release, one difference made last ─► quiet: nothing is left to change, so no edit is right

Packages whose name has a sha256 that begins with 0, 1, 2 or 3 are held out: the gate was tuned on the others. Top to
bottom is not the order in which people work, so the rates hold for this test only. A change that was offered and not
taken is not offered again before there is more evidence. Times are of the processor. Writes
benchmarks/results/next-edit.json.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from benchmarks import pairs, results_file
from benchmarks.quality import edits
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks import tasks as cursors
from speclsp.cli import terminal
from speclsp.lsp.context.recent_activity import RecentActivity
from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.next_edit.places import Place
from speclsp.lsp.next_edit.producer import PRODUCER, Producer, Proposal
from speclsp.lsp.next_edit.substitutions import Substitution
from speclsp.lsp.syntax.incremental_parse import parse_clock_s

MORE = edits.LIST.with_name("next_edit.toml")  # packages that are held out, in the same form
HELD_OUT = "0123"  # first characters of the sha256 of a package's name
PARTS = ("held-out", "tuning", "all")
MOST_STATES = 40  # of one file
MOST_QUIET = 8  # of one file
URI = "file:///release/"


@dataclass(slots=True)
class Count:
    """Counts and times of one part of the packages."""

    packages: set[str] = field(default_factory=set)
    states: int = 0
    shown: int = 0
    right: int = 0
    exact: int = 0
    quiet_states: int = 0
    quiet: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    right_by_kind: Counter[str] = field(default_factory=Counter)
    ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, object]:
        """The rates, for the summary."""
        times = sorted(self.ms) or [0.0]
        return {
            "packages": len(self.packages),
            "states": self.states,
            "shown": self.shown,
            "right": self.right,
            "exact": self.exact,
            "shown_rate": rate(self.shown, self.states),
            "precision": rate(self.right, self.shown),
            "exact_rate": rate(self.exact, self.states),
            "quiet_states": self.quiet_states,
            "quiet_rate": rate(self.quiet, self.quiet_states),
            "by_kind": {kind: [self.right_by_kind[kind], count] for kind, count in sorted(self.by_kind.items())},
            "ms": {
                "median": round(statistics.median(times), 2),
                "p99": round(times[int(len(times) * 0.99)], 2),
                "most": round(times[-1], 2),
            },
        }


class ReplayedFile:
    """One file of a release, and the edits that lead to the next release."""

    def __init__(self, path: str, before: str, language: str, producer: Producer) -> None:
        self.uri, self.language, self.producer = URI + path, language, producer
        self.activity = RecentActivity(kept_back=lambda uri: False, path=lambda uri: uri, clock=lambda: 0.0)
        documents = Documents()
        documents.follow_edits(self.activity.edited)
        self.document: Document = documents.open(self.uri, language, 1, before)
        self.done: list[edits.Hunk] = []
        self.dropped: dict[Substitution, int] = {}  # offered and not taken, with their evidence at that time

    def make(self, hunk: edits.Hunk) -> int:
        """Make one difference. Returns the offset after it."""
        first = hunk.start + shift(self.done, hunk)
        span = {
            "start": {"line": first, "character": 0},
            "end": {"line": first + hunk.end - hunk.start, "character": 0},
        }
        self.document.apply([{"range": span, "text": "".join(line + "\n" for line in hunk.lines)}], "utf-32")
        self.done.append(hunk)
        return self.document.offset({"line": first + len(hunk.lines), "character": 0}, "utf-32")

    def propose(self, cursor: int, count: Count) -> Proposal | None:
        """The edit that would be shown now."""
        started_s = parse_clock_s()
        proposal = self.producer.propose(
            self.document.text, self.language, self.uri, cursor, self.activity.recent(), self._declined
        )
        count.ms.append((parse_clock_s() - started_s) * 1000)
        if isinstance(proposal, str):
            return None
        self.dropped[proposal.place.substitution] = proposal.place.evidence.times
        return proposal

    def _declined(self, place: Place) -> str:
        return "declined" if self.dropped.get(place.substitution) == place.evidence.times else ""


def shift(done: Sequence[edits.Hunk], hunk: edits.Hunk) -> int:
    """Lines by which the made differences have moved another one."""
    return sum(len(other.lines) - (other.end - other.start) for other in done if other.start < hunk.start)


def verdict(proposal: Proposal, text: str, left: Sequence[edits.Hunk], done: Sequence[edits.Hunk]) -> tuple[bool, bool]:
    """(right, exact) for an edit of `text`, from which the differences `left` lead to the newer release."""
    place = proposal.place
    first, end = text.count("\n", 0, place.start), text.count("\n", 0, place.end) + 1
    old, lines = text[place.start : place.end].split("\n"), tuple(place.new.split("\n"))
    while len(lines) > 1 and old and old[0] == lines[0]:  # a line that stays is not written
        first, old, lines = first + 1, old[1:], lines[1:]
    for hunk in left:
        moved = shift(done, hunk)
        if hunk.start + moved <= first and end <= hunk.end + moved:
            size = len(lines)
            right = any(hunk.lines[at : at + size] == lines for at in range(len(hunk.lines) - size + 1))
            return right, hunk.lines == lines and (hunk.start + moved, hunk.end + moved) == (first, end)
    return False, False


def replay(
    path: str, before: str, after: str, producer: Producer, count: Count
) -> Iterator[tuple[bool, Proposal, str]]:
    """Replay one file into `count`. Yields (right, edit, line before) for each edit that would be shown."""
    language = cursors.LANGUAGES[PurePosixPath(path).suffix]
    hunks = edits.hunks(before, after)
    file = ReplayedFile(path, before, language, producer)
    for number, hunk in enumerate(hunks[: min(len(hunks) - 1, MOST_STATES)]):
        cursor = file.make(hunk)
        count.states += 1
        proposal = file.propose(cursor, count)
        if proposal is not None:
            text = file.document.text
            right, exact = verdict(proposal, text, hunks[number + 1 :], file.done)
            count.shown, count.right, count.exact = count.shown + 1, count.right + right, count.exact + exact
            count.by_kind[proposal.kind] += 1
            count.right_by_kind[proposal.kind] += right
            yield right, proposal, text[proposal.place.start : proposal.place.end]
    for last in edits.drawn(hunks, path, "quiet")[:MOST_QUIET]:
        file = ReplayedFile(path, before, language, producer)
        cursor = [file.make(hunk) for hunk in [*(hunk for hunk in hunks if hunk is not last), last]][-1]
        count.quiet_states += 1
        count.quiet += file.propose(cursor, count) is None


def files_of(package: corpus.Package) -> Iterator[tuple[str, str, str]]:
    """(path, older text, newer text) of each file that the release changed."""
    older, newer = (edits.sources(root, package.folders) for root in (package.before_root, package.root))
    yield from ((path, older[path], text) for path, text in newer.items() if older.get(path, text) != text)


def is_held_out(package: str) -> bool:
    """True if the gate was not tuned on this package."""
    return hashlib.sha256(package.encode()).hexdigest()[0] in HELD_OUT


def rate(part: int, whole: int) -> float | None:
    """A rate with three digits; None for a part of nothing."""
    return round(part / whole, 3) if whole else None


def table(parts: Mapping[str, Mapping[str, object]]) -> str:
    """The rates as a Markdown table."""
    names = ("states", "shown", "right", "exact", "precision", "shown_rate", "quiet_states", "quiet_rate", "ms")
    head = ["| | " + " | ".join(parts) + " |", "|---|" + "---|" * len(parts)]
    rows = [f"| {name} | " + " | ".join(str(figures[name]) for figures in parts.values()) + " |" for name in names]
    return "\n".join(head + rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks next-edit`."""
    parser.add_argument("--part", choices=PARTS, default="all", help="packages to replay (default: all)")
    parser.add_argument("--producer", choices=("rules", "model"), default=PRODUCER, help="(default: rules)")
    parser.add_argument("--states", type=int, default=400, help="model: states of each part (default: 400)")
    parser.add_argument("--quiet", type=int, default=200, help="model: quiet states of each part (default: 200)")
    parser.add_argument("--phrases", action="store_true", help="model: does it agree with the phrases of the rules?")
    parser.add_argument("--rows", type=Path, help="model: its rows, continued (build/benchmarks/next-edit-model.jsonl)")
    pairs.add_arguments(parser)
    parser.add_argument("--examples", action="store_true", help="print the edits that were shown for tuning packages")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    with terminal.progress() as bar:
        packages = [
            package
            for listed in (edits.LIST, MORE)
            for package in corpus.fetch(lambda done, total: bar.show("fetching", done / max(total, 1), ""), listed)
        ]
        if options.producer == "model":
            from benchmarks.editor import next_edit_model

            return next_edit_model.main(options, packages, bar)
        counts = {part: Count() for part in PARTS[:2] if options.part in (part, "all")}
        for number, package in enumerate(packages):
            part = PARTS[0] if is_held_out(package.name) else PARTS[1]
            if part not in counts:
                continue
            bar.show("replaying", number / len(packages), package.name)
            counts[part].packages.add(package.name)
            producer = Producer()
            for path, before, after in files_of(package):
                for right, proposal, line in replay(path, before, after, producer, counts[part]):
                    if options.examples and part == PARTS[1]:
                        print(f"{'right' if right else 'wrong'} {path} {proposal.kind}: {line!r} -> {proposal.text!r}")
    parts = {part: count.figures() for part, count in counts.items()}
    print(table(parts))
    directory = results_file.RESULTS if options.part == "all" else results_file.RAW
    print(f"wrote {results_file.write('next-edit', {'producer': PRODUCER, 'parts': parts}, directory=directory)}")
    return 0
