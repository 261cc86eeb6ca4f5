"""Handlers of messages beside LSP: speclsp/here, models, retry, explain, uses and didFocus."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from speclsp.errors import InputError
from speclsp.lsp.reasons import Reason, meaning
from speclsp.lsp.server.handlers import App
from speclsp.lsp.server.server import GIVEN_UP

if TYPE_CHECKING:
    from speclsp.lsp.completion.job import CompletionInput, CompletionRequest

HERE, LIST_MODELS, RETRY, EXPLAIN = "speclsp/here", "speclsp/models", "speclsp/retry", "speclsp/explain"
USES, DID_FOCUS = "speclsp/uses", "speclsp/didFocus"
SUGGESTION_GREW = "speclsp/suggestionGrew"
MAX_LINE = 200  # characters of a line in a list


async def here(app: App, params: Any) -> dict[str, object]:
    """speclsp/here: whether completion is enabled in a document, or the setting or file that disables it."""
    try:
        uri = params["textDocument"]["uri"]
    except (LookupError, TypeError):
        raise InputError(f'{HERE} needs {{"textDocument": {{"uri": ...}}}}.') from None
    documents = app.documents
    document = documents.documents.get(uri) if isinstance(uri, str) else None
    reason: str
    if document is None:
        reason, message = Reason.NOT_OPEN, meaning(Reason.NOT_OPEN)
    else:  # this reads the ignore files, without which no edit is recorded
        reason, message = await documents.exclusion(document)
        if not documents.config.completion.enabled:
            reason, message = Reason.DISABLED, meaning(Reason.DISABLED)
    return {"on": not reason, "reason": reason, "message": message}


async def list_models(app: App, params: Any) -> dict[str, object]:
    """speclsp/models: the available models, with the memory and download that each needs."""
    config, current = app.server.config, app.server.model

    def list_models() -> dict[str, object]:
        from speclsp.lsp.server.model_list import listing  # the import is slow, too

        return listing(config, current)

    return await asyncio.to_thread(list_models)


def retry(app: App, params: Any) -> dict[str, object]:
    """speclsp/retry: start the backend again after it failed or was stopped."""
    server, status = app.server, app.server.backend_status
    if not server.config.completion.enabled:
        return {"retrying": False, "message": f"{meaning(Reason.DISABLED)}: no backend to start"}
    state = status.state if status is not None else "asleep"
    if state in GIVEN_UP:
        server.connect()
        return {"retrying": True, "message": "trying again"}
    detail = status.message.rstrip(".") if status is not None else ""
    return {"retrying": False, "message": f"nothing to retry; the state is {state}{detail and ': ' + detail}"}


async def explain(app: App, params: Any) -> dict[str, object]:
    """speclsp/explain: the outcome of the last request."""
    return await app.recorder.current()


async def uses(app: App, params: Any) -> dict[str, object]:
    """speclsp/uses: the uses of the last renamed name that are left in other files, open or not."""
    listed = list[dict[str, object]]()
    for left in await app.next_edits.left_uses() if app.next_edits is not None else ():
        for use in left.uses:
            start, end = (left.document.position(at, app.server.position_encoding) for at in (use.start, use.end))
            line = left.document.lines(start["line"], start["line"] + 1)[0].strip()[:MAX_LINE]
            listed.append({"uri": left.document.uri, "range": {"start": start, "end": end}, "line": line})
    return {"uses": listed}


def did_focus(app: App, params: Any) -> None:
    """speclsp/didFocus: the user looks at a document, with the cursor at a position. Malformed params are ignored."""
    server, documents, at = app.server, app.documents, focused_position(params)
    if at is None or server.session is None:
        return
    uri, position = at

    def capture() -> CompletionInput | None:
        at = documents.cursor_context(uri, position, server.position_encoding)
        return None if isinstance(at, str) else documents.completion_input(uri, at.snapshot)

    server.session.document_focused(capture)


def focused_position(params: Any) -> tuple[str, Mapping[str, int]] | None:
    """(URI, LSP position) of a speclsp/didFocus; None for malformed params."""
    try:
        uri, position = params["textDocument"]["uri"], params["position"]
        line, character = position["line"], position["character"]
    except (LookupError, TypeError):
        return None
    valid = isinstance(uri, str) and all(isinstance(n, int) and n >= 0 for n in (line, character))
    return (uri, {"line": line, "character": character}) if valid else None


def grown_params(request: CompletionRequest) -> dict[str, object]:
    """The params of speclsp/suggestionGrew: the request whose answer has more lines now."""
    line, character = request.position
    snapshot = request.input.snapshot
    return {
        "textDocument": {"uri": snapshot.uri, "version": snapshot.version},
        "position": {"line": line, "character": character},
    }
