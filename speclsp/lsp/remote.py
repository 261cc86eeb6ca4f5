"""A server somewhere else as the Backend: `backend.url`, OpenAI-compatible or llama.cpp's.

Nothing runs there for us but our requests; closing the stream is cancelling. What is wrong with it, and the way out,
is in the Status; a completion that fails is an empty answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from urllib.parse import urlsplit

from speclsp import cards
from speclsp.cards import Fim
from speclsp.config import Config
from speclsp.errors import EngineError, SpeclspError
from speclsp.lsp.backend import Cost, FimRequest, OnStatus, Piece, Status
from speclsp.lsp.wire import BadAnswer, ConnectionLost, Wire, infill, is_loopback

LOOK_AGAIN_S = 5.0  # at a server that does not answer
KEY_VARIABLE = "SPECLSP_API_KEY"  # sent as a bearer token; a secret has no place in settings


class Remote:
    """A server at `backend.url`. A path ending in /infill means llama.cpp's; otherwise OpenAI's /v1/completions."""

    reads_ahead = False  # somebody else's machine, and not every server takes 0 tokens

    def __init__(self, config: Config, on_status: OnStatus) -> None:
        self._config, self._on_status = config, on_status
        self._url = config.backend.url.rstrip("/")
        self._speaks_infill = self._url.endswith("/infill")
        root = self._url.removesuffix("/infill").removesuffix("/completions")
        self._root = root if self._speaks_infill or root.endswith("/v1") else root + "/v1"
        self.status = Status(state="starting", pair=config.pair, device=urlsplit(self._url).netloc.rpartition("@")[2])
        self._wire: Wire | None = None
        self._model = ""
        self._fim = Fim()
        self._life: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._life = asyncio.create_task(self._watch())

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            with suppress(asyncio.CancelledError):
                await self._life
        if self._wire is not None:
            await self._wire.close()

    def end(self) -> None:
        pass  # nothing of ours runs elsewhere

    async def stream(self, request: FimRequest) -> AsyncGenerator[Piece, None]:
        wire = self._wire
        if wire is None or self.status.state != "ready":
            raise EngineError(self.status.message or "the server is not known to be ready yet")
        pieces = infill(wire, "infill", request) if self._speaks_infill else self._completions(wire, request)
        async with aclosing(pieces) as stream:
            async for piece in stream:
                yield piece

    async def _completions(self, wire: Wire, request: FimRequest) -> AsyncGenerator[Piece, None]:
        """The same from /v1/completions, with the prompt laid out as the card says."""
        body = {
            "model": self._model,
            "prompt": fim_prompt(self._fim, request),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "stream": True,
        }
        tokens = 0
        async with aclosing(wire.post("completions", body, request.deadline_ms)) as events:
            async for event in events:
                for choice in event.get("choices") or []:
                    tokens += 1  # servers send one event for each token, or nearly
                    yield Piece(text=str(choice.get("text") or ""), tokens=1)
                    if choice.get("finish_reason"):
                        stop = {"stop": "eos", "length": "limit"}.get(str(choice["finish_reason"]), "eos")
                        yield Piece(cost=Cost(stop_type=stop, tokens=tokens))
                        return
        raise ConnectionLost("the answer ended before its last piece")

    async def _watch(self) -> None:
        """Find out whether the server can be used, and look again when it cannot."""
        try:
            if not self._url.startswith("https://") and not is_loopback(self._url):
                raise SpeclspError(
                    f"backend.url = {self._url!r} would send your code in the clear: use https://, or a tunnel that "
                    f"ends on this machine."
                )
            key = os.environ.get(KEY_VARIABLE, "")
            self._wire = Wire(self._root + "/", headers={"authorization": f"Bearer {key}"} if key else {})
            while True:
                try:
                    await self._look(self._wire)
                    return
                except (ConnectionLost, BadAnswer) as error:
                    self._say(state="error", message=f"backend.url = {self._url!r} cannot be used: {error}")
                await asyncio.sleep(LOOK_AGAIN_S)
        except SpeclspError as error:
            self._say(state="error", message=str(error))

    async def _look(self, wire: Wire) -> None:
        """Ask what model the server runs. Raises ConnectionLost and BadAnswer, or SpeclspError when that is final."""
        if self._speaks_infill:
            await wire.get("health")
            self._say(state="ready", message="", target=self._url)
            return
        listed = await wire.get("models")
        try:
            self._model = str(listed["data"][0]["id"])
        except (LookupError, TypeError) as error:
            raise BadAnswer("it lists no models at /v1/models.") from error
        name = self._config.pair if self._config.pair != "auto" else pair_of(self._model)
        self._fim = cards.load(name).fim
        self._say(state="ready", message="", pair=name, target=self._model)

    def _say(self, **changes: str) -> None:
        new = replace(self.status, **changes)  # type: ignore[arg-type]
        if new != self.status:
            self.status = new
            self._on_status(new)


def pair_of(model: str) -> str:
    """The pair whose target is called `model` on the hub. Raises EngineError."""
    for name in cards.names():
        if cards.load(name).target.repo.lower().rpartition("/")[2] == model.lower().rpartition("/")[2]:
            return name
    raise EngineError(
        f"the server runs {model!r}, which no card describes: set pair to one with the same fill-in-the-middle markers."
    )


def fim_prompt(fim: Fim, request: FimRequest) -> str:
    """The request laid out with a family's markers; the current line last, after the middle marker where it is PSM."""
    extra = "".join(f"{fim.file_sep}{path}\n{text}\n" for path, text in request.extra) if fim.file_sep else ""
    if extra and fim.file_sep:
        extra += f"{fim.file_sep}{request.path}\n"
    if fim.order == "spm":
        return f"{extra}{fim.suffix}{request.suffix}{fim.prefix}{request.prefix}{fim.middle}{request.line_prefix}"
    return f"{extra}{fim.prefix}{request.prefix}{fim.suffix}{request.suffix}{fim.middle}{request.line_prefix}"
