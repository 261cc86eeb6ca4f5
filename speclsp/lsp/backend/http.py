"""HTTP as both kinds of backend speak it: one connection pool, JSON, server-sent events. The only door to httpx.

httpx is imported when a backend starts: the editor has its answer to `initialize` by then.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

from speclsp.daemon import endpoint
from speclsp.errors import EngineError
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamBranch, StreamPiece, StreamStart

UNIX = getattr(socket, "AF_UNIX", None)
SLACK_S = 2.0  # past a request's deadline before its connection is given up


class ConnectionLost(EngineError):
    """Nobody answers, or the other side went away in the middle of an answer."""


class TooLate(EngineError):
    """The other side is there, and has not answered in time."""


class BadAnswer(EngineError):
    """The other side does not speak what we expect."""


class EngineHttp:
    """HTTP to one server: over a Unix socket when `socket` is given, else to `url`. Redirects are not followed."""

    def __init__(self, url: str = "http://engine", socket: str | None = None, headers: Mapping[str, str] = {}) -> None:
        import httpx

        limits = httpx.Limits(max_connections=None)
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no TLS here: reading all the authorities takes 20 ms
        transport = httpx.AsyncHTTPTransport(uds=socket, limits=limits, verify=nobody) if socket else None
        direct = socket is not None or is_loopback(url)  # such traffic has no business with a proxy
        self._http = httpx.AsyncClient(
            transport=transport,
            base_url=url,
            headers=dict(headers),
            timeout=5.0,
            trust_env=not direct,
            limits=limits,
            verify=nobody,
        )

    async def get(self, path: str, timeout_s: float | None = 5.0) -> Any:
        """The JSON at `path`, whatever the HTTP status; without `timeout_s` it is waited for. Raises as `tell`."""
        import httpx

        try:
            return (await self._http.get(path, timeout=timeout_s)).json()
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

    async def events(self, path: str) -> AsyncGenerator[dict[str, Any], None]:
        """GET a stream without an end; the JSON of each server-sent event, errors too, and {} for a comment.

        However long nothing comes. Ends when the server ends it in order. Raises ConnectionLost, BadAnswer.
        """
        import httpx

        limit = httpx.Timeout(None, connect=SLACK_S)
        try:
            async with self._http.stream("GET", path, timeout=limit) as response:
                stream = response.extensions.get("network_stream")
                connection = stream.get_extra_info("socket") if stream is not None else None
                if connection is not None and connection.family == UNIX and not endpoint.is_own_peer(connection):
                    raise BadAnswer("it runs as another user.")
                if response.status_code == 503:
                    raise ConnectionLost("it is ending")
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise BadAnswer("it has no such stream.")
                rest = b""
                async for chunk in response.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line.startswith(b"data:"):
                            yield plain_object(line.removeprefix(b"data:"))
                        elif line.startswith(b":"):
                            yield {}
        except httpx.HTTPError as error:
            raise ConnectionLost(f"the connection was lost ({type(error).__name__})") from error

    async def tell(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """POST `body`; the JSON of the answer. Raises ConnectionLost, BadAnswer."""
        import httpx

        try:
            return plain_object((await self._http.post(path, json=dict(body))).content)
        except httpx.HTTPError as error:
            raise ConnectionLost(f"the connection failed ({type(error).__name__})") from error

    async def close(self) -> None:
        await self._http.aclose()


def plain_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises BadAnswer."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadAnswer("the server's answer is not a JSON object for each event.")
    return found


def as_object(data: bytes) -> dict[str, Any]:
    """A JSON object that is no error. Raises EngineError."""
    found = plain_object(data)
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


async def infill(wire: EngineHttp, path: str, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
    """POST to a server that speaks /infill. Raises EngineError."""
    async with aclosing(wire.post(path, infill_body(request), request.deadline_ms)) as events:
        async for event in events:
            yield as_piece(event)
            if event.get("stop"):
                return
    raise ConnectionLost("the answer ended before its last piece")


def infill_body(request: FimRequest) -> dict[str, object]:
    """The body of /infill, in llama.cpp's names where it has them."""
    return {
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
        "round_logprobs": True,
        "cache_prompt": True,
        **({"begin": list(request.begin)} if request.begin else {}),
        **({"n_branches": request.branches} if request.branches else {}),
        **({"idle": True} if request.idle else {}),
    }


