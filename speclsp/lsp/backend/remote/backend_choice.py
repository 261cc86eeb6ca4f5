"""Chooses the backend that the configuration names: a remote server or a local engine.

The implementations are imported only when one is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from speclsp.config import Config
from speclsp.lsp.backend.types import Backend, OnStatus


def connect(
    config: Config, on_status: OnStatus, log: Callable[[str], None], client: str = "", own_url: str = ""
) -> Backend:
    """The backend for `config`; not started yet.

    `log` and `client` are those of `connect_local`. `own_url` is the server in the user's own settings: an API key
    without a server name goes only there.
    """
    if not config.remote.url:
        return connect_local(config, on_status, log, client)
    from speclsp.lsp.backend.remote.remote import RemoteBackend

    return RemoteBackend(config, on_status, own_url)


def connect_local(config: Config, on_status: OnStatus, log: Callable[[str], None], client: str = "") -> Backend:
    """The shared, attached or private engine that `config` names; not started yet.

    `log` receives the output of a private engine. `client` is the editor's name, which the engine lists among its
    clients.
    """
    if config.engine.shared and not config.engine.socket:
        from speclsp.lsp.backend.engine_discovery import SharedEngine

        return SharedEngine(config, on_status, client)
    if config.engine.socket:
        from speclsp.lsp.backend.engine_client import AttachedEngine

        return AttachedEngine(config, on_status, client)
    from speclsp.lsp.backend.own_engine import PrivateEngine

    return PrivateEngine(config, on_status, client, log)
