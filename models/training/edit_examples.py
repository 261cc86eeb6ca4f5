"""Examples of next edits: a window of a file between two releases, the hunks before it, and the window after it.

    older release ─► hunks 1 … n made, top to bottom ─► window around hunk n+1 ─► the window with that hunk made

    derivable   the hunks before say what the next one is: its words are known and one of them is among theirs
    other       the next hunk does not follow: the window stays as it is
    unchanged   nothing changes in the window; half of these are around the hunk that was made last
    half-typed  a derivable hunk whose first line is typed in part, up to a place where people pause

The format is speclsp/lsp/backend/edit_prompt.py's, the window the one that the product sends.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.editor.edit_replay.half_typed import half_typed
from benchmarks.editor.edit_replay.replayed_file import shift, window_after
from benchmarks.quality.edits import Hunk as Difference
from benchmarks.quality.edits import hunks as differences
from benchmarks.quality.edits import made_of
from speclsp.lsp.backend.edit_prompt import FORMATS, LINES_ABOVE, WINDOW, EditInput, Hunk, newest_hunks, window_around

MAX_HUNKS_A_FILE = 120  # more: the file was generated anew, or formatted
MAX_LINES = 6  # of a hunk to predict
MAX_SHOWN_LINES = 8  # of a hunk before it
NEAR_LINES = 150  # a hunk further below the last one is not said to follow from it
KNOWN_LINES = 40  # lines above the window whose words count as known
MAX_ANSWER_CHARACTERS = 1200
PER_FILE = 5
HALF_TYPED = 0.3  # of the derivable ones
HALF_TYPED_SHOWN = 0.75  # of those: the line being typed is the newest hunk, as in the product


@dataclass(frozen=True, slots=True)
class EditCase:
    """A window, its surroundings, and its lines after the next edit."""

    kind: str  # "derivable" | "half-typed" | "other" | "unchanged"
    edit: EditInput
    after: tuple[str, ...]


def cases(older: Mapping[str, str], newer: Mapping[str, str], seed: str) -> Iterator[EditCase]:
    """The cases of two releases, in the order of their paths."""
    for path in sorted(older):
        if newer.get(path, older[path]) != older[path]:
            yield from cases_of_file(path, older[path], newer[path], random.Random(f"{seed} {path}"))


def cases_of_file(path: str, before: str, after: str, draw: random.Random) -> Iterator[EditCase]:
    """The cases of one file: at most PER_FILE hunks, each with a window where nothing changes."""
    listed = differences(before, after)
    if not 2 <= len(listed) <= MAX_HUNKS_A_FILE or max(map(len, before.split("\n"))) > 400:
        return
    numbers = list(range(1, len(listed)))
    draw.shuffle(numbers)
    count = 0
    for number in numbers:
        case = case_at(path, before, listed, number, draw)
        if case is None:
            continue
        yield case
        if (quiet := unchanged_at(path, before, listed, number, draw)) is not None:
            yield quiet
        count += 1
        if count == PER_FILE:
            return


def shown_before(listed: Sequence[Difference], number: int) -> list[Difference]:
    """The hunks just above hunk `number` that a person may have made by hand."""
    return [hunk for hunk in listed[max(0, number - 6) : number] if lines_of(hunk) <= MAX_SHOWN_LINES]


def case_at(path: str, before: str, listed: Sequence[Difference], number: int, draw: random.Random) -> EditCase | None:
    """The case of hunk `number`; None where it is too large, too far from the others, or cut by its window."""
    hunk, shown = listed[number], shown_before(listed, number)
    if lines_of(hunk) > MAX_LINES or not shown or hunk.start - shown[-1].end > NEAR_LINES:
        return None
    moved, lines = shift(listed[:number], hunk), made_of(before, listed[:number]).split("\n")
    row = hunk.start + moved
    first, last = window_around(row + draw.randint(-3, LINES_ABOVE), len(lines))
    inside = [other for other in listed[number:] if other.start + moved < last]
    if row < first or any(other.end + moved > last or lines_of(other) > MAX_SHOWN_LINES for other in inside):
        return None
    window = lines[first:last]
    after = window_after(window, first, inside, listed[:number])
    old_of = before.split("\n")
    known = words(window) | words(lines[max(0, first - KNOWN_LINES) : first])
    kind = "derivable" if is_derivable(old_of, shown, inside, known) else "other"
    recent = [as_hunk(old_of, other) for other in shown]
    if kind == "derivable" and draw.random() < HALF_TYPED and (typed := half_typed(old_of, hunk, draw)) is not None:
        kind, replaced = "half-typed", window[row - first : row - first + 1] if hunk.end > hunk.start else []
        if draw.random() < HALF_TYPED_SHOWN:
            recent.append(Hunk(old=(*lines[row - 1 : row], *replaced), new=(*lines[row - 1 : row], typed)))
        window[row - first : row - first + len(replaced)] = [typed]
    return finished(kind, path, lines[:first], window, after if kind != "other" else window, recent)


def unchanged_at(
    path: str, before: str, listed: Sequence[Difference], number: int, draw: random.Random
) -> EditCase | None:
    """A window that no later hunk changes, around the hunk made last or some lines below the next one."""
    hunk, shown = listed[number], shown_before(listed, number)
    moved, lines = shift(listed[:number], hunk), made_of(before, listed[:number]).split("\n")
    around_last = draw.random() < 0.5
    last_made = listed[number - 1].start + shift(listed[:number], listed[number - 1]) + len(listed[number - 1].lines)
    row = max(0, last_made - 1) if around_last else hunk.end + moved + draw.randint(12, 40)
    if not shown or row >= len(lines):
        return None
    first, last = window_around(row, len(lines))
    if any(other.start + moved <= last and other.end + moved >= first for other in listed[number:]):
        return None
    window = lines[first:last]
    recent = [as_hunk(before.split("\n"), other) for other in shown]
    return finished("unchanged", path, lines[:first], window, window, recent)


def finished(
    kind: str, path: str, above: Sequence[str], window: Sequence[str], after: Sequence[str], recent: Sequence[Hunk]
) -> EditCase | None:
    """The case, or None where it has a marker's text, no hunk that fits, or too long an answer."""
    recent = newest_hunks(recent)
    if not recent or FORMATS[WINDOW].holds_marker([*window, *after]) or sum(map(len, after)) > MAX_ANSWER_CHARACTERS:
        return None
    if kind in ("derivable", "half-typed") and [x.rstrip() for x in after] == [x.rstrip() for x in window]:
        return None
    edit = EditInput(path=path, before=tuple(above), window=tuple(window), hunks=tuple(recent))
    return EditCase(kind, edit, tuple(after))


