"""A suggestion as editors want it: beside the cursor, on from the selected menu entry, or as a menu entry itself.

    inline      text and range on the cursor's line
    extended    on from the entry selected in the completion menu, over that entry's own range
    in_menu     one entry of textDocument/completion, from the start of the word at the cursor

Offsets are those of the Snapshot; `line` is the cursor's in the document, which in a notebook's cell is another one.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from lsprotocol import types

from speclsp.lsp.documents.document import Document, Snapshot

if TYPE_CHECKING:
    from speclsp.lsp.postprocess.plan import Suggestion

LABEL_CHARACTERS = 60
WORD_BEFORE = re.compile(r"\w*\Z")
LONGEST_WORD = 100

log = logging.getLogger("speclsp.server")


def inline(made: Suggestion, snapshot: Snapshot, line: int, encoding: str) -> dict[str, object] | None:
    """An item of textDocument/inlineCompletion; the range always on the cursor's line."""
    span = span_of(made, snapshot, line, encoding)
    return {"insertText": made.text, "range": span} if span is not None else None


def extended(made: Suggestion, chosen: types.SelectedCompletionInfo, snapshot: Snapshot) -> dict[str, object] | None:
    """An item that goes on from the selected one over its very range; editors show no other beside their menu."""
    typed, replaced = snapshot.text[made.start : snapshot.cursor], snapshot.text[snapshot.cursor : made.end]
    if not made.text.startswith(typed) or not made.text.endswith(replaced):
        return None
    more = made.text[len(typed) : len(made.text) - len(replaced)]
    return {"insertText": chosen.text + more, "range": chosen.range} if more else None


def in_menu(made: Suggestion, snapshot: Snapshot, line: int, encoding: str) -> dict[str, object] | None:
    """The one item of textDocument/completion.

    Menus show what matches the word at the cursor, and some take no edit that begins elsewhere: so the word is part of
    the item, of its range and of what it is filtered by.
    """
    text, cursor = snapshot.text, snapshot.cursor
    found = WORD_BEFORE.search(text, max(0, cursor - LONGEST_WORD), cursor)
    start = found.start() if found is not None else cursor
    if made.start < start:  # some of it was typed along, up to this word and beyond
        whole = replace(made, text=made.text[start - made.start :], start=start)
    else:
        whole = replace(made, text=text[start : made.start] + made.text, start=start)
    span = span_of(whole, snapshot, line, encoding)
    if span is None:
        return None
    first = next(filter(None, (line.strip() for line in whole.text.splitlines())), "")
    return {
        "label": first if len(first) <= LABEL_CHARACTERS else first[: LABEL_CHARACTERS - 1] + "…",
        "labelDetails": {"description": "speclsp"},
        "kind": types.CompletionItemKind.Text,
        "documentation": {"kind": "markdown", "value": fenced(whole.text, snapshot.language)},
        "filterText": first,
        "sortText": "0",
        "insertTextFormat": types.InsertTextFormat.PlainText,
        "insertTextMode": types.InsertTextMode.AsIs,
        "textEdit": {"range": span, "newText": whole.text},
    }


def fenced(text: str, language: str) -> str:
    """A markdown code block; its fence is longer than any in the text."""
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language if language.isidentifier() else ''}\n{text}\n{fence}"


def span_of(made: Suggestion, snapshot: Snapshot, line: int, encoding: str) -> dict[str, object] | None:
    """The range that a suggestion replaces, on the cursor's line; None, and a line in the log, where it is not."""
    text, cursor = snapshot.text, snapshot.cursor
    begins = max(text.rfind("\n", 0, cursor), text.rfind("\r", 0, cursor)) + 1
    if not begins <= made.start <= cursor <= made.end:
        log.error("a suggestion does not lie around the cursor: %s", (made.start - begins, cursor - begins, made.end))
        return None
    this_line = Document("", "", 0, text[begins : made.end])
    start, end = (this_line.position(offset - begins, encoding) for offset in (made.start, made.end))
    if end["line"]:
        log.error("a suggestion replaces more than its line")
        return None
    return {"start": {**start, "line": line}, "end": {**end, "line": line}}
