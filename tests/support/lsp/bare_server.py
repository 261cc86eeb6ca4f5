"""A server with a few handlers on the protocol layer alone: the wire protocol is tested without an engine."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from lsprotocol import types

from speclsp.errors import EngineError, InputError
from speclsp.lsp.protocol.initialize_answer import initialize_result
from speclsp.lsp.protocol.language_server import SpecLanguageServer, serve
from speclsp.lsp.protocol.stdio import Input, redirect_stdio

server = SpecLanguageServer("fixture", "1")


@server.feature(types.INITIALIZE)
def initialize(params: dict[str, Any]) -> dict[str, Any]:
    return initialize_result(params, copilot=False, has_menu=False)


@server.feature("test/echo")
def echo(params: Any) -> Any:
    return params


@server.feature("test/raise")
def fail(params: Any) -> None:
    errors = {"ours": EngineError("no such\nengine"), "yours": InputError("no such\nfile")}
    raise errors.get(params) or KeyError(params)


@server.feature("test/strange")
def strange(params: Any) -> Any:
    return {1, 2}


@server.feature("test/block")
def block(seconds: float) -> str:
    time.sleep(seconds)
    return "unblocked"


@server.feature("test/wait")
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"


@server.feature("test/stubborn")
async def stubborn(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(seconds)
    return "not impressed"


@server.command("test.add")
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    in_fd, out_fd = redirect_stdio()
    sys.exit(serve(server, Input(in_fd), out_fd, lambda: print("on_exit ran", file=sys.stderr, flush=True)))
