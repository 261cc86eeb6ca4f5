"""Params and answers of the next-edit requests: Copilot's textDocument/copilotInlineEdit, and speclsp's own.

An answer is always an object with a list `edits`: a client of Copilot's protocol throws on null, and shows any error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speclsp.errors import InputError
from speclsp.lsp.documents.document import Document
from speclsp.lsp.syntax.text_windows import is_subsequence

if TYPE_CHECKING:
    from speclsp.lsp.next_edit.next_edits import Left
    from speclsp.lsp.next_edit.offers import Offer

COPILOT_INLINE_EDIT, DID_SHOW_INLINE_EDIT = "textDocument/copilotInlineEdit", "textDocument/didShowInlineEdit"
NEXT_EDIT, SHOWN = "speclsp/nextEdit", "speclsp/nextEditShown"
ACCEPTED, REJECTED = "speclsp/nextEditAccepted", "speclsp/nextEditRejected"
USES_LEFT = "speclsp/renameUses"
ELSEWHERE = "nextEditElsewhere"  # ability of a client: it shows an edit of another document
ACCEPT_COMMAND = "speclsp.didAcceptEdit"
IGNORED = tuple(f"textDocument/{name}" for name in ("didFocus", "didShowCompletion", "didPartiallyAcceptCompletion"))
TITLE = "Accept the next edit"
TRIGGERS = ("edit", "accept", "diagnostic", "manual")

Answer = dict[str, list[dict[str, object]]]


@dataclass(frozen=True, slots=True)
class NextEditRequest:
    """A request for the next edit. `version` is None where the client sends none."""

    uri: str
    version: int | None
    position: Mapping[str, int]


def parse_request(method: str, params: Any) -> NextEditRequest:
    """The checked params; unknown members are ignored. Raises InputError."""
    document, position = member(params, "textDocument"), member(params, "position")
    uri, version = member(document, "uri"), member(document, "version")
    line, character = member(position, "line"), member(position, "character")
    places = [value for value in (line, character) if type(value) is int and value >= 0]
    if not isinstance(uri, str) or len(places) != 2 or (version is not None and type(version) is not int):
        raise InputError(
            f'{method} needs {{"textDocument": {{"uri", "version"}}, "position": {{"line", "character"}}}}.'
        )
    if method == NEXT_EDIT and member(params, "trigger") not in (None, *TRIGGERS):
        raise InputError(f"{method}: trigger is one of {', '.join(TRIGGERS)}.")
    return NextEditRequest(uri, version, {"line": line, "character": character})


def member(value: Any, name: str) -> Any:
    """A member of a JSON object; None where there is none, or no object."""
    return value.get(name) if isinstance(value, Mapping) else None


def edit_id(params: Any) -> str:
    """The edit that a notification names, by speclsp's member `id` or Copilot's command; "" where it names none."""
    name = member(params, "id")
    return name if isinstance(name, str) else first_id(member(member(member(params, "item"), "command"), "arguments"))


def first_id(arguments: Any) -> str:
    """The edit that a command's arguments name; "" where they name none."""
    return arguments[0] if isinstance(arguments, list | tuple) and arguments and isinstance(arguments[0], str) else ""


def common_members(document: Document, offer: Offer, encoding: str) -> dict[str, object]:
    """The members of an edit in both protocols. The document has the version of the offer."""
    start, end = (document.position(offset, encoding) for offset in (offer.start, offer.end))
    text_document = {"uri": document.uri, "version": offer.version}
    return {"text": offer.text, "range": {"start": start, "end": end}, "textDocument": text_document}


def copilot_answer(document: Document | None, offer: Offer | None, encoding: str) -> Answer:
    """The answer of textDocument/copilotInlineEdit: at most one edit. Clients apply all edits of an answer at once."""
    if document is None or offer is None:
        return {"edits": []}
    command = {"title": TITLE, "command": ACCEPT_COMMAND, "arguments": [offer.id]}
    return {"edits": [common_members(document, offer, encoding) | {"command": command}]}


def own_answer(document: Document | None, offer: Offer | None, cursor: int, encoding: str) -> Answer:
    """The answer of speclsp/nextEdit: at most one edit, its kind, and whether it can be ghost text at the cursor.

    `cursor`: its offset in this document; -1 if it is in another one.
    """
    if document is None or offer is None:
        return {"edits": []}
    own = {
        "id": offer.id,
        "kind": "rename" if offer.kind == "rename" else "edit",
        "confidence": offer.confidence,
        "ghost": cursor >= 0 and is_ghost(document, offer, cursor),
    }
    return {"edits": [common_members(document, offer, encoding) | own]}


def uses_answer(left: Left | None, encoding: str) -> dict[str, object]:
    """The answer of speclsp/renameUses: the renamed name, and its uses that are left, document by document."""
    if left is None:
        return {"old": "", "new": "", "uses": []}
    entries = [
        {
            "uri": of_document.document.uri,
            "version": of_document.version,
            "range": {
                "start": of_document.document.position(use.start, encoding),
                "end": of_document.document.position(use.end, encoding),
            },
            "text": use.text,
        }
        for of_document in left[1]
        if of_document.version == of_document.document.version
        for use in of_document.uses
    ]
    return {"old": left[0].old, "new": left[0].new, "uses": entries}


def is_ghost(document: Document, offer: Offer, cursor: int) -> bool:
    """True if the edit can be ghost text: it begins at or behind the cursor, on its line, and removes nothing."""
    old = document.piece(offer.start, offer.end)
    here, there, end = (document.position(offset, "utf-32")["line"] for offset in (cursor, offer.start, offer.end))
    return here == there == end and offer.start >= cursor and is_subsequence(old, offer.text)
