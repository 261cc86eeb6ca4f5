"""Prompts for models that write a window of a file again with the next edit in it. Imports neither engine nor torch.

The format is that of Sweep's next-edit models (Apache-2.0).

    prompt ─► model ─► the window's new lines, each with its newline, then the end of text

A text of the document never becomes a marker: `plain` takes a marker apart. A window that holds one is not sent,
because its answer would hold the changed text: see `holds_marker`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SWEEP = "sweep"  # the format's name, which a model's card declares
SEPARATOR = "<|file_sep|>"  # one token of the vocabularies that the format is for
CURSOR = "<|cursor|>"  # text of several tokens

LINES_ABOVE, LINES_BELOW = 2, 7  # of the line that a window is chosen around
FILE_LINES = 40  # of the file on either side of the window; sweep's training had about 150
MAX_HUNKS, MAX_HUNK_CHARACTERS = 6, 1500  # the newest that fit

_MARKER = re.compile(r"<(?=[|｜][^|｜\n]{1,40}[|｜]>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Lines that the user changed, without line ends, with one line of context on each side where it is known."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    path: str = ""  # "" is the prompt's own path
    first: int = 1  # number of the first line, from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EditInput:
    """A window of a file and its surroundings: lines without line ends."""

    path: str
    before: tuple[str, ...]  # all lines above the window, or the last of them
    window: tuple[str, ...]
    hunks: tuple[Hunk, ...]  # the newest last
    after: tuple[str, ...] = ()  # lines below the window
    first: int = 1  # number of the window's first line, from 1
    earlier: tuple[str, ...] | None = None  # the window before the last edit; None: as it is
    cursor: tuple[int, int] | None = None  # line of the window and character in it, from 0


def format_sweep(edit: EditInput) -> str:
    """The prompt of format "sweep", for an answer that begins with the window's first line."""
    file = plain("\n".join((*edit.before[-FILE_LINES:], *edit.window, *edit.after[:FILE_LINES])))
    hunks = "".join(
        f"{_head(hunk.path or edit.path)}:{_rows(hunk.first, hunk.new)}\n{_blocks(hunk)}"
        for hunk in newest_hunks(edit.hunks)
    )
    path, rows = plain(edit.path).replace("\n", " "), _rows(edit.first, edit.window)
    earlier = plain("\n".join(edit.window if edit.earlier is None else edit.earlier))
    return (
        f"{_head(edit.path)}\n{file}\n{hunks}"
        f"{SEPARATOR}original/{path}:{rows}\n{earlier}\n"
        f"{SEPARATOR}current/{path}:{rows}\n{_with_cursor(edit)}\n"
        f"{SEPARATOR}updated/{path}:{rows}\n"
    )


def holds_marker(lines: Sequence[str]) -> bool:
    """True if a line holds a text that `plain` changes."""
    return any(_MARKER.search(line) for line in lines)


def expected_answer(window: Sequence[str]) -> str:
    """The answer for a window that stays as it is; the draft of any answer."""
    return "\n".join(window) + "\n"


def window_around(line: int, line_count: int) -> tuple[int, int]:
    """The first line of a window around `line` (from 0), and the line after its last one.

    Every window has the same number of lines, unless the file has fewer.
    """
    size = LINES_ABOVE + 1 + LINES_BELOW
    first = max(0, min(line - LINES_ABOVE, line_count - size))
    return first, min(first + size, line_count)


def newest_hunks(hunks: Sequence[Hunk]) -> list[Hunk]:
    """The newest hunks that fit MAX_HUNKS and MAX_HUNK_CHARACTERS, the newest last."""
    kept: list[Hunk] = []
    room = MAX_HUNK_CHARACTERS
    for hunk in reversed(hunks[-MAX_HUNKS:]):
        room -= sum(map(len, (*hunk.old, *hunk.new)))
        if room < 0:
            break
        kept.insert(0, hunk)
    return kept


def plain(text: str) -> str:
    """The text with a space in each marker, so that no tokenizer reads it as one."""
    return _MARKER.sub(lambda match: match.group() + " ", text)


def _head(path: str) -> str:
    return SEPARATOR + plain(path).replace("\n", " ")


def _blocks(hunk: Hunk) -> str:
    old, new = plain("\n".join(hunk.old)), plain("\n".join(hunk.new))
    return f"original:\n{old}\nupdated:\n{new}\n"


def _rows(first: int, lines: Sequence[str]) -> str:
    return f"{first}:{first + max(len(lines), 1) - 1}"


def _with_cursor(edit: EditInput) -> str:
    """The window without markers, and with CURSOR at the cursor."""
    lines = [plain(line) for line in edit.window]
    if edit.cursor is not None and edit.cursor[0] < len(lines):
        line, character = edit.cursor
        text = edit.window[line]
        lines[line] = plain(text[:character]) + CURSOR + plain(text[character:])
    return "\n".join(lines)
