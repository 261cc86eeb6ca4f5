"""textDocument/completion for editors without inline completion: the same suggestion, as one entry of their menu.

completion.in_menu when the client initializes     announced then
switched on later                                  registered, where the client can be told
switched off                                       unregistered; a client that asks all the same gets nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from speclsp.lsp.reasons import PASSING
from speclsp.lsp.server import request_context
from speclsp.lsp.server.items import in_menu, inline

if TYPE_CHECKING:
    from speclsp.lsp.server.server import CompletionServer

NAME = "speclsp-menu"
TRIGGERS = [".", "(", "[", "{", ",", ":", "=", " "]  # word characters need no naming
OPTIONS = types.CompletionOptions(trigger_characters=TRIGGERS)
NOTHING: dict[str, object] = {"isIncomplete": True, "items": []}  # incomplete: the next key is another question


class CompletionMenu:
    """Whether the client knows that it may ask."""

    def __init__(self, ls: CompletionServer) -> None:
        self._ls = ls
        self._answers = False  # there is a handler
        self._known = False  # the client has been told
        self._can_be_told = False

    def announce(self, params: Mapping[str, Any]) -> None:
        """`initialize` is being answered: from the raw params, what the client can do."""
        told: Any = params.get("capabilities")
        for key in ("textDocument", "completion", "dynamicRegistration"):
            told = told.get(key) if isinstance(told, Mapping) else None
        self._can_be_told = told is True
        if self._ls.config.completion.in_menu:
            self._known = True
            self._answer()

    def switch(self) -> None:
        """The client is initialized, or the settings have changed."""
        self._answer()  # a client may ask without having been told
        wanted = self._ls.config.completion.in_menu
        if wanted == self._known or not self._can_be_told:
            return
        self._known = wanted
        method, kind = types.TEXT_DOCUMENT_COMPLETION, types.CLIENT_REGISTER_CAPABILITY
        if wanted:
            options = types.CompletionRegistrationOptions(trigger_characters=TRIGGERS)
            one = types.Registration(id=NAME, method=method, register_options=options)
            self._ls.protocol.send_request(kind, types.RegistrationParams(registrations=[one]))
        else:
            gone = types.UnregistrationParams(unregisterations=[types.Unregistration(id=NAME, method=method)])
            self._ls.protocol.send_request(types.CLIENT_UNREGISTER_CAPABILITY, gone)

    def _answer(self) -> None:
        if not self._answers:
            self._answers = True
            self._ls.feature(types.TEXT_DOCUMENT_COMPLETION, OPTIONS)(complete)


async def complete(ls: CompletionServer, params: types.CompletionParams) -> dict[str, object]:
    """The entry for the cursor, or none; the newest request wins here as well."""
    if ls.session is None or not ls.config.completion.in_menu:
        return NOTHING
    uri, position = params.text_document.uri, params.position
    at = request_context.cursor_context(ls, uri, {"line": position.line, "character": position.character})
    if at is None:
        return NOTHING
    request_context.mark_as_recent(ls, uri)
    from speclsp.lsp.completion.job import CompletionInput, CompletionRequest

    others, root = request_context.neighbours(ls, uri), request_context.root(ls, uri)
    place = at.line, position.character
    current = CompletionInput(at.snapshot, others, root)
    outcome = await ls.session.complete(CompletionRequest(current, menu=True, id=ls.request_id, position=place))
    entries = [in_menu(made, at.snapshot, at.line, ls.position_encoding) for made in outcome.suggestions]
    shown = [inline(made, at.snapshot, at.line, ls.position_encoding) for made in outcome.suggestions]
    if outcome.reason not in PASSING:
        ls.counting.answered(at, [item for item in shown if item is not None], ls.position_encoding)
    return {"isIncomplete": True, "items": [entry for entry in entries if entry is not None]}
