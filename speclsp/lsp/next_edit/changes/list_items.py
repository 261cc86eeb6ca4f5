"""Items of a list of lines: an item is a line, with the deeper lines below it and their closing bracket.

    "width": self.width,        case Color.RED:
    "height": self.height,          return "red"

Two items have one form if they are equal but for their names. The form is written again with another name, in the same
spelling: `lineWidth`, `line_width`, `LINE_WIDTH`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from speclsp.lsp.next_edit.changes.substitutions import TOKEN, indentation

MAX_ITEM_LINES = 8
MAX_ITEMS = 40  # of one list, that are examined on either side
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
NO_ITEM = re.compile(r"\s*(?:#(?!\[)|//|/?\*|@|#\[|\"\"\"|--|[)\]}])")  # a comment, a decorator, a closing bracket
CLOSING = re.compile(r"\s*[)\]}]")

Form = tuple[str | int, ...]  # tokens; a number stands for the name, in that spelling


def spellings(name: str) -> list[str]:
    """A name as it is, and in the spellings of other lists: `darkRed`, `dark_red`, `DARK_RED`, `DarkRed`."""
    words = [word.lower() for word in WORD.findall(name)] or [name]
    snake, pascal = "_".join(words), "".join(map(str.capitalize, words))
    return [name, name.lower(), name.upper(), snake, snake.upper(), words[0] + pascal[len(words[0]) :], pascal]


def form_of(text: str, name: str) -> Form | None:
    """The form of an item with a name; None if it does not have the name."""
    known = spellings(name)
    form = tuple(known.index(token) if token in known else token for token in TOKEN.findall(text))
    return form if any(isinstance(token, int) for token in form) else None


def item_of(form: Form, name: str) -> str:
    """The item of this form with a name."""
    known = spellings(name)
    return "".join(known[token] if isinstance(token, int) else token for token in form)


def is_spelled(form: Form, name: str, other: str) -> bool:
    """True if the item of `other` can be spelled from that of `name`: `red` may be camel case or snake case."""
    is_longer = len(WORD.findall(name)) < 2 <= len(WORD.findall(other))
    return not is_longer or all(token == 0 for token in form if isinstance(token, int))


def has_name(text: str, names: Sequence[str]) -> bool:
    """True if one of the names is a word of a text, in any spelling."""
    return not {spelling for name in names for spelling in spellings(name)}.isdisjoint(TOKEN.findall(text))


def item_end(lines: Sequence[str], start: int) -> int:
    """The line after the item that begins at a line."""
    indent, end = indentation(lines[start]), start + 1
    while end < len(lines) and end - start <= MAX_ITEM_LINES and lines[end].strip():
        own = indentation(lines[end])
        if not (len(own) > len(indent) or (own == indent and CLOSING.match(lines[end]))):
            break
        end += 1
    return end


def items_above(lines: Sequence[str], line: int, indent: str) -> Iterator[int]:
    """The first lines of the items of the same list above a line, the nearest first."""
    return _items(lines, range(line - 1, -1, -1), indent)


def items_below(lines: Sequence[str], line: int, indent: str) -> Iterator[int]:
    """The first lines of the items of the same list from a line on."""
    return _items(lines, range(line, len(lines)), indent)


def _items(lines: Sequence[str], numbers: range, indent: str) -> Iterator[int]:
    left = MAX_ITEMS
    for number in numbers:
        line = lines[number]
        own = indentation(line)
        if not line.strip() or len(own) < len(indent) or not left:
            return
        if own == indent and not NO_ITEM.match(line):
            left -= 1
            yield number


def without_comma(text: str) -> tuple[str, str]:
    """(the item without a comma at its end, that comma or nothing)."""
    text = text.rstrip()
    return (text[:-1], ",") if text.endswith(",") else (text, "")
