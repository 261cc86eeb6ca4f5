"""Backend for a remote server at `remote.url` that speaks /infill or OpenAI's /v1/completions.

    detect ─► ready ─► requests ─► failures open the breaker ─► nothing is sent for a while ─► detect again
    detection.py       request_styles.py    circuit_breaker.py

Closing the stream cancels the request. While the breaker is open, every request fails at once. The Status shows the
problem, the fix and the time of the next try.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from urllib.parse import urlsplit

from speclsp.config import Config, api_keys
from speclsp.errors import MAX_MESSAGE, EngineError, SpeclspError, shortened
from speclsp.lsp.backend.engine_http import InvalidResponse, ResponseTimeout, is_loopback_url
from speclsp.lsp.backend.remote import detection, request_styles
from speclsp.lsp.backend.remote.circuit_breaker import CircuitBreaker
from speclsp.lsp.backend.remote.remote_http import HttpRefused, RemoteHttp, Unreachable, printable
from speclsp.lsp.backend.remote.request_styles import RemoteServerType
from speclsp.lsp.backend.types import FimRequest, OnStatus, Status, StreamPiece, end_task

REQUEST_ERRORS = (400, 413, 422)  # HTTP statuses that concern one request, not the server
EDIT_ERRORS = (400, 404, 405, 422, 501)  # of a next edit: the server takes no such request
DENIED = (401, 403)


class RemoteBackend:
    """A server at `remote.url`."""

    reads_ahead = False  # it would load someone else's machine, and not every server accepts 0 tokens

    def __init__(self, config: Config, on_status: OnStatus, own_url: str = "") -> None:
        """`own_url`: the server in the user's own settings; an API key without a server name goes only there."""
        self._config, self._on_status, self._own_url = config, on_status, own_url
        self._url = config.remote.url.rstrip("/")
        host = urlsplit(self._url).netloc.rpartition("@")[2]
        self.status = Status(
            state="starting", message=f"looking at {host}", model=config.model, device=host, remote=host
        )
        self.server = RemoteServerType()  # as detected
        self._http: RemoteHttp | None = None
        self._breaker = CircuitBreaker()
        self._opened = asyncio.Event()
        self._pause_s = 0.0  # from the opening of the breaker on
        self._withheld = ""  # message about a stored key that is not for this server
        self._key_denied = False  # the last failure was a refused key
        self._life: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._life = asyncio.create_task(self._live())

    async def close(self, replaced: bool = False) -> None:
        if self._life is not None:
            await end_task(self._life)
        if self._http is not None:
            await self._http.close()

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        http, is_edit = self._http, request.raw_prompt is not None
        if http is None or self.status.state != "ready":
            raise EngineError(self.status.message or "the server is not known to be ready yet.")
        if is_edit and not self.status.edit_format:
            raise EngineError("the server's model has no edit format, or gives no log-probabilities.")
        began_s, has_output = time.monotonic(), False
        try:
            async with aclosing(request_styles.complete(http, self.server, request)) as pieces:
                async for piece in pieces:
                    if is_edit and piece.text and not has_output and not piece.logprobs:
                        self._set_status(edit_format="")
                    if not has_output:
                        has_output = True
                        self._request_succeeded()
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            waited_ms = (time.monotonic() - began_s) * 1000
            if not has_output and waited_ms > 0.9 * request.deadline_ms:  # cancelled because it took too long
                self._request_failed(ResponseTimeout(f"it has said nothing within {request.deadline_ms / 1000:g} s."))
            raise
        except EngineError as error:
            if is_edit and isinstance(error, HttpRefused) and error.status in EDIT_ERRORS:
                self._set_status(edit_format="")  # suggestions use another path or other fields
            else:
                self._request_failed(error)
            raise
        except Exception as error:
            self._request_failed(not_understood(error))
            raise not_understood(error) from error

    # ── state of the server ───────────────────────────────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        """Detect the server type, and again each time the breaker has been open."""
        try:
            self._http = self._connect()
        except SpeclspError as error:
            self._set_status(state="error", message=self._message(error))
            return
        while True:
            self._opened.clear()
            try:
                self.server = await detection.detect(self._http, self._config)
            except SpeclspError as error:
                self._record_failure(error, at_once=True)
            except Exception as error:  # whatever the server's answer causes, detection runs again
                self._record_failure(not_understood(error), at_once=True)
            else:
                model, target = self.server.card_name or self._config.model, self.server.model or self._url
                target = target.replace("\\", "/").rpartition("/")[2] if target.endswith(".gguf") else target
                edit_format = self.server.edit_format
                self._set_status(state="ready", message="", model=model, target=target, edit_format=edit_format)
                await self._opened.wait()
            await asyncio.sleep(self._pause_s)
            if self._key_denied:
                with suppress(SpeclspError):  # then the next detection reports the problem with the old key
                    fresh = self._connect()  # the message asked the user to store another key
                    await self._http.close()
                    self._http = fresh

    def _connect(self) -> RemoteHttp:
        """The client with the key for this server. Raises SpeclspError: URL or settings forbid a connection."""
        parts = urlsplit(self._url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise SpeclspError("write the address alone, without name, password, `?` or `#`: `speclsp key set URL`.")
        if parts.scheme != "https" and not is_loopback_url(self._url):
            raise SpeclspError(
                "it would send your code in the clear: use https://, or a tunnel that ends on this machine."
            )
        key, self._withheld = api_keys.find(self._url, self._own_url)
        root = self._url.removesuffix("/completions").removesuffix("/v1")
        return RemoteHttp(root, key, self._config.remote.ca_file)

    def _request_succeeded(self) -> None:
        self._breaker.record_success()
        if self.status.state == "ready" and self.status.message:
            self._set_status(message="")

    def _request_failed(self, error: EngineError) -> None:
        """Report a failed request, and open the breaker if further requests would fail too."""
        if self.status.state != "ready":
            return  # another request has reported it
        if isinstance(error, HttpRefused) and error.status in REQUEST_ERRORS:
            self._set_status(message=self._message(error, "has failed once"))
        else:
            at_once = isinstance(error, Unreachable) or (isinstance(error, HttpRefused) and error.status < 500)
            self._record_failure(error, at_once)

    def _record_failure(self, error: SpeclspError, at_once: bool) -> None:
        self._pause_s = self._breaker.record_failure(at_once, getattr(error, "retry_after_s", 0.0))
        if not self._pause_s:
            self._set_status(message=self._message(error, "has failed once"))
            return
        self._opened.set()
        self._key_denied = isinstance(error, HttpRefused) and error.status in DENIED
        next_try = time.strftime("%H:%M:%S", time.localtime(time.time() + self._pause_s))
        self._set_status(state="error", message=f"{self._message(error)} Next try at {next_try}.")

    def _message(self, error: SpeclspError, predicate: str = "cannot be used") -> str:
        url = urlsplit(self._url)._replace(netloc=self.status.remote, query="", fragment="").geturl()  # without secrets
        denied = isinstance(error, HttpRefused) and error.status in DENIED
        hint = f" {self._withheld[0].upper()}{self._withheld[1:]}" if denied and self._withheld else ""
        return f"remote.url = {url!r} {predicate}: {error}{hint}"

    def _set_status(self, **changes: str) -> None:
        # a server can put anything into these texts
        safe = {name: shortened(printable(text), MAX_MESSAGE) for name, text in changes.items()}
        status = replace(self.status, **safe)  # type: ignore[arg-type]
        if status != self.status:
            self.status = status
            self._on_status(status)


def not_understood(error: Exception) -> InvalidResponse:
    """The error for an unforeseen exception while an answer is parsed."""
    return InvalidResponse(f"its answer cannot be understood ({type(error).__name__}).")
