"""A loopback port in the place of a Unix socket, where asyncio has none (Windows): `speclsp engine --socket PATH`.

A private file at PATH names the port and its token, in the format of engine.json. A client that can read the file is
admitted; the port refuses every other one.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path

from speclsp.config import Config
from speclsp.daemon import endpoint
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.engine.http import tcp_guard
from speclsp.errors import EngineError, SpeclspError
from speclsp.private_files.os_errors import sentence

TOKEN_BYTES = 32
LOOPBACK = "127.0.0.1"


class PortFile:
    """A listening port, its token, and the file that names both."""

    def __init__(self, path: Path, listener: socket.socket, token: str) -> None:
        self.path = path
        self.listener = listener
        self.token = token

    def remove(self) -> None:
        """Remove the file, unless another engine has replaced it."""
        with suppress(OSError, SpeclspError):
            engine = endpoint.read(self.path)
            if engine is not None and engine.token == self.token:
                self.path.unlink()
                endpoint.remove_socket_directory(self.path.parent)


def listen(text: str, settings: Config) -> PortFile:
    """Listen on a free port of loopback, and write the file at path `text`. Raises EngineError."""
    path = Path(os.path.abspath(text))  # noqa: PTH100 - a final symlink must stay visible
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_abandoned(path.parent)
    except OSError as error:
        raise EngineError(sentence(error, path.parent, "be made")) from error
    listener, token = tcp_guard.listen(LOOPBACK, 0), secrets.token_urlsafe(TOKEN_BYTES)
    try:
        port = listener.getsockname()[1]
        endpoint.write(EngineEndpoint(pid=os.getpid(), port=port, token=token, model=settings.model), path)
    except BaseException:
        listener.close()
        raise
    return PortFile(path, listener, token)


def remove_abandoned(directory: Path) -> None:
    """Remove the files of private engines (own_engine.py) that were killed together with their editor's process."""
    import psutil

    for path in directory.glob("lsp-*.sock"):
        pid = path.name.split("-")[1]
        with suppress(OSError):
            if pid.isdecimal() and not psutil.pid_exists(int(pid)):
                path.unlink()
