"""States of one file between two releases, in which a next edit may be requested.

state        differences made from top to bottom, each as one edit, or by an offered edit that was right and accepted
half-typed   the next difference is begun: its first line is half typed, up to a place where people pause
quiet        all differences are made, one of them last: no edit is right
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from benchmarks.editor.edit_replay.half_typed import cut_line
from benchmarks.editor.edit_replay.release_edits import MAX_QUIET, MAX_STATES, verdict
from benchmarks.editor.edit_replay.replayed_file import EditProducer, ReplayedFile, shift
from benchmarks.quality import edits
from benchmarks.quality.tasks import tasks as cursors
from speclsp.lsp.next_edit.producer import Proposal

STATE, HALF_TYPED, QUIET = "state", "half-typed", "quiet"
MAX_HALF_TYPED = 4  # of one file
SEED = 7


@dataclass(frozen=True, slots=True)
class ReplayState:
    """A file in one state. `earlier`: its lines before the newest edit. `after`: the newer release."""

    kind: str
    file: ReplayedFile
    cursor: int
    earlier: Sequence[str]
    after: str
    left: Sequence[edits.Hunk] = ()  # of a STATE: the differences that are still to come

    def verdict(self, proposal: Proposal) -> tuple[bool, bool]:
        """(right, exact) for an edit in this state."""
        if self.kind == QUIET:
            return False, False
        text = self.file.document.text
        if self.kind == HALF_TYPED:
            return verdict(proposal, text, edits.hunks(text, self.after), ())
        return verdict(proposal, text, self.left, self.file.done)


def states(path: str, before: str, after: str, producer: EditProducer) -> Iterator[ReplayState]:
    """The states of one file. The file of a state changes after the state was consumed."""
    language = cursors.LANGUAGES[PurePosixPath(path).suffix]
    hunks = edits.hunks(before, after)
    file, left, number = ReplayedFile(path, before, language, producer), hunks[:], 0
    while len(left) > 1 and number < MAX_STATES:
        earlier, number = file.lines(), number + 1
        cursor = file.make(left.pop(0))
        yield ReplayState(STATE, file, cursor, earlier, after, left)
        while file.accepted_at >= 0 and number < MAX_STATES:  # the consumer has accepted an edit: its chain goes on
            left, file.done = edits.hunks(file.document.text, after), []
            cursor, file.accepted_at, number = file.accepted_at, -1, number + 1
            if left:
                yield ReplayState(STATE, file, cursor, earlier, after, left)
    for number in edits.drawn(range(1, min(len(hunks), MAX_STATES)), path, "half typed")[:MAX_HALF_TYPED]:
        yield from half_typed_state(ReplayedFile(path, before, language, producer), hunks, number, after)
    for last in edits.drawn(hunks, path, "quiet")[:MAX_QUIET]:
        file = ReplayedFile(path, before, language, producer)
        cursor = [file.make(hunk) for hunk in [*(hunk for hunk in hunks if hunk is not last), last]][-1]
        yield ReplayState(QUIET, file, cursor, (), after)


def half_typed_state(file: ReplayedFile, hunks: Sequence[edits.Hunk], number: int, after: str) -> Iterator[ReplayState]:
    """The state of a file in which the differences above one are made, and the first line of that one is half typed."""
    old, hunk = file.lines(), hunks[number]
    cut = cut_line(old, hunk, random.Random(f"{SEED} {file.uri} {number}"))
    if cut is None:
        return
    for other in hunks[:number]:
        file.make(other)
    earlier = file.lines()
    typed, column = cut
    end = min(hunk.start + 1, hunk.end)
    file.make(edits.Hunk(hunk.start, end, (typed,)))
    cursor = file.offset(hunk.start + shift(file.done[:-1], hunk), column)
    yield ReplayState(HALF_TYPED, file, cursor, earlier, after)
