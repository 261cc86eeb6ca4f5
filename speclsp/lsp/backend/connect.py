"""Chooses the backend for a model on this machine. The implementations are imported only when one is chosen."""

from __future__ import annotations

from collections.abc import Callable

from speclsp.config import Config
from speclsp.lsp.backend.types import Backend, OnStatus


def connect_local(config: Config, on_status: OnStatus, log: Callable[[str], None], client: str = "") -> Backend:
    """The shared, attached or private engine that `config` names; not started yet.

    `log` receives the output of a private engine. `client` is the editor's name, which the engine lists among its
    clients.
    """
    if config.engine.shared and not config.engine.socket:
        from speclsp.lsp.backend.engine_discovery import SharedEngine

        return SharedEngine(config, on_status, client)
    from speclsp.lsp.backend.engine_client import AttachedEngine, PrivateEngine

    if config.engine.socket:
        return AttachedEngine(config, on_status, client)
    return PrivateEngine(config, on_status, client, log)
