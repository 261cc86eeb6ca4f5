"""Registration of textDocument/completion, for editors without inline completion.

completion.show_in_menu is on when the client initializes     announced in the answer
switched on later                                        registered, if the client supports dynamic registration
switched off                                             unregistered; a client that still asks gets an empty list
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from speclsp.lsp.protocol.initialize_answer import MENU_TRIGGERS

REGISTRATION_ID = "speclsp-menu"
OPTIONS = types.CompletionOptions(trigger_characters=MENU_TRIGGERS)
EMPTY: dict[str, object] = {"isIncomplete": True, "items": []}  # incomplete: the client asks again at the next key


@dataclass(eq=False, repr=False)
class CompletionMenu:
    """State of the registration."""

    enabled: Callable[[], bool]  # the setting completion.show_in_menu
    add_handler: Callable[[], None]  # of the request
    send_request: Callable[[str, object], object]  # to the client
    _has_handler: bool = False
    _registered: bool = False  # the client sends the request
    _dynamic: bool = False  # the client supports dynamic registration

    def announce(self, params: Mapping[str, Any]) -> None:
        """`initialize` is being answered: read the client's capabilities from the raw params."""
        value: Any = params.get("capabilities")
        for key in ("textDocument", "completion", "dynamicRegistration"):
            value = value.get(key) if isinstance(value, Mapping) else None
        self._dynamic = value is True
        if self.enabled():
            self._registered = True
            self._ensure_handler()

    def update(self) -> None:
        """Register or unregister. The client is initialized, or the settings have changed."""
        self._ensure_handler()  # a client may send the request without registration
        enabled = self.enabled()
        if enabled == self._registered or not self._dynamic:
            return
        self._registered = enabled
        method = types.TEXT_DOCUMENT_COMPLETION
        if enabled:
            options = types.CompletionRegistrationOptions(trigger_characters=MENU_TRIGGERS)
            registration = types.Registration(id=REGISTRATION_ID, method=method, register_options=options)
            params = types.RegistrationParams(registrations=[registration])
            self.send_request(types.CLIENT_REGISTER_CAPABILITY, params)
        else:
            unregistration = types.Unregistration(id=REGISTRATION_ID, method=method)
            ended = types.UnregistrationParams(unregisterations=[unregistration])
            self.send_request(types.CLIENT_UNREGISTER_CAPABILITY, ended)

    def _ensure_handler(self) -> None:
        if not self._has_handler:
            self._has_handler = True
            self.add_handler()
