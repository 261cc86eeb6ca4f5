"""HTTP to somebody else's server: every answer bounded in time and size, every failure a sentence with a way out.

    connect   a certificate that can be trusted, always; a proxy only where the server is not on this machine
    answer    uncompressed, as JSON or server-sent events, of bounded length; redirects are never followed
    key       goes to this one server and is struck out of whatever it says

httpx is imported when a backend starts: the editor has its answer to `initialize` by then.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from speclsp import __version__
from speclsp.errors import EngineError
from speclsp.lsp.wire import BadAnswer, ConnectionLost, TooLate, is_loopback, plain_object

if TYPE_CHECKING:
    import httpx

CONNECT_S = 3.0
SLACK_S = 2.0  # past a request's deadline before its connection is given up
DRAIN_S = 0.05  # for what follows the last event: a connection whose answer was read wholly can be used again
LONGEST_LINE_BYTES = 2**20
LONGEST_ANSWER_BYTES = 8 * 2**20
LONGEST_ERROR_BYTES = 2**16
LONGEST_WAIT_S = 86_400.0  # a Retry-After that asks for more is a mistake
DONE: Mapping[str, Any] = {"done": True}  # what `data: [DONE]` is handed on as


class Unreachable(ConnectionLost):
    """No connection could be made."""


class Refused(EngineError):
    """The server answered, and does not do what was asked."""

    def __init__(self, status: int, message: str, said: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.said, self.retry_after_s = status, said, retry_after_s


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    kind: str  # its content type
    data: bytes

    def json(self) -> Any:
        """Raises BadAnswer."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise BadAnswer(not_json(self.kind)) from error


