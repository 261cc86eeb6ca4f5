"""The answer of `speclsp complete`, by the shared engine, which is started and stays, or by a remote server."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import aclosing

from speclsp.cli import terminal
from speclsp.cli.command_line import SUCCESS, complain
from speclsp.cli.complete.answers import AnswerSoFar, CompletionPoint, PrintedAnswer
from speclsp.config import Config
from speclsp.engine.api import Request, Result
from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Backend, FimRequest, Status, StreamPiece, without_retry
from speclsp.lsp.completion.trace import count_drafted

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
    so_far, began_s = AnswerSoFar(hole), time.perf_counter()
    async with aclosing(backend.stream(fim_request(hole.request))) as pieces:
        async for piece in pieces:
            count(so_far.result, piece, (time.perf_counter() - began_s) * 1e3)
            if so_far.add(piece.text, piece.accepted_chars):
                break
    return so_far.end()


def draw_status(bar: terminal.ProgressLine, status: Status) -> None:
    """Draw the progress of an engine that starts: a download also where no terminal is."""
    step, _, sizes = status.message.partition(": ")
    if step.startswith(DOWNLOAD):
        bar.show(step, status.progress or 0.0, sizes)
    else:
        bar.step(status.progress or 0.0, status.message)


def count(result: Result, piece: StreamPiece, now_ms: float) -> None:
    """Add a piece to the result. Times that the server does not report are measured: `now_ms` since the request."""
    tokens = piece.ids or (UNKNOWN_TOKEN,) * piece.tokens
    if piece.start is not None:
        result.prompt_tokens, result.cached_tokens = piece.start.prompt_tokens, piece.start.cached_tokens
        result.left_out_tokens, result.prompt_ms = piece.start.left_out_tokens, piece.start.prompt_ms
    if tokens and not result.tokens:
        result.ttft_ms = now_ms
    result.text += piece.text
    result.tokens += tokens
    result.decode_ms += piece.ms
    result.rounds += bool(tokens) or bool(piece.ms)
    result.drafted += piece.drafted
    result.accepted += piece.accepted
    count_drafted(result.by_source, piece)
    if piece.cost is not None:
        result.stop_type = piece.cost.stop_type
        result.prompt_tokens = piece.cost.prompt_tokens or result.prompt_tokens
        result.decode_ms = result.decode_ms or now_ms - result.ttft_ms
        result.ttft_ms = piece.cost.ttft_ms or result.ttft_ms


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
