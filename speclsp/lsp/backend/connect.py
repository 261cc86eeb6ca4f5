"""Chooses the backend that the configuration names. The implementations are imported only when one is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from speclsp.config import BackendConfig, Config
from speclsp.lsp.backend.types import Backend, OnStatus


def connect(
    config: Config, on_status: OnStatus, log: Callable[[str], None], client: str = "", own_url: str = ""
) -> Backend:
    """The backend for `config`; not started yet.

    `log` receives the output of a private engine. `client` is the editor's name, which the engine lists among its
    clients. `own_url` is the server in the user's own settings: an API key without a server name goes only there.
    """
    if config.backend.url:
        from speclsp.lsp.backend.remote.remote import RemoteBackend

        if not config.backend.fallback:
            return RemoteBackend(config, on_status, own_url)
        from speclsp.lsp.backend.fallback import FallbackBackend

        local = replace(config, backend=BackendConfig())
        return FallbackBackend(
            lambda on_change: RemoteBackend(config, on_change, own_url),
            lambda on_change: connect(local, on_change, log, client),
            on_status,
        )
    if config.engine.shared and not config.engine.socket:
        from speclsp.lsp.backend.shared_engine import SharedEngine

        return SharedEngine(config, on_status, client)
    from speclsp.lsp.backend.engine_client import AttachedEngine, PrivateEngine

    if config.engine.socket:
        return AttachedEngine(config, on_status, client)
    return PrivateEngine(config, on_status, client, log)
