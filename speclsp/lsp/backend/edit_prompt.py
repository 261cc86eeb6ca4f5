"""Prompts for models that write a window of a file again with the next edit in it. Imports neither engine nor torch.

The format is that of Sweep's next-edit models (Apache-2.0).

    prompt ─► model ─► the window's new lines, each with its newline, then the end of text

A text of the document never becomes a marker: `plain` takes a marker apart. A window that holds one is not sent,
because its answer would hold the changed text.
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
    """Lines that the user changed, without line ends. `first`: the number of the first one, from 1."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    path: str
    first: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EditInput:
    """A window of a file and its surroundings: lines without line ends."""

    path: str
    before: tuple[str, ...]  # FILE_LINES lines above the window
    window: tuple[str, ...]
    after: tuple[str, ...]  # FILE_LINES lines below the window
    hunks: tuple[Hunk, ...]  # the newest last
    first: int  # number of the window's first line, from 1
    earlier: tuple[str, ...]  # the window before the last edit
    cursor: tuple[int, int]  # line of the window and character in it, from 0


def format_sweep(edit: EditInput) -> str:
    """The prompt of format "sweep", for an answer that begins with the window's first line."""
    file = _plain_lines((*edit.before, *edit.window, *edit.after))
    hunks = "".join(
        f"{SEPARATOR}{_name(hunk.path, hunk.first, hunk.new)}\n"
        f"original:\n{_plain_lines(hunk.old)}\nupdated:\n{_plain_lines(hunk.new)}\n"
        for hunk in newest_hunks(edit.hunks)
    )
    current, (line, character) = [plain(line) for line in edit.window], edit.cursor
    if line < len(current):
        current[line] = plain(edit.window[line][:character]) + CURSOR + plain(edit.window[line][character:])
    window = _name(edit.path, edit.first, edit.window)
    return (
        f"{SEPARATOR}{_line(edit.path)}\n{file}\n{hunks}"
        f"{SEPARATOR}original/{window}\n{_plain_lines(edit.earlier)}\n"
        f"{SEPARATOR}current/{window}\n" + "\n".join(current) + f"\n{SEPARATOR}updated/{window}\n"
    )


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


def _plain_lines(lines: Sequence[str]) -> str:
    return plain("\n".join(lines))


def _line(path: str) -> str:
    return plain(path).replace("\n", " ")


def _name(path: str, first: int, lines: Sequence[str]) -> str:
    """The name of some lines of a file: PATH:FIRST:LAST."""
    return f"{_line(path)}:{first}:{first + max(len(lines), 1) - 1}"
