"""What a client's menus and status line ask: are there suggestions in this document, which pairs could there be, and
another try where the engine was given up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from speclsp.errors import InputError
from speclsp.lsp.reasons import DISABLED, NOT_OPEN, meaning
from speclsp.lsp.server import request_context
from speclsp.lsp.visibility.eligibility import why_not

if TYPE_CHECKING:
    from speclsp.lsp.server.server import CompletionServer

HERE, PAIRS, RETRY = "speclsp/here", "speclsp/pairs", "speclsp/retry"
GIVEN_UP = ("error", "stopped")  # states that only the user's word ends, or somebody else's engine


async def here(ls: CompletionServer, params: Any) -> dict[str, object]:
    """Whether suggestions come in a document, and if not, which setting or file says so."""
    try:
        uri = params["textDocument"]["uri"]
    except (LookupError, TypeError):
        raise InputError(f'{HERE} needs {{"textDocument": {{"uri": ...}}}}.') from None
    document = ls.documents.get(uri) if isinstance(uri, str) else None
    if document is None:
        reason, message = NOT_OPEN, meaning(NOT_OPEN)
    else:
        characters = ls.notebooks.characters(document)
        folder = request_context.root(ls, uri)
        verdict = await ls.ignored.settled(ls.notebooks.of(uri) or uri, folder)
        reason, message = why_not(
            uri, document.language, characters, ls.config, folder, excluded=verdict.no_suggestions
        )
    return {"on": not reason, "reason": reason, "message": message}


async def pairs(ls: CompletionServer, params: object) -> dict[str, object]:
    """Which pairs there are, what each needs, and whether this machine has that."""
    config, current = ls.config, ls.backend.status.pair if ls.backend is not None else ls.config.pair

    def look() -> dict[str, object]:
        from speclsp.lsp.server.model_pairs import listing  # takes its time, as what it does

        return listing(config, current)

    return await asyncio.to_thread(look)


def retry(ls: CompletionServer, params: object) -> dict[str, object]:
    """Try again what was given up: an engine that crashed too often, could not start or was stopped, a far server."""
    if not ls.config.completion.enabled:
        return {"retrying": False, "message": f"{meaning(DISABLED)}: nothing is to be started"}
    state = ls.backend.status.state if ls.backend is not None else "starting"
    if state in GIVEN_UP:
        ls.connect()
        return {"retrying": True, "message": "trying again"}
    why = ls.backend.status.message.rstrip(".") if ls.backend is not None else ""
    return {"retrying": False, "message": f"nothing was given up; the state is {state}{why and ': ' + why}"}
