"""The engine that answers `speclsp complete`: the shared one, which is started and stays, or a remote server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from speclsp.config import Config
from speclsp.engine.api import Piece, Request, Result
from speclsp.errors import EngineError
from speclsp.lsp.backend.blocking import BlockingBackend, Unavailable, ready, without_retry
from speclsp.lsp.backend.types import FimRequest, Status, StreamPiece
from speclsp.lsp.completion.trace import count_drafted

if TYPE_CHECKING:
    from speclsp.cli.terminal import ProgressLine

DEADLINE_MS = 300_000  # nobody is typing: the model may have to be loaded first
UNKNOWN_TOKEN = -1  # a backend reports how many tokens a piece has, and not always which
CLIENT = "speclsp complete"  # among the clients of `speclsp engine status`
DOWNLOAD = ("fetching", "checking")  # first words of the engine's message about the weights


def open_completer(
    config: Config, stack: ExitStack, bar: ProgressLine, note: Callable[[str], object]
) -> BackendCompleter:
    """The completer for these settings; `stack` closes it. `note` gets the engine's sentence about a setting.

    Raises SpeclspError.
    """
    from speclsp.lsp.backend.remote import backend_choice

    connect = partial(backend_choice.connect, config, client=CLIENT, own_url=config.remote.url)
    try:
        backend = stack.enter_context(ready(connect, partial(draw_status, bar)))
    except Unavailable as error:
        raise EngineError(without_retry(str(error))) from None
    if backend.status.state == "ready" and backend.status.message:
        note(backend.status.message)
    return BackendCompleter(backend)


def draw_status(bar: ProgressLine, status: Status) -> None:
    """Draw the progress of an engine that starts: a download also where no terminal is."""
    step, _, sizes = status.message.partition(": ")
    if step.startswith(DOWNLOAD):
        bar.show(step, status.progress or 0.0, sizes)
    else:
        bar.step(status.progress or 0.0, status.message)


class BackendCompleter:
    """A Completer whose completions another process makes."""

    step_ms = 0.0
    passes = 0
    context_tokens = trained_tokens = 0  # unknown

    def __init__(self, backend: BlockingBackend) -> None:
        self._backend = backend

    @property
    def model(self) -> str:
        return self._backend.status.model

    @property
    def target(self) -> str:
        return self._backend.status.target

    @property
    def draft(self) -> str:
        return self._backend.status.draft

    @property
    def device(self) -> str:
        return self._backend.status.device

    def truncate(self, request: Request) -> Request:
        """The request itself: the other process truncates it."""
        return request

    def complete(self, request: Request, cancel: threading.Event) -> BackendCompletion:
        """Start a completion; it is sent when its first piece is read."""
        return BackendCompletion(self._backend, request, cancel)


class BackendCompletion:
    """A completion whose pieces come from a backend; `result` is kept up to date."""

    def __init__(self, backend: BlockingBackend, request: Request, cancel: threading.Event) -> None:
        self._backend, self._request, self._cancel = backend, request, cancel
        self._began_s = self._first_s = 0.0  # time.perf_counter()
        self.result = Result()

    def __iter__(self) -> Iterator[Piece]:
        self._began_s = time.perf_counter()
        pieces = self._backend.pieces(fim_request(self._request))
        try:
            for piece in pieces:
                if self._cancel.is_set():
                    return
                yield self._count(piece)
        finally:
            pieces.close()

    def _count(self, piece: StreamPiece) -> Piece:
        """Add a piece to the result. Times that the server does not report are measured here."""
        result, now_s = self.result, time.perf_counter()
        tokens = piece.ids or (UNKNOWN_TOKEN,) * piece.tokens
        if piece.start is not None:
            result.prompt_tokens, result.cached_tokens = piece.start.prompt_tokens, piece.start.cached_tokens
            result.left_out_tokens, result.prompt_ms = piece.start.left_out_tokens, piece.start.prompt_ms
        if tokens and not result.tokens:
            self._first_s, result.ttft_ms = now_s, (now_s - self._began_s) * 1e3
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
            result.ttft_ms = piece.cost.ttft_ms or result.ttft_ms
            if not result.decode_ms and self._first_s:
                result.decode_ms = (now_s - self._first_s) * 1e3
        return Piece(
            text=piece.text,
            tokens=tokens,
            source=piece.source,
            drafted=piece.drafted,
            accepted=piece.accepted,
            ms=piece.ms,
            accepted_chars=piece.accepted_chars,
        )


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
        session=f"complete-{os.getpid()}",
        speculate=request.speculate,
    )
