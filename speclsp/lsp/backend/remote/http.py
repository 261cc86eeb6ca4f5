"""HTTP to somebody else's server: every answer bounded in time and size, every failure a sentence with a way out.

    connect   a certificate that can be trusted, always; a proxy only where the server is not on this machine
    answer    uncompressed, as JSON or server-sent events, of bounded length; redirects are never followed
    key       goes to this one server and is struck out of whatever it says

httpx is imported when a backend starts: the editor has its answer to `initialize` by then.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from speclsp import __version__
from speclsp.errors import EngineError
from speclsp.lsp.backend.http import BadAnswer, ConnectionLost, TooLate, is_loopback, plain_object
from speclsp.lsp.backend.remote import error_messages

if TYPE_CHECKING:
    import httpx

CONNECT_S = 3.0
SLACK_S = 2.0  # past a request's deadline before its connection is given up
DRAIN_S = 0.05  # for what follows the last event: a connection whose answer was read wholly can be used again
LONGEST_LINE_BYTES = 2**20
LONGEST_ANSWER_BYTES = 8 * 2**20
LONGEST_ERROR_BYTES = 2**16
DONE: Mapping[str, Any] = {"done": True}  # what `data: [DONE]` is handed on as


class Unreachable(ConnectionLost):
    """No connection could be made."""


class HttpRefused(EngineError):
    """The server answered, and does not do what was asked."""

    def __init__(self, status: int, message: str, said: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.said, self.retry_after_s = status, said, retry_after_s


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer."""

    status: int
    kind: str  # its content type
    data: bytes

    def json(self) -> Any:
        """Raises BadAnswer."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise BadAnswer(error_messages.not_json(self.kind)) from error


class RemoteHttp:
    """One server and a pool of connections to it. `url`: what paths are appended to."""

    def __init__(self, url: str, key: str = "", ca_file: str = "") -> None:
        """Raises EngineError: `ca_file` holds no certificates."""
        import httpx

        self.url, self._key = url.rstrip("/"), key
        headers = {"user-agent": f"speclsp/{__version__}", "accept-encoding": "identity"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        direct = is_loopback(url)  # such traffic has no business with a proxy
        self._http = httpx.AsyncClient(
            base_url=self.url + "/",
            headers=headers,
            timeout=httpx.Timeout(5.0, connect=CONNECT_S),
            verify=trusting(ca_file) if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=not direct,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None),
        )

    async def fetch(self, path: str, body: Mapping[str, object] | None = None, timeout_s: float = 5.0) -> HttpAnswer:
        """GET, or POST `body`; the answer whatever its HTTP status. Raises ConnectionLost, TooLate, BadAnswer."""
        return await self._whole(path, body, timeout_s, refuse=False)

    async def json(self, path: str, body: Mapping[str, object] | None = None, timeout_s: float = 5.0) -> Any:
        """The JSON of an answer that is no error. Raises EngineError."""
        return (await self._whole(path, body, timeout_s, refuse=True)).json()

    async def post(
        self,
        path: str,
        body: Mapping[str, object],
        deadline_ms: int,
        is_last: Callable[[Mapping[str, Any]], bool] = lambda event: False,
        headers: Mapping[str, str] = {},
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """POST `body`; the JSON of each server-sent event as it arrives, up to the one that `is_last`, or DONE.

        Closing the iterator closes the connection. Raises EngineError.
        """
        import httpx

        begun, limit_s = time.monotonic(), deadline_ms / 1000 + SLACK_S
        timeout = httpx.Timeout(limit_s, connect=min(limit_s, CONNECT_S))
        content = self._content(body)
        content["headers"] |= headers
        try:
            async with self._http.stream("POST", path, timeout=timeout, **content) as response:
                await self._refuse(response, path, body)
                chunks = response.aiter_raw()
                async with aclosing(self._events(response, chunks, body)) as events:
                    async for event in events:
                        if time.monotonic() - begun > limit_s:
                            raise TooLate(f"its answer has not ended within {limit_s:g} s.")
                        if event is DONE or is_last(event):
                            with suppress(asyncio.TimeoutError):
                                await asyncio.wait_for(drain(chunks), DRAIN_S)
                            yield event
                            return
                        yield event
        except httpx.HTTPError as error:
            raise self._lost(error, limit_s) from error

    async def close(self) -> None:
        await self._http.aclose()

    async def _whole(self, path: str, body: Mapping[str, object] | None, timeout_s: float, refuse: bool) -> HttpAnswer:
        import httpx

        async def whole() -> HttpAnswer:
            try:
                async with self._http.stream(
                    "GET" if body is None else "POST", path, **self._content(body)
                ) as response:
                    if refuse:
                        await self._refuse(response, path, body)
                    data = await read(response, LONGEST_ANSWER_BYTES)
                    return HttpAnswer(response.status_code, kind_of(response), data)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._lost(error, timeout_s) from error

        try:
            return await asyncio.wait_for(whole(), timeout_s)
        except asyncio.TimeoutError as error:
            raise TooLate(f"it has not answered within {timeout_s:g} s.") from error

    def redacted(self, text: str, sent: Mapping[str, object] = {}) -> str:
        """`text` in one short line, without the key, and without what of the request it repeats."""
        text = error_messages.visible(" ".join(text[: error_messages.LONGEST_SAID].split()))
        text = text.replace(self._key, "***") if self._key else text
        return error_messages.without(text, sent)[:300]

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _events(
        self, response: httpx.Response, chunks: AsyncIterator[bytes], sent: Mapping[str, object]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """What a good answer holds, event by event."""
        kind = kind_of(response)
        if kind == "application/json":  # a server that does not stream
            yield self._event(await read(response, LONGEST_ANSWER_BYTES, chunks), sent)
            yield DONE
            return
        if kind not in ("text/event-stream", ""):
            raise BadAnswer(error_messages.not_json(kind))
        check_encoding(response)
        rest, size = b"", 0
        async for chunk in chunks:
            size += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")  # by hand: httpx would also split at U+2028
            for line in lines:
                if line.startswith(b"data:"):
                    data = line.removeprefix(b"data:").strip()
                    yield DONE if data == b"[DONE]" else self._event(data, sent)
            if len(rest) > LONGEST_LINE_BYTES or size > LONGEST_ANSWER_BYTES:
                raise BadAnswer("its answer has no end.")

    def _event(self, data: bytes, sent: Mapping[str, object]) -> dict[str, Any]:
        """One event. Raises EngineError when it is an error."""
        try:
            found = plain_object(data)
        except (BadAnswer, RecursionError) as error:
            raise BadAnswer("its answer is not a JSON object for each event.") from error
        if "error" in found and not found.get("choices"):
            raise HttpRefused(
                500, f"it failed: {self.redacted(error_messages.spoken(data), sent) or 'it does not say why'}."
            )
        return found

    async def _refuse(self, response: httpx.Response, path: str, sent: Mapping[str, object] | None = None) -> None:
        """Raises Refused unless the answer is a good one."""
        status = response.status_code
        if 200 <= status < 300:
            return
        said = ""
        with suppress(BadAnswer):
            said = self.redacted(error_messages.spoken(await read(response, LONGEST_ERROR_BYTES)), sent or {})
        wait_s = error_messages.retry_after_s(response.headers.get("retry-after", "")) if status in (429, 503) else None
        place = f"{urlsplit(self.url).path}/{path}"
        where = self.redacted(error_messages.target_of(self.url, response.headers.get("location", "")))
        raise HttpRefused(status, error_messages.refusal(status, said, place, where, bool(self._key)), said, wait_s)

    def _content(self, body: Mapping[str, object] | None) -> dict[str, Any]:
        if body is None:
            return {}
        content = json.dumps(body).encode()  # ASCII: a lone surrogate from an editor survives as an escape
        return {"content": content, "headers": {"content-type": "application/json"}}

    def _lost(self, error: Exception, limit_s: float) -> EngineError:
        """The sentence for a connection that failed."""
        import httpx

        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return TooLate(f"it has not answered within {limit_s:g} s.")
        host = urlsplit(self.url).hostname or ""
        if isinstance(error, httpx.ConnectTimeout):
            return Unreachable(f"{host} does not answer within {CONNECT_S:g} s: is the network, or a VPN, connected?")
        if isinstance(error, httpx.ProxyError):
            return Unreachable(f"the proxy of this environment (HTTPS_PROXY) refuses: {self.redacted(str(error))}.")
        if isinstance(error, httpx.ConnectError | httpx.InvalidURL):
            return Unreachable(error_messages.why_unreachable(error, host))
        if isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error):
            if "peer closed" in str(error) or "incomplete" in str(error):
                return ConnectionLost("its answer ended in the middle.")
            return ConnectionLost("what answers there does not speak HTTP: correct backend.url.")
        return ConnectionLost(f"the connection was lost ({type(error).__name__}).")


async def read(response: httpx.Response, most_bytes: int, chunks: AsyncIterator[bytes] | None = None) -> bytes:
    """The body, as it was sent. Raises BadAnswer."""
    check_encoding(response)
    data = bytearray()
    async for chunk in chunks if chunks is not None else response.aiter_raw():
        data += chunk
        if len(data) > most_bytes:
            raise BadAnswer("its answer has no end.")
    return bytes(data)


def check_encoding(response: httpx.Response) -> None:
    """Nothing is decompressed: a few bytes could become any number. Raises BadAnswer."""
    if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise BadAnswer("it compresses its answer, though it was asked not to.")


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left."""
    async for _ in chunks:
        pass


def kind_of(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def trusting(ca_file: str) -> ssl.SSLContext:
    """Checks certificates against the system's authorities, those of Mozilla, and `ca_file`. Raises EngineError."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
    except OSError as error:  # SSLError as well
        why = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else "it holds no certificates"
        raise EngineError(f"backend.ca_file = {ca_file!r} cannot be used: {why}.") from error
    return context