def as_piece(event: Mapping[str, Any]) -> StreamPiece:
    """One event of /infill; the last one carries the Cost. Raises BadAnswer."""
    try:
        return _as_piece(event)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise BadAnswer("its answer is not what /infill gives.") from error


def _as_piece(event: Mapping[str, Any]) -> StreamPiece:
    tokens, made, branches = event.get("tokens"), event.get("round") or {}, event.get("branches")
    count = len(tokens) if isinstance(tokens, list) else 0
    text = str(event.get("content") or "")
    if not event.get("stop"):
        drafted, accepted = int(made.get("drafted") or 0), int(made.get("accepted") or 0)
        return StreamPiece(
            text=text,
            tokens=count,
            source=str(made.get("source") or ""),
            drafted=drafted,
            accepted=accepted,
            ms=float(made.get("ms") or 0.0),
            logprobs=as_logprobs(made.get("characters") or (), made.get("logprobs") or ()),
            ids=tuple(map(whole, tokens or ())) if branches is not None else (),
            branches=tuple(map(as_branch, branches)) if branches is not None else None,
            start=as_start(event["start"]) if event.get("start") else None,
        )
    timings, speculation = event.get("timings") or {}, event.get("speculation") or {}
    cost = CompletionCost(
        stop_type=str(event.get("stop_type") or ""),
        prompt_tokens=int(timings.get("prompt_n") or 0) + int(timings.get("cache_n") or 0),
        cached_tokens=int(timings.get("cache_n") or 0),
        tokens=int(timings.get("predicted_n") or count),
        ttft_ms=float(timings.get("ttft_ms") or 0.0),
        draft_only=event.get("draft_only") is True,
        rounds=int(speculation.get("rounds") or 0),
        by_source={
            str(source): {name: int(counts[name]) for name in ("drafted", "accepted") if name in counts}
            for source, counts in (speculation.get("by_source") or {}).items()
        },
    )
    return StreamPiece(text=text, cost=cost)


def as_logprobs(characters: Sequence[object], logprobs: Sequence[object]) -> tuple[tuple[int, float], ...]:
    """What each token of a round brought, and how likely it was. Raises TypeError, ValueError."""
    told = tuple((whole(count), real(chance)) for count, chance in zip(characters, logprobs, strict=True))
    if any(count < 0 or not chance <= 0.01 for count, chance in told):  # rounded, a certain one may be above 0
        raise ValueError("no number of characters, or no logarithm of a probability")
    return told


def as_branch(told: Mapping[str, Any]) -> StreamBranch:
    """Where the answer might have gone on otherwise. Raises TypeError, ValueError, AttributeError."""
    at, chars, token = (whole(told.get(name)) for name in ("at", "chars", "id"))
    p = real(told.get("p"))
    if min(at, chars, token) < 0 or not 0 <= p <= 1.01:
        raise ValueError("no place, or no probability")
    return StreamBranch(at=at, chars=chars, token=token, text=str(told.get("text") or ""), p=p)


def whole(found: object) -> int:
    """A whole number as JSON has it. Raises TypeError."""
    if type(found) is not int:
        raise TypeError("not a whole number")
    return found


def real(found: object) -> float:
    """A number as JSON has it. Raises TypeError."""
    if type(found) not in (int, float):
        raise TypeError("not a number")
    return float(found)  # type: ignore[arg-type]


def as_start(told: Mapping[str, Any]) -> StreamStart:
    """What came before the first round."""
    numbers = {name: int(told.get(name) or 0) for name in ("prompt_tokens", "cached_tokens", "left_out_tokens")}
    times = {name: float(told.get(name) or 0.0) for name in ("queue_ms", "prompt_ms")}
    return StreamStart(**numbers, **times)  # type: ignore[arg-type]
