"""Chooses the backend that the configuration names: a remote server or the shared engine.

The implementations are imported only when one is chosen.
"""

from __future__ import annotations

from speclsp.config import Config
from speclsp.lsp.backend.types import Backend, OnStatus


def connect(config: Config, on_status: OnStatus, client: str = "", own_url: str = "") -> Backend:
    """The backend for `config`; not started yet.

    `client` is the editor's name, which an engine lists among its clients. `own_url` is the server in the user's own
    settings: an API key without a server name goes only there.
    """
    if config.remote.url:
        from speclsp.lsp.backend.remote.remote import RemoteBackend

        return RemoteBackend(config, on_status, own_url)
    from speclsp.lsp.backend.engine_client import EngineClient

    return EngineClient(config, on_status, client)
