"""FimRequest in, a stream of Pieces out: from the engine on this machine, or from a server somewhere else.

    local.Engine   our child process, or the one that listens on `engine.socket`; HTTP over a Unix socket, POST /infill
    Remote         `backend.url`: llama.cpp's /infill, or /v1/completions with the card's fill-in-the-middle template

Closing the stream is cancelling: the other side stops within a round. A backend that is not ready, or that goes away,
raises EngineError from `stream`, and its Status says what is wrong and what to do. The only door to httpx, which is
imported when a backend starts: the editor has its answer to `initialize` by then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from speclsp import cards
from speclsp.cards import Fim
from speclsp.config import Config
from speclsp.errors import EngineError, SpeclspError

LOOK_AGAIN_S = 5.0  # at a server that does not answer
SLACK_S = 2.0  # past a request's deadline before its connection is given up
KEY_VARIABLE = "SPECLSP_API_KEY"  # sent as a bearer token; a secret has no place in settings


@dataclass(frozen=True, slots=True, kw_only=True)
class FimRequest:
    """One completion to make, in text, newlines as \\n. `line_prefix` goes after the middle marker: typing appends."""

    prefix: str = ""  # all before the current line
    line_prefix: str = ""  # the current line up to the cursor
    suffix: str = ""
    path: str = ""  # shown to the model
    extra: tuple[tuple[str, str], ...] = ()  # (path, text) from elsewhere
    max_tokens: int = 64
    deadline_ms: int = 3000
    temperature: float = 0.0
    seed: int = 0
    session: str = ""  # the newest request of a session supersedes its older ones
    previous: str = ""  # expected after the cursor, from an earlier suggestion: drafted from, never trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a completion took. Zeros where the server does not say."""

    stop_type: str = ""
    prompt_tokens: int = 0  # those in the cache included
    cached_tokens: int = 0  # of the prompt, found in the KV cache
    tokens: int = 0
    ttft_ms: float = 0.0
    rounds: int = 0
    by_source: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # {"ngram": {"drafted": 8, "accepted": 5}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one round added."""

    text: str = ""
    tokens: int = 0
    source: str = ""  # which drafter guessed
    drafted: int = 0
    accepted: int = 0
    cost: Cost | None = None  # on the last piece only


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a backend is doing, for the status line."""

    state: str  # "starting" | "loading" | "ready" | "error"
    message: str = ""  # one sentence for a person
    progress: float | None = None  # 0 to 1 while loading, when known
    pair: str = ""
    target: str = ""
    draft: str = ""
    device: str = ""


OnStatus = Callable[[Status], None]


class Backend(Protocol):
    """Whoever makes completions."""

    status: Status
    reads_ahead: bool  # whether a request for no tokens is worth making: it only warms the cache

    def start(self) -> None:
        """Begin to make it ready; `status` changes from then on. Call once, from the event loop."""

    def stream(self, request: FimRequest) -> AsyncGenerator[Piece, None]:
        """The completion, round by round. Close the iterator to cancel. Raises EngineError."""

    async def close(self) -> None:
        """Stop, and leave nothing behind."""

    def end(self) -> None:
        """Leave no process behind; when the event loop has stopped already. Takes a second or so at most."""


def connect(config: Config, on_status: OnStatus, log: Callable[[str], None]) -> Backend:
    """The backend that `config` asks for; not started yet. `log` gets what an engine of ours prints."""
    if config.backend.url:
        return Remote(config, on_status)
    from speclsp.lsp.local import Engine

    return Engine(config, on_status, log)


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class ConnectionLost(EngineError):
    """Nobody answers, or the other side went away in the middle of an answer."""


class TooLate(EngineError):
    """The other side is there, and has not answered in time."""


class BadAnswer(EngineError):
    """The other side does not speak what we expect."""


class Wire:
    """HTTP to one server: over a Unix socket when `socket` is given, else to `url`. Redirects are not followed."""

    def __init__(self, url: str = "http://engine", socket: str | None = None, headers: Mapping[str, str] = {}) -> None:
        import httpx

        limits = httpx.Limits(max_connections=None)
        transport = httpx.AsyncHTTPTransport(uds=socket, limits=limits) if socket else None
        direct = socket is not None or is_loopback(url)  # such traffic has no business with a proxy
        self._http = httpx.AsyncClient(
            transport=transport, base_url=url, headers=dict(headers), timeout=5.0, trust_env=not direct, limits=limits
        )

    async def get(self, path: str) -> Any:
        """The JSON at `path`, whatever the HTTP status. Raises ConnectionLost, BadAnswer."""
        import httpx

        try:
            return (await self._http.get(path)).json()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionLost(f"the connection failed ({type(error).__name__})") from error
        except ValueError as error:
            raise BadAnswer("the server's answer is not JSON.") from error

    async def post(
        self, path: str, body: Mapping[str, object], deadline_ms: int
    ) -> AsyncGenerator[dict[str, Any], None]:
        """POST `body`; the JSON of each server-sent event, as it arrives. Raises EngineError."""
        import httpx

        limit = httpx.Timeout(deadline_ms / 1000 + SLACK_S, connect=SLACK_S)
        content = json.dumps(body).encode()  # ASCII: a lone surrogate from an editor survives as an escape
        kind = {"content-type": "application/json"}
        try:
            async with self._http.stream("POST", path, content=content, headers=kind, timeout=limit) as response:
                if response.status_code != 200:
                    raise EngineError(error_text(response.status_code, await response.aread()))
                rest = b""
                async for chunk in response.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")  # by hand: httpx would also split at U+2028
                    for line in lines:
                        data = line.removeprefix(b"data:").strip()
                        if line.startswith(b"data:") and data != b"[DONE]":
                            yield as_object(data)
        except httpx.ReadTimeout as error:
            raise TooLate(f"no answer within {limit.read} s") from error
        except httpx.HTTPError as error:
            raise ConnectionLost(f"the connection was lost ({type(error).__name__})") from error

    async def close(self) -> None:
        await self._http.aclose()


def as_object(data: bytes) -> dict[str, Any]:
    """A JSON object that is no error. Raises EngineError."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadAnswer("the server's answer is not a JSON object for each event.")
    if "error" in found:
        raise EngineError(error_text(500, data))
    return found


