"""What a client may tell beside LSP, so that the model sees what its user is at: the lines on the screen, copied text.

`initialize` says which of it is wanted; nothing is answered, and what makes no sense is left aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from speclsp.lsp.server.request_context import is_too_large

if TYPE_CHECKING:
    from speclsp.lsp.server.server import CompletionServer

VIEWED, COPIED = "speclsp/viewed", "speclsp/copied"
EDIT = "edit"  # a name in context.sources, as the last words of these two are


def wanted(ls: CompletionServer, source: str) -> bool:
    """Whether the settings ask for such pieces of code."""
    return source.rpartition("/")[2] in ls.config.context.sources


def announced(ls: CompletionServer) -> dict[str, object]:
    """For `capabilities.experimental`: the notifications that are of use."""
    told = {method.rpartition("/")[2]: True for method in (VIEWED, COPIED) if wanted(ls, method)}
    return {"speclsp": told} if told else {}


def viewed(ls: CompletionServer, params: Any) -> None:
    """{textDocument: {uri}, range}: these lines have been on the screen for a while."""
    uri, span = _uri(params), params.get("range") if isinstance(params, Mapping) else None
    document = ls.documents.get(uri)
    if ls.doing is None or document is None or not wanted(ls, VIEWED) or is_too_large(ls, document):
        return
    if isinstance(span, Mapping) and (first := _line(span.get("start"))) is not None:
        last = _line(span.get("end"))
        ls.doing.viewed(document, first, first if last is None else last + 1)


def copied(ls: CompletionServer, params: Any) -> None:
    """{text, textDocument?: {uri}}: this text was copied, in that document."""
    text = params.get("text") if isinstance(params, Mapping) else None
    if ls.doing is None or not isinstance(text, str) or not wanted(ls, COPIED):
        return
    ls.doing.copied(text, _uri(params))


def _uri(params: Any) -> str:
    document = params.get("textDocument") if isinstance(params, Mapping) else None
    uri = document.get("uri") if isinstance(document, Mapping) else None
    return uri if isinstance(uri, str) else ""


def _line(place: object) -> int | None:
    line = place.get("line") if isinstance(place, Mapping) else None
    return line if type(line) is int and line >= 0 else None
