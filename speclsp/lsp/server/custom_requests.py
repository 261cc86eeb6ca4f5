"""Messages beside LSP: speclsp/here, speclsp/pairs, speclsp/retry for menus, didFocus and suggestionGrew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from speclsp.config import Config
from speclsp.errors import InputError
from speclsp.lsp.backend.types import Status
from speclsp.lsp.reasons import Reason, meaning
from speclsp.lsp.server.request_context import WorkspaceDocuments

if TYPE_CHECKING:
    from speclsp.lsp.completion.job import CompletionRequest

HERE, LIST_MODELS, RETRY = "speclsp/here", "speclsp/pairs", "speclsp/retry"
DID_FOCUS = "speclsp/didFocus"
SUGGESTION_GREW = "speclsp/suggestionGrew"
OUTDENT, GROWTH = "outdent", "suggestionGrew"  # abilities of a client
GIVEN_UP = ("error", "stopped")  # states that only a retry by the user ends, or another process's engine


async def here(documents: WorkspaceDocuments, params: Any) -> dict[str, object]:
    """State of completion in a document: enabled, or the setting or file that disables it."""
    try:
        uri = params["textDocument"]["uri"]
    except (LookupError, TypeError):
        raise InputError(f'{HERE} needs {{"textDocument": {{"uri": ...}}}}.') from None
    document = documents.documents.get(uri) if isinstance(uri, str) else None
    reason: str
    if document is None:
        reason, message = Reason.NOT_OPEN, meaning(Reason.NOT_OPEN)
    else:  # this reads the ignore files, without which no edit is recorded
        reason, message = await documents.exclusion(document)
        if not documents.config.completion.enabled:
            reason, message = Reason.DISABLED, meaning(Reason.DISABLED)
    return {"on": not reason, "reason": reason, "message": message}


def client_supports(ability: str, initialize: Mapping[str, Any]) -> bool:
    """True if the client announces `capabilities.experimental.speclsp.<ability>`."""
    try:
        return initialize["capabilities"]["experimental"]["speclsp"][ability] is True
    except (LookupError, TypeError):
        return False


def grown_params(request: CompletionRequest) -> dict[str, object]:
    """The params of speclsp/suggestionGrew: the request whose answer has more lines now."""
    line, character = request.position
    snapshot = request.input.snapshot
    return {
        "textDocument": {"uri": snapshot.uri, "version": snapshot.version},
        "position": {"line": line, "character": character},
    }


def focused_position(params: Any) -> tuple[str, Mapping[str, int]] | None:
    """(URI, LSP position) of a speclsp/didFocus; None for malformed params: a notification has no reply."""
    try:
        uri, position = params["textDocument"]["uri"], params["position"]
        line, character = position["line"], position["character"]
    except (LookupError, TypeError):
        return None
    valid = isinstance(uri, str) and all(isinstance(n, int) and n >= 0 for n in (line, character))
    return (uri, {"line": line, "character": character}) if valid else None


async def list_models(config: Config, current: str) -> dict[str, object]:
    """The available models, with the memory and download that each needs. `current`: the one in use."""

    def list_pairs() -> dict[str, object]:
        from speclsp.lsp.server.model_list import listing  # the import is slow, too

        return listing(config, current)

    return await asyncio.to_thread(list_pairs)


def retry(enabled: bool, status: Status | None, connect: Callable[[], None]) -> dict[str, object]:
    """Start the backend again after it failed or was stopped: an engine, or the connection to a remote server.

    `enabled`: the setting completion.enabled; `status`: the backend's, None if there is none yet.
    """
    if not enabled:
        return {"retrying": False, "message": f"{meaning(Reason.DISABLED)}: no backend to start"}
    state = status.state if status is not None else "starting"
    if state in GIVEN_UP:
        connect()
        return {"retrying": True, "message": "trying again"}
    detail = status.message.rstrip(".") if status is not None else ""
    return {"retrying": False, "message": f"nothing to retry; the state is {state}{detail and ': ' + detail}"}