def error_text(status: int, body: bytes) -> str:
    """What an error answer says, in one line."""
    with suppress(ValueError, LookupError, TypeError):
        error = json.loads(body)["error"]
        return str(error.get("message") if isinstance(error, dict) else error)[:300]
    return f"the server answered with HTTP status {status}."


def is_loopback(url: str) -> bool:
    """Whether `url` stays on this machine."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


async def infill(wire: Wire, path: str, request: FimRequest) -> AsyncGenerator[Piece, None]:
    """POST to a server that speaks /infill, in llama.cpp's names where it has them. Raises EngineError."""
    body = {
        "input_prefix": request.prefix,
        "prompt": request.line_prefix,
        "input_suffix": request.suffix,
        "input_extra": [{"filename": name, "text": text} for name, text in request.extra],
        "filename": request.path,
        "n_predict": request.max_tokens,
        "t_max_predict_ms": request.deadline_ms,
        "temperature": request.temperature,
        "seed": request.seed,
        "session": request.session,
        "previous": request.previous,
        "stream": True,
        "cache_prompt": True,
    }
    async with aclosing(wire.post(path, body, request.deadline_ms)) as events:
        async for event in events:
            yield as_piece(event)
            if event.get("stop"):
                return
    raise ConnectionLost("the answer ended before its last piece")


def as_piece(event: Mapping[str, Any]) -> Piece:
    """One event of /infill; the last one carries the Cost."""
    tokens, made = event.get("tokens"), event.get("round") or {}
    count = len(tokens) if isinstance(tokens, list) else 0
    text = str(event.get("content") or "")
    if not event.get("stop"):
        drafted, accepted = int(made.get("drafted") or 0), int(made.get("accepted") or 0)
        return Piece(text=text, tokens=count, source=str(made.get("source") or ""), drafted=drafted, accepted=accepted)
    timings, speculation = event.get("timings") or {}, event.get("speculation") or {}
    cost = Cost(
        stop_type=str(event.get("stop_type") or ""),
        prompt_tokens=int(timings.get("prompt_n") or 0) + int(timings.get("cache_n") or 0),
        cached_tokens=int(timings.get("cache_n") or 0),
        tokens=int(timings.get("predicted_n") or count),
        ttft_ms=float(timings.get("ttft_ms") or 0.0),
        rounds=int(speculation.get("rounds") or 0),
        by_source=speculation.get("by_source") or {},
    )
    return Piece(text=text, cost=cost)


# ── a server somewhere else ───────────────────────────────────────────────────────────────────────────────────────────


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
