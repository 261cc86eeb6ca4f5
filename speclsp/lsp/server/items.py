"""Suggestions as LSP items: inline at the cursor, continuing the selected menu entry, or as a menu entry.

Offsets are those of the Snapshot. `line` is the cursor's line in the document: in a notebook's cell, the snapshot has
other line numbers, because it begins with the cells above.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from lsprotocol import types

from speclsp.lsp.documents.document import Snapshot, column_units
from speclsp.lsp.protocol.initialize_answer import ACCEPT_COMMAND

if TYPE_CHECKING:
    from speclsp.lsp.postprocess.plan import Suggestion

LABEL_CHARACTERS = 60
WORD_BEFORE = re.compile(r"\w*\Z")
MAX_WORD = 100


def inline_item(suggestion: Suggestion, snapshot: Snapshot, line: int, encoding: str) -> dict[str, object]:
    """An item of textDocument/inlineCompletion; the range always on the cursor's line."""
    span = range_of(suggestion, snapshot, line, encoding)
    characters = len(suggestion.text) - (snapshot.cursor - suggestion.start)
    return {"insertText": suggestion.text, "range": span, "command": accept_command(characters)}


def extended_item(
    suggestion: Suggestion, selected: types.SelectedCompletionInfo, snapshot: Snapshot
) -> dict[str, object] | None:
    """An item that continues the selected menu entry over the entry's own range.

    Editors show no other inline suggestion while their menu is open.
    """
    typed = snapshot.text[suggestion.start : snapshot.cursor]
    replaced = snapshot.text[snapshot.cursor : suggestion.end]
    if not suggestion.text.startswith(typed) or not suggestion.text.endswith(replaced):
        return None
    more = suggestion.text[len(typed) : len(suggestion.text) - len(replaced)]
    command = accept_command(len(more))
    return {"insertText": selected.text + more, "range": selected.range, "command": command} if more else None


def accept_command(characters: int) -> dict[str, object]:
    """The command of an item: clients run it after acceptance. A client may add how many characters it accepted."""
    return {"title": "Accept the suggestion", "command": ACCEPT_COMMAND, "arguments": [characters]}


def menu_item(suggestion: Suggestion, snapshot: Snapshot, line: int, encoding: str) -> dict[str, object] | None:
    """The item of textDocument/completion.

    Menus show entries that match the word at the cursor, and some accept no edit that begins elsewhere. So the word is
    a part of the item, of its range and of its filter text.
    """
    text, cursor = snapshot.text, snapshot.cursor
    word = WORD_BEFORE.search(text, max(0, cursor - MAX_WORD), cursor)
    start = word.start() if word is not None else cursor
    if not suggestion.text.startswith(text[suggestion.start : start]):
        return None  # it takes back indentation
    if suggestion.start < start:  # the user has typed through a part of it, up to this word and beyond
        from_word = replace(suggestion, text=suggestion.text[start - suggestion.start :], start=start)
    else:
        from_word = replace(suggestion, text=text[start : suggestion.start] + suggestion.text, start=start)
    span = range_of(from_word, snapshot, line, encoding)
    first_line = next(filter(None, (line.strip() for line in from_word.text.splitlines())), "")
    short = first_line if len(first_line) <= LABEL_CHARACTERS else first_line[: LABEL_CHARACTERS - 1] + "…"
    return {
        "label": short,
        "labelDetails": {"description": "speclsp"},
        "kind": types.CompletionItemKind.Text,
        "documentation": {"kind": "markdown", "value": fenced(from_word.text, snapshot.language)},
        "filterText": first_line,
        "sortText": "0",
        "insertTextFormat": types.InsertTextFormat.PlainText,
        "insertTextMode": types.InsertTextMode.AsIs,
        "textEdit": {"range": span, "newText": from_word.text},
    }


def fenced(text: str, language: str) -> str:
    """A markdown code block; its fence is longer than any fence in the text."""
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language if language.isidentifier() else ''}\n{text}\n{fence}"


def range_of(suggestion: Suggestion, snapshot: Snapshot, line: int, encoding: str) -> dict[str, object]:
    """The range that a suggestion replaces, on the cursor's line."""
    text, cursor = snapshot.text, snapshot.cursor
    line_start = max(text.rfind("\n", 0, cursor), text.rfind("\r", 0, cursor)) + 1
    columns = (column_units(text[line_start:end], encoding) for end in (suggestion.start, suggestion.end))
    return dict(zip(("start", "end"), ({"line": line, "character": column} for column in columns), strict=True))