def is_derivable(
    old: Sequence[str], shown: Sequence[Difference], inside: Sequence[Difference], known: set[str]
) -> bool:
    """True if every new word is known, and the hunks share a word that came or a word that went."""
    came, went = changed_words(old, shown)
    new, gone = changed_words(old, inside)
    return bool(new or gone) and new <= came | known and bool((new & came) or (gone & went))


def changed_words(old: Sequence[str], listed: Sequence[Difference]) -> tuple[set[str], set[str]]:
    """The words that the hunks bring, and those that they take away."""
    came, went = set[str](), set[str]()
    for hunk in listed:
        before, after = words(old[hunk.start : hunk.end]), words(hunk.lines)
        came, went = came | (after - before), went | (before - after)
    return came, went


def as_hunk(old: Sequence[str], hunk: Difference) -> Hunk:
    """A difference as the prompt shows it, with a line of context on each side."""
    above, below = old[max(0, hunk.start - 1) : hunk.start], old[hunk.end : hunk.end + 1]
    return Hunk(old=(*above, *old[hunk.start : hunk.end], *below), new=(*above, *hunk.lines, *below))


def changed_lines(window: Sequence[str], after: Sequence[str]) -> set[int]:
    """The lines of `after` that are not the window's; the line below a removed one counts as changed."""
    codes = difflib.SequenceMatcher(None, window, after, autojunk=False).get_opcodes()
    return {row for kind, _, _, k, m in codes if kind != "equal" for row in range(k, max(m, k + 1))}


def lines_of(hunk: Difference) -> int:
    """The larger side of a hunk, in lines."""
    return max(hunk.end - hunk.start, len(hunk.lines))


def words(lines: Sequence[str]) -> set[str]:
    """Words and signs."""
    return set(re.findall(r"\w+|[^\w\s]", " ".join(lines)))
