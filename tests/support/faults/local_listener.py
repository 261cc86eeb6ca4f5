"""Listener of a fake engine: a Unix socket, or a port of this machine where there are no Unix sockets (Windows)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from speclsp.daemon import platform

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
TOKEN = "s3cret"


@asynccontextmanager
async def listening(serve: Serve, path: Path) -> AsyncIterator[dict[str, Any]]:
    """Serve on a socket at `path`, or on a port. Yields the address: arguments of EngineHttp and EngineEndpoint."""
    if not platform.HAS_UNIX_SOCKETS:
        async with listening_on_port(serve) as address:
            yield address
        return
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield {"socket": str(path)}
    finally:
        server.close()


@asynccontextmanager
async def listening_on_port(serve: Serve, token: str = TOKEN) -> AsyncIterator[dict[str, Any]]:
    """As `listening`, on a port on every system."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield {"port": server.sockets[0].getsockname()[1], "token": token}
    finally:
        server.close()


def unused_address(path: Path) -> dict[str, Any]:
    """An address, as of `listening`, at which nothing listens: no file at `path`, or a reserved port."""
    return {"socket": str(path)} if platform.HAS_UNIX_SOCKETS else {"port": 1, "token": TOKEN}
