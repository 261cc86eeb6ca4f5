"""The answer of `speclsp complete`, by the shared engine, which is started and stays, or by a remote server."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from dataclasses import replace

from speclsp.cli import terminal
from speclsp.cli.command_line import SUCCESS, complain
from speclsp.cli.complete.answers import AnswerSoFar, CompletionPoint, PrintedAnswer
from speclsp.config import Config
from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Backend, Status, without_retry

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
    from speclsp.lsp.completion.pipeline import to_request

    so_far = AnswerSoFar(hole)
    request = replace(
        to_request(hole.context, hole.plan.max_tokens, DEADLINE_MS),
        session=f"complete-{os.getpid()}",
        speculate=hole.request.speculate,
    )
    async with aclosing(backend.stream(request)) as pieces:
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
