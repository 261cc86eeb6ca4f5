"""The answer of `speclsp complete`, by the shared engine, which is started and stays, or by a remote server."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing

from speclsp.cli import terminal
from speclsp.cli.command_line import SUCCESS, complain
from speclsp.cli.complete.answers import AnswerSoFar, CompletionPoint, PrintedAnswer
from speclsp.config import Config
from speclsp.engine.api import Request
from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Backend, FimRequest, Status, without_retry

DEADLINE_MS = 300_000  # nobody is typing: the model may have to be loaded first
UNKNOWN_TOKEN = -1  # a backend reports how many tokens a piece has, and not always which
CLIENT = "speclsp complete"  # among the clients of `speclsp engine status`
DOWNLOAD = ("fetching", "checking")  # first words of the engine's message about the weights
READY = ("ready", "asleep")


async def answer(config: Config, hole: CompletionPoint) -> tuple[PrintedAnswer, Status]:
    """The answer, and the backend that made it. Raises EngineError.

    The end of this task, also by Ctrl-C, cancels the request. The engine stays for its next client.
    """
    from speclsp.lsp.backend.remote import backend_choice

    changed = asyncio.Event()
    backend = backend_choice.connect(config, lambda status: changed.set(), CLIENT, config.remote.url)
    backend.start()
    try:
        with terminal.progress() as bar:
            while backend.status.state not in READY:
                draw_status(bar, backend.status)
                if backend.status.state in ("error", "stopped"):
                    raise EngineError(without_retry(backend.status.message))
                await changed.wait()
                changed.clear()
        if backend.status.state == "ready" and backend.status.message:  # a setting that the engine could not use
            complain(backend.status.message, SUCCESS)
        return await read(backend, hole), backend.status
    finally:
        await backend.close()


async def read(backend: Backend, hole: CompletionPoint) -> PrintedAnswer:
    """Stream the completion until the suggestion is complete. Raises EngineError."""
    so_far = AnswerSoFar(hole)
    async with aclosing(backend.stream(fim_request(hole.request))) as pieces:
        async for piece in pieces:
            so_far.result.tokens += piece.ids or (UNKNOWN_TOKEN,) * piece.tokens
            if piece.cost is not None:
                so_far.result.stop_type = piece.cost.stop_type
            if so_far.add(piece.text):
                break
    return so_far.end()


def draw_status(bar: terminal.ProgressLine, status: Status) -> None:
    """Draw the progress of an engine that starts: a download also where no terminal is."""
    step, _, sizes = status.message.partition(": ")
    if step.startswith(DOWNLOAD):
        bar.show(step, status.progress or 0.0, sizes)
    else:
        bar.step(status.progress or 0.0, status.message)


def fim_request(request: Request) -> FimRequest:
    """The request as a backend takes it."""
    return FimRequest(
        prefix=request.prefix,
        line_prefix=request.line_prefix,
        suffix=request.suffix,
        path=request.filename,
        extra=tuple((extra.filename, extra.text) for extra in request.extra),
        max_tokens=request.max_tokens,
        deadline_ms=DEADLINE_MS,
        temperature=request.temperature,
        session=f"complete-{os.getpid()}",
        speculate=request.speculate,
    )
