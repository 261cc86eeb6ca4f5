"""What a client's menus and status line ask: are there suggestions in this document, and which pairs could there be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from speclsp.errors import InputError
from speclsp.lsp import asked
from speclsp.lsp.here import why_not
from speclsp.lsp.reasons import NOT_OPEN, meaning

if TYPE_CHECKING:
    from speclsp.lsp.server import Server

HERE, PAIRS = "speclsp/here", "speclsp/pairs"


def here(ls: Server, params: Any) -> dict[str, object]:
    """Whether suggestions come in a document, and if not, which setting says so."""
    try:
        uri = params["textDocument"]["uri"]
    except (LookupError, TypeError):
        raise InputError(f'{HERE} needs {{"textDocument": {{"uri": ...}}}}.') from None
    document = ls.documents.get(uri) if isinstance(uri, str) else None
    if document is None:
        reason, message = NOT_OPEN, meaning(NOT_OPEN)
    else:
        start = ls.notebooks.snapshot(document, {"line": 0, "character": 0}, ls.position_encoding)
        reason, message = why_not(uri, document.language, len(start.text), ls.config, asked.root(ls, uri))
    return {"on": not reason, "reason": reason, "message": message}


async def pairs(ls: Server, params: object) -> dict[str, object]:
    """Which pairs there are, what each needs, and whether this machine has that."""
    config, current = ls.config, ls.backend.status.pair if ls.backend is not None else ls.config.pair

    def look() -> dict[str, object]:
        from speclsp.lsp.pairs import listing  # takes its time, as what it does

        return listing(config, current)

    return await asyncio.to_thread(look)
