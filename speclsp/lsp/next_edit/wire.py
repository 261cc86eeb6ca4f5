"""Params and answers of next edits: textDocument/copilotInlineEdit, as Copilot's language server has it.

An answer is always an object with a list `edits`: a client throws on null, and shows any error. Our members beside
Copilot's are `kind`, `ghost`, `placeholder`, and `unopened` without edit. The edit's id is the argument of its command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speclsp.errors import InputError
from speclsp.lsp.documents.document import Document, column_units
from speclsp.lsp.protocol.initialize_answer import ACCEPT_COMMAND
from speclsp.lsp.syntax.text_windows import is_subsequence

if TYPE_CHECKING:
    from speclsp.lsp.next_edit.offers import Offer

INLINE_EDIT, DID_SHOW = "textDocument/copilotInlineEdit", "textDocument/didShowInlineEdit"
ELSEWHERE = "nextEditElsewhere"  # ability of a client: it shows an edit of another document
IGNORED = tuple(f"textDocument/{name}" for name in ("didFocus", "didShowCompletion", "didPartiallyAcceptCompletion"))
TITLE = "Accept the next edit"

Answer = dict[str, object]


@dataclass(frozen=True, slots=True)
class NextEditRequest:
    """A request for the next edit. `version` is None where the client sends none."""

    uri: str
    version: int | None
    position: Mapping[str, int]


def parse_request(params: Any) -> NextEditRequest:
    """The checked params; unknown members are ignored. Raises InputError."""
    document, position = member(params, "textDocument"), member(params, "position")
    uri, version = member(document, "uri"), member(document, "version")
    line, character = member(position, "line"), member(position, "character")
    places = [value for value in (line, character) if type(value) is int and value >= 0]
    if not isinstance(uri, str) or len(places) != 2 or (version is not None and type(version) is not int):
        raise InputError(
            f'{INLINE_EDIT} needs {{"textDocument": {{"uri", "version"}}, "position": {{"line", "character"}}}}.'
        )
    return NextEditRequest(uri, version, {"line": line, "character": character})


def member(value: Any, name: str) -> Any:
    """A member of a JSON object; None where there is none, or no object."""
    return value.get(name) if isinstance(value, Mapping) else None


def shown_id(params: Any) -> str:
    """The edit that textDocument/didShowInlineEdit names by its command; "" where it names none."""
    return first_id(member(member(member(params, "item"), "command"), "arguments"))


def first_id(arguments: Any) -> str:
    """The edit that a command's arguments name; "" where they name none."""
    return arguments[0] if isinstance(arguments, list | tuple) and arguments and isinstance(arguments[0], str) else ""


def no_edit(unopened: dict[str, int] | None = None) -> Answer:
    """The answer without an edit. `unopened`: a rename is done in open documents, and has uses in other files."""
    return {"edits": [], "unopened": unopened} if unopened else {"edits": []}


def answer(document: Document, offer: Offer, cursor: int, encoding: str) -> Answer:
    """The answer with one edit, and never with more: clients apply all edits of an answer at once.

    `document` is the edit's, at the version of the offer. `cursor`: its offset there; -1 if it is in another document.
    """
    start, end = (document.position(offset, encoding) for offset in (offer.start, offer.end))
    edit: dict[str, object] = {
        "text": offer.text,
        "range": {"start": start, "end": end},
        "textDocument": {"uri": document.uri, "version": offer.version},
        "command": {"title": TITLE, "command": ACCEPT_COMMAND, "arguments": [offer.id]},
        "kind": "rename" if offer.kind == "rename" else "edit",
        "ghost": cursor >= 0 and is_ghost(document, offer, cursor),
    }
    if offer.place.placeholder is not None:
        heads = (offer.place.new[:at].split("\n") for at in offer.place.placeholder)
        first, last = (
            {"line": offer.line + len(lines) - 1, "character": column_units(lines[-1], encoding)} for lines in heads
        )
        edit["placeholder"] = {"start": first, "end": last}
    return {"edits": [edit]}


def is_ghost(document: Document, offer: Offer, cursor: int) -> bool:
    """True if the edit can be ghost text: it begins at or behind the cursor, on its line, and removes nothing."""
    old = document.piece(offer.start, offer.end)
    here, there, end = (document.position(offset, "utf-32")["line"] for offset in (cursor, offer.start, offer.end))
    return here == there == end and offer.start >= cursor and is_subsequence(old, offer.text)
