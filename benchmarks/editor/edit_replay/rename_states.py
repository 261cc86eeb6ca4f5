"""States of one rename, the edit that would be shown in each, and the verdict on it.

    first         only the definition is renamed, and edit after edit is accepted: a walk to the end, or to a wrong edit
    all but one   every other place is renamed one after another, and the one that is left is wanted
    quiet         every place is renamed, and no edit is right: at the last one, and at other variables of this name

An edit is right if it writes the new name over one or more of the places that are left, and changes nothing else. Of a
member that a pattern binds by its own name, the variable may be renamed with it: then its uses are places too.
Places in the documentation of a parameter may be changed and need not: right if offered, not counted as missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from benchmarks.editor.edit_replay.edit_counts import rate, summed
from benchmarks.editor.edit_replay.rename_cases import Case
from benchmarks.editor.edit_replay.rename_truth.definition import Use
from benchmarks.editor.edit_replay.replayed_file import EditProducer, ReplayedFile
from benchmarks.quality import edits
from speclsp.lsp.next_edit.producer import Proposal
from speclsp.lsp.syntax.incremental_parse import parse_clock_s

MAX_LEFT = 5  # places of one rename that are left in turn
MAX_OTHERS = 3  # other variables of the old name that the cursor is put at
MAX_IN_EDIT = 8  # places in one edit of which some may stay


@dataclass(slots=True)
class RenameCount:
    """Counts and times of renames."""

    renames: int = 0
    uses: int = 0  # in walks
    uses_offered: int = 0
    walks_finished: int = 0  # in which every use was offered
    offers: int = 0
    right: int = 0
    left: int = 0  # states of all but one
    left_offered: int = 0
    left_right: int = 0
    quiet_states: int = 0
    quiet: int = 0
    rules: Counter[str] = field(default_factory=Counter)  # kinds of the offered edits
    ms: list[float] = field(default_factory=list)

    @staticmethod
    def sum(counts: Iterable[RenameCount]) -> RenameCount:
        """All counts together."""
        return summed(RenameCount(), counts)

    def figures(self) -> dict[str, object]:
        """The rates, for the summary."""
        times = sorted(self.ms) or [0.0]
        offers, right = self.offers + self.left_offered, self.right + self.left_right
        return {
            "renames": self.renames,
            "first": {
                "uses": self.uses, "offered": self.uses_offered, "offers": self.offers, "right": self.right,
                "finished": self.walks_finished,
            },
            "all_but_one": {"states": self.left, "offered": self.left_offered, "right": self.left_right},
            "offered_rate": rate(self.left_offered, self.left),
            "precision": rate(right, offers),
            "quiet": [self.quiet, self.quiet_states],
            "rules": dict(sorted(self.rules.items())),
            "ms": {"p50": round(times[len(times) // 2], 2), "p99": round(times[int(len(times) * 0.99)], 2)},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Example:
    """An edit that was wrong, or a state without one."""

    state: str
    verdict: str  # "wrong" | "missing"
    line: int  # of the edit, or of the use, from 1
    before: str
    after: str


class RenamedFile(ReplayedFile):
    """One file while a name in it is renamed. Places keep their first offsets."""

    def __init__(self, case: Case, producer: EditProducer, count: RenameCount) -> None:
        super().__init__(case.file.path, case.file.text, case.file.language, producer)
        self.case, self.count = case, count
        self.definition = Use(case.definition.start)
        self.left = {self.definition, *case.definition.uses, *map(Use, case.definition.documented)}
        starts = {use.start for use in case.definition.uses}  # of both, the member and its variable: no suffix
        for use in [use for use in case.definition.uses if use.bound]:
            bound = {Use(other.start) if other.start in starts else other for other in use.bound}
            self.left |= {Use(use.start, bound=use.bound), *bound}
        self.renamed: set[Use] = set()

    def written(self, use: Use) -> str:
        """The text that a rename writes over a place."""
        return use.prefix + self.case.new + use.suffix

    def now(self, start: int) -> int:
        """The present offset of a first one."""
        growth = (len(self.written(use)) - len(self.case.definition.name) for use in self.renamed if use.start < start)
        return start + sum(growth)

    def write(self, start: int, end: int, text: str) -> int:
        """Replace characters as one edit. Returns the offset after them."""
        span = {"start": self.document.position(start, "utf-32"), "end": self.document.position(end, "utf-32")}
        self.document.apply([{"range": span, "text": text}], "utf-32")
        return start + len(text)

    def rename(self, use: Use) -> int:
        """Write the new name at a place. Returns the offset after the name."""
        start = self.now(use.start)
        end = self.write(start, start + len(self.case.definition.name), self.written(use))
        self._note([use])
        return end - len(use.suffix)

    def accept(self, proposal: Proposal, places: Iterable[Use]) -> int:
        """Apply an edit that changes these places. Returns the offset after it."""
        end = self.write(proposal.start, proposal.end, proposal.text)
        self._note(places)
        return end

    def _note(self, places: Iterable[Use]) -> None:
        self.renamed |= {*places}
        starts = {place.start for place in self.renamed}
        starts |= {use.start for place in places if place.suffix for use in place.bound}
        self.left = {use for use in self.left if use.start not in starts}

    def offer(self, cursor: int) -> Proposal | None:
        """The edit that would be shown at `cursor`, whatever was shown before."""
        started_s = parse_clock_s()
        proposal = self.producer.propose(self.document, self.activity, cursor, lambda place: "")
        self.count.ms.append((parse_clock_s() - started_s) * 1000)
        if proposal is not None:
            self.count.rules[proposal.kind] += 1
        return proposal

    def rename_each(self, uses: Sequence[Use]) -> int:
        """Rename places one after another. Returns the offset after the last name.

        The editor asks after the first one, so that the document has been parsed.
        """
        cursor = self.rename(uses[0])
        self.producer.propose(self.document, self.activity, cursor, lambda place: "")
        for use in uses[1:]:
            cursor = self.rename(use)
        return cursor

    def places_of(self, proposal: Proposal) -> tuple[Use, ...]:
        """The places that an edit renames; none if it changes anything else or is not whole."""
        text, length = self.document.text, len(self.case.definition.name)
        proposed = text[: proposal.start] + proposal.text + text[proposal.end :]
        near = sorted(
            use
            for use in self.left
            if self.now(use.start) <= proposal.end and proposal.start <= self.now(use.start) + length
        )
        sizes = range(len(near), 0, -1) if len(near) <= MAX_IN_EDIT else [len(near)]
        for size in sizes:
            for places in combinations(near, size):
                if self._with(text, places) == proposed:
                    return places
        return ()

    def _with(self, text: str, places: Sequence[Use]) -> str:
        for use in reversed(places):
            start = self.now(use.start)
            text = text[:start] + self.written(use) + text[start + len(self.case.definition.name) :]
        return text

    def example(self, state: str, verdict: str, proposal: Proposal | None, use: Use) -> Example:
        """A wrong edit, or the line of a use that was not offered."""
        text = self.document.text
        start = self.now(use.start) if proposal is None else proposal.start
        line = text.count("\n", 0, start)
        after = "" if proposal is None else self.with_edit(proposal)[line]
        return Example(state, verdict, line + 1, text.split("\n")[line], after)


def replay(case: Case, producer: EditProducer, count: RenameCount) -> Iterator[Example]:
    """Every state of one rename, counted in `count`. Yields what was wrong or missing."""
    count.renames += 1
    yield from walk(case, producer, count)
    yield from all_but_one(case, producer, count)
    yield from quiet(case, producer, count)


def walk(case: Case, producer: EditProducer, count: RenameCount) -> Iterator[Example]:
    """Only the definition is renamed, and each right edit is accepted."""
    file, uses = RenamedFile(case, producer, count), {*case.definition.uses}
    cursor = file.rename(file.definition)
    count.uses += len(uses)
    while (proposal := file.offer(cursor)) is not None:
        count.offers += 1
        places = file.places_of(proposal)
        if not places:
            yield file.example("first", "wrong", proposal, file.definition)
            break
        count.right += 1
        count.uses_offered += len({use.start for use in uses} & {place.start for place in places})
        cursor = file.accept(proposal, places)
    count.walks_finished += not uses & file.left
    if proposal is None and (missing := sorted(uses & file.left)):
        yield file.example("first", "missing", None, missing[0])


def all_but_one(case: Case, producer: EditProducer, count: RenameCount) -> Iterator[Example]:
    """Each of some uses is left in turn."""
    for last in edits.drawn(case.definition.uses, case.file.path, "left")[:MAX_LEFT]:
        file = RenamedFile(case, producer, count)
        cursor = file.rename_each([use for use in [file.definition, *case.definition.uses] if use != last])
        count.left += 1
        proposal = file.offer(cursor)
        if proposal is None:
            yield file.example("all but one", "missing", None, last)
            continue
        places = file.places_of(proposal)
        count.left_offered, count.left_right = count.left_offered + 1, count.left_right + bool(places)
        if not places:
            yield file.example("all but one", "wrong", proposal, last)


def quiet(case: Case, producer: EditProducer, count: RenameCount) -> Iterator[Example]:
    """Everything is renamed: at the last place, and at other variables of the old name, nothing is right."""
    file = RenamedFile(case, producer, count)
    places = sorted({*case.definition.uses, *map(Use, case.definition.documented)})
    cursors = [file.rename_each([file.definition, *places])]
    others = edits.drawn(case.definition.others, case.file.path, "others")[:MAX_OTHERS]
    cursors += [file.now(start) for start in others]
    for cursor in cursors:
        proposal = file.offer(cursor)
        count.quiet_states += 1
        count.quiet += proposal is None
        if proposal is not None:
            yield file.example("quiet", "wrong", proposal, file.definition)