class FarWire:
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
            verify=trusting(ca_file) if url.startswith("https:") else True,
            trust_env=not direct,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None),
        )

    async def fetch(self, path: str, body: Mapping[str, object] | None = None, timeout_s: float = 5.0) -> Answer:
        """GET, or POST `body`; the answer whatever its HTTP status. Raises ConnectionLost, TooLate, BadAnswer."""
        import httpx

        async def whole() -> Answer:
            try:
                async with self._http.stream(
                    "GET" if body is None else "POST", path, **self._content(body)
                ) as response:
                    data = await read(response, LONGEST_ANSWER_BYTES)
                    return Answer(response.status_code, kind_of(response), data)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._lost(error, timeout_s) from error

        try:
            return await asyncio.wait_for(whole(), timeout_s)
        except asyncio.TimeoutError as error:
            raise TooLate(f"it has not answered within {timeout_s:g} s.") from error

    async def json(self, path: str, body: Mapping[str, object] | None = None, timeout_s: float = 5.0) -> Any:
        """The JSON of an answer that is no error. Raises EngineError."""
        import httpx

        async def whole() -> Any:
            try:
                async with self._http.stream(
                    "GET" if body is None else "POST", path, **self._content(body)
                ) as response:
                    await self._refuse(response, path)
                    return Answer(200, kind_of(response), await read(response, LONGEST_ANSWER_BYTES)).json()
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._lost(error, timeout_s) from error

        try:
            return await asyncio.wait_for(whole(), timeout_s)
        except asyncio.TimeoutError as error:
            raise TooLate(f"it has not answered within {timeout_s:g} s.") from error

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
                await self._refuse(response, path)
                chunks = response.aiter_raw()
                async with aclosing(self._events(response, chunks)) as events:
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

    def redacted(self, text: str) -> str:
        """`text` in one line, not too long, without the key."""
        text = " ".join(text.split())
        return (text.replace(self._key, "***") if self._key else text)[:300]

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _events(
        self, response: httpx.Response, chunks: AsyncIterator[bytes]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """What a good answer holds, event by event."""
        kind = kind_of(response)
        if kind == "application/json":  # a server that does not stream
            yield self._event(await read(response, LONGEST_ANSWER_BYTES, chunks))
            yield DONE
            return
        if kind not in ("text/event-stream", ""):
            raise BadAnswer(not_json(kind))
        check_encoding(response)
        rest, size = b"", 0
        async for chunk in chunks:
            size += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")  # by hand: httpx would also split at U+2028
            for line in lines:
                if line.startswith(b"data:"):
                    data = line.removeprefix(b"data:").strip()
                    yield DONE if data == b"[DONE]" else self._event(data)
            if len(rest) > LONGEST_LINE_BYTES or size > LONGEST_ANSWER_BYTES:
                raise BadAnswer("its answer has no end.")

    def _event(self, data: bytes) -> dict[str, Any]:
        """One event. Raises EngineError when it is an error."""
        try:
            found = plain_object(data)
        except (BadAnswer, RecursionError) as error:
            raise BadAnswer("its answer is not a JSON object for each event.") from error
        if "error" in found and not found.get("choices"):
            raise Refused(500, f"it failed: {self.redacted(spoken(data)) or 'it does not say why'}")
        return found

    async def _refuse(self, response: httpx.Response, path: str) -> None:
        """Raises Refused unless the answer is a good one."""
        status = response.status_code
        if 200 <= status < 300:
            return
        said = ""
        with suppress(BadAnswer):
            said = self.redacted(spoken(await read(response, LONGEST_ERROR_BYTES)))
        wait_s = retry_after_s(response.headers.get("retry-after", "")) if status in (429, 503) else None
        place = f"{urlsplit(self.url).path}/{path}"
        where = self.redacted(target_of(self.url, response.headers.get("location", "")))
        raise Refused(status, refusal(status, said, place, where, bool(self._key)), said, wait_s)

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
            return Unreachable(why_unreachable(error, host))
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


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def refusal(status: int, said: str, place: str, where: str, keyed: bool) -> str:
    """The sentence for an HTTP status that is no success. Begins with "it"."""
    because = f" ({said})" if said else ""
    if 300 <= status < 400:
        return (
            f"it redirects to {where or 'another address'} (HTTP {status}), and no redirect is followed: "
            f"if that is the right server, set backend.url to it."
        )
    if status == 401:
        if keyed:
            return f"it refuses the key (HTTP 401){because}: `speclsp key set URL` stores another."
        return f"it wants a key (HTTP 401){because}: `speclsp key set URL` stores one for it."
    if status == 403:
        return f"it denies access (HTTP 403){because}: ask whoever runs it what your key may do."
    if status == 404:
        return f"there is nothing at {place} (HTTP 404){because}: correct backend.url or backend.model."
    if status == 407:
        return "the proxy on the way wants a name and a password (HTTP 407)."
    if status == 429:
        return f"it takes no more requests from you for now (HTTP 429){because}."
    if status >= 500:
        return f"it fails (HTTP {status}){because}."
    return f"it refuses the request (HTTP {status}){because}."


def not_json(kind: str) -> str:
    """The sentence for an answer of another kind than was asked for."""
    if kind == "text/html":
        return "it answers with a web page, perhaps for signing in, and not as an API does: correct backend.url."
    return f"its answer is {kind or 'of no stated kind'} and not JSON: correct backend.url."


def spoken(body: bytes) -> str:
    """What an error answer says; "" where it says nothing readable."""
    with suppress(ValueError, RecursionError):
        found = json.loads(body)
        error = found.get("error", found.get("message", found.get("detail"))) if isinstance(found, dict) else None
        said = error.get("message") if isinstance(error, dict) else error
        return said if isinstance(said, str) else json.dumps(said)[:300] if said else ""
    return ""


def target_of(url: str, location: str) -> str:
    """Where a redirect leads, without what could be secret in it."""
    parts = urlsplit(location)
    host = parts.hostname or urlsplit(url).hostname or ""
    port = f":{parts.port}" if parts.hostname and parts.port else ""
    return f"{parts.scheme or urlsplit(url).scheme}://{host}{port}{parts.path}" if location else ""


def retry_after_s(value: str) -> float | None:
    """Seconds from a Retry-After header, which is a number of them or a date."""
    value = value.strip()
    wait_s: float | None = None
    if value.isascii() and value.isdigit():
        wait_s = float(value[:9])
    else:
        with suppress(ValueError, TypeError, IndexError):
            date = parsedate_to_datetime(value)
            date = date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)
            wait_s = (date - datetime.now(timezone.utc)).total_seconds()
    return None if wait_s is None else min(max(0.0, wait_s), LONGEST_WAIT_S)


def why_unreachable(error: BaseException, host: str) -> str:
    """What kept a connection from being made."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return untrusted(cause, host)
        if isinstance(cause, ssl.SSLError):
            return f"{host} does not speak TLS there ({cause.reason or 'no handshake'}): correct backend.url."
        if isinstance(cause, socket.gaierror):
            return f"there is no host named {host}: correct backend.url, or connect to the network that knows it."
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens at {host}'s port: start the server, or correct backend.url."
        if isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return f"there is no way to {host} from this network: is it, or a VPN, connected?"
    return f"no connection to {host} could be made ({type(error).__name__})."


def untrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    """What is wrong with a certificate."""
    found = error.verify_message
    if error.verify_code in (9, 10):
        return f"the certificate of {host} is not valid today ({found}): whoever runs it must renew it."
    if error.verify_code in (62, 63, 64):
        return f"the certificate of {host} is for another name: correct backend.url."
    return (
        f"the certificate of {host} is signed by nobody known here ({found}): "
        f"set backend.ca_file to the file with your organisation's certificate."
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and all that led to it."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop(0)
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [found.__cause__, found.__context__, *getattr(found, "exceptions", ())]
