"""Examples of next edits: requests that the product makes while one release of a file becomes the next one.

    two releases ─► states of the replay (bench next-edit) ─► cursors ─► the product's request ─► prompt, answer

    derivable   the first difference in the window follows from the recent edits: its words are known, one is theirs
    half-typed  the same, and its first line is typed in part
    other       the difference does not follow: the window stays as it is
    unchanged   the newer release changes nothing in the window, nor in the line above and below it

A cursor is where the replay has it, or at the edit that the rules offer there. The user also goes to the next
difference, and to a line below it where nothing changes.

The answer ends where the product closes the stream: as soon as it has rejoined the window behind the first change. Only
a window that stays as it is, or that changes down to its last line, has an answer with an end. The format is "window".
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.editor.edit_replay.replay_states import HALF_TYPED, STATE, ReplayState, states
from benchmarks.editor.edit_replay.replayed_file import URI, Rules, shift, window_after
from benchmarks.quality import edits
from speclsp.lsp.backend.edit_prompt import (
    FILE_LINES,
    LINES_ABOVE,
    EditInput,
    expected_answer,
    holds_marker,
    newest_hunks,
)
from speclsp.lsp.next_edit.model_producer import MAX_WINDOW_CHARACTERS, edit_input, line_count, windows
from speclsp.lsp.postprocess.edit_answer import AnswerHunk, first_hunk

DERIVABLE, OTHER, UNCHANGED = "derivable", "other", "unchanged"
KINDS = (DERIVABLE, HALF_TYPED, OTHER, UNCHANGED)
MAX_HUNKS_A_FILE = 120  # more: the file was generated anew, or formatted
MAX_LINE = 400  # characters: longer lines are data, or a bundle
MAX_LINES = 6  # of a difference to predict
MAX_ANSWER_CHARACTERS = 1200
NEAR_LINES = 150  # a difference further below the cursor is not one that the user goes to
BELOW = 12, 40  # lines below the next difference, where the user finds nothing to change
PER_FILE = {DERIVABLE: 8, HALF_TYPED: 4, OTHER: 8, UNCHANGED: 20}
RULES_MS = 10_000.0  # of the processor: the examples are the same on any machine


@dataclass(frozen=True, slots=True)
class EditCase:
    """A request of the product and the lines of its answer.

    `change`: the difference in them, None where they are the window. `has_end`: the end of text belongs to the answer.
    """

    kind: str  # one of KINDS
    edit: EditInput
    answer: tuple[str, ...]
    change: AnswerHunk | None
    has_end: bool


def cases(path: str, before: str, after: str, draw: random.Random) -> Iterator[EditCase]:
    """The cases of one file: of each kind at most PER_FILE, by `draw`."""
    count = len(edits.hunks(before, after))
    if not 2 <= count <= MAX_HUNKS_A_FILE or max(map(len, before.split("\n"))) > MAX_LINE:
        return
    by_kind: dict[str, list[EditCase]] = {kind: [] for kind in KINDS}
    for state in states(path, before, after, Rules(budget_ms=RULES_MS)):
        for case in cases_of(state, draw):
            by_kind[case.kind].append(case)
    for kind, listed in by_kind.items():
        yield from draw.sample(listed, min(PER_FILE[kind], len(listed)))


def cases_of(state: ReplayState, draw: random.Random) -> Iterator[EditCase]:
    """The cases of one state, one for each cursor."""
    left = to_come(state)
    for line in cursor_lines(state, left, draw):
        case = case_at(state, left, line)
        if case is not None:
            yield case


def to_come(state: ReplayState) -> list[edits.Hunk]:
    """The differences between a state and the newer release, by the lines of the state."""
    if state.kind == HALF_TYPED:
        return edits.hunks(state.file.document.text, state.after)
    moved = [(hunk, shift(state.file.done, hunk)) for hunk in state.left]
    return [edits.Hunk(hunk.start + lines, hunk.end + lines, hunk.lines) for hunk, lines in moved]


def cursor_lines(state: ReplayState, left: Sequence[edits.Hunk], draw: random.Random) -> Iterator[int]:
    """Lines at which the product requests an edit in this state."""
    document = state.file.document
    proposal = state.file.propose(state.cursor, [])
    line = document.position(state.cursor if proposal is None else proposal.start, "utf-32")["line"]
    yield line
    below = next((hunk for hunk in left if line <= hunk.start <= line + NEAR_LINES), None)
    if state.kind == STATE and below is not None:
        yield max(0, below.start + draw.randint(-3, LINES_ABOVE))
        yield below.end + draw.randint(*BELOW)


def case_at(state: ReplayState, left: Sequence[edits.Hunk], line: int) -> EditCase | None:
    """The request at a line; None where the product sends none, or where no answer fits its window."""
    document, recent, lines = state.file.document, state.file.activity.recent(), state.file.lines()
    if not recent or line >= line_count(document):
        return None
    first, end = next(windows(document, line, recent))
    edit = edit_input(document, first, end, recent, lambda uri: uri.removeprefix(URI))
    if holds_marker(edit.window) or not 0 < sum(map(len, edit.window)) <= MAX_WINDOW_CHARACTERS:
        return None
    if not newest_hunks(edit.hunks):
        return None
    near = [hunk for hunk in left if hunk.start <= end and hunk.end >= first]
    if not near:
        return answered(UNCHANGED, edit, edit.window)
    if not is_inside(near, first, end):
        return None
    after = window_after(edit.window, first, near, ())
    old, new = lines[near[0].start : near[0].end], near[0].lines
    if max(len(old), len(new)) > MAX_LINES or "".join(old).split() == "".join(new).split():
        return None
    if not is_derivable(edit, old, new):
        return answered(OTHER, edit, edit.window)
    return answered(HALF_TYPED if state.kind == HALF_TYPED else DERIVABLE, edit, after)


def is_inside(near: Sequence[edits.Hunk], first: int, end: int) -> bool:
    """True if the first difference lies in the window, and no other one reaches beyond it."""
    return first <= near[0].start < end and all(hunk.end <= end for hunk in near if hunk.start < end)


def answered(kind: str, edit: EditInput, after: Sequence[str]) -> EditCase | None:
    """The case with the shortest answer from which the product knows the first change; None if it is too long."""
    lines = tuple(after)
    change, has_end = first_hunk(edit.window, expected_answer(lines), ended=True), True
    for count in range(1, len(lines) + 1):
        known = first_hunk(edit.window, expected_answer(lines[:count]), ended=False)
        if known is not None:
            lines, change, has_end = lines[:count], known, False
            break
    is_missing = (change is None) == (kind in (DERIVABLE, HALF_TYPED))
    if is_missing or sum(map(len, lines)) > MAX_ANSWER_CHARACTERS or holds_marker(lines):
        return None
    return EditCase(kind, edit, lines, change, has_end)


def is_derivable(edit: EditInput, old: Sequence[str], new: Sequence[str]) -> bool:
    """True if every new word is known, and the recent edits share a word that comes or a word that goes."""
    came, went = set[str](), set[str]()
    for hunk in newest_hunks(edit.hunks):
        came |= words(hunk.new) - words(hunk.old)
        went |= words(hunk.old) - words(hunk.new)
    coming, going = words(new) - words(old), words(old) - words(new)
    known = words(edit.window) | words(edit.before[-FILE_LINES:])
    return bool(coming or going) and coming <= came | known and bool((coming & came) or (going & went))


def words(lines: Sequence[str]) -> set[str]:
    """Words and signs."""
    return set(re.findall(r"\w+|[^\w\s]", " ".join(lines)))
