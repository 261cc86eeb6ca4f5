"""A server somewhere else as the Backend: `backend.url`, whatever speaks /infill or OpenAI's /v1/completions.

    look ─► ready ─► requests ─► failures open the breaker ─► nothing is sent for a while ─► look again
            servers.py  asking.py                breaker.py

Nothing runs there for us but our requests; closing the stream is cancelling. While the server is left alone every
request is answered empty at once. What is wrong with it, the way out and the next try are in the Status.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from speclsp.config import Config, api_keys
from speclsp.errors import EngineError, SpeclspError
from speclsp.lsp.backend.http import BadAnswer, TooLate, is_loopback
from speclsp.lsp.backend.remote import detection, error_messages, request_styles
from speclsp.lsp.backend.remote.circuit_breaker import CircuitBreaker
from speclsp.lsp.backend.remote.http import HttpRefused, RemoteHttp, Unreachable
from speclsp.lsp.backend.remote.request_styles import RemoteServerType
from speclsp.lsp.backend.types import FimRequest, OnStatus, Status, StreamPiece

KEYRING_S = 20.0  # the system may ask the user to open it
KEYRING_ASKS_S = 2.0  # ... and did so when it took longer: not a second time
LONGEST_SHOWN = 1000  # of what is in the status
OF_THE_REQUEST = (400, 413, 422)  # the server is well, and this one request is not to its liking
T = TypeVar("T")

asked_to_wait: dict[str, float] = {}  # {URL: time.monotonic() before which nothing is sent}: outlives changed settings


class RemoteBackend:
    """A server at `backend.url`."""

    reads_ahead = False  # somebody else's machine, and not every server takes 0 tokens
    kept_while_off = True  # it holds nothing of anybody's

    def __init__(self, config: Config, on_status: OnStatus, own_url: str = "") -> None:
        """`own_url`: the server that the user's own settings name; a key that is for no server by name is for it."""
        self._config, self._on_status, self._own_url = config, on_status, own_url
        self._url = config.backend.url.rstrip("/")
        host = urlsplit(self._url).netloc.rpartition("@")[2]
        self.status = Status(state="starting", message=f"looking at {host}", pair=config.pair, device=host, remote=host)
        self.server = RemoteServerType()  # as it was found
        self._wire: RemoteHttp | None = None
        self._breaker = CircuitBreaker()
        self._opened = asyncio.Event()
        self._unwanted: set[str] = set()
        self._withheld = ""  # a key that is not for this server
        self._denied = False  # the last fault was the key's
        self._asked_a_person = False  # the keyring took so long that it must have
        self._life: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._life = asyncio.create_task(self._live())

    async def close(self) -> None:
        if self._life is not None:
            self._life.cancel()
            with suppress(asyncio.CancelledError):
                await self._life
        if self._wire is not None:
            await self._wire.close()

    def end(self) -> None:
        pass  # nothing of ours runs elsewhere

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        wire = self._wire
        if wire is None or self.status.state != "ready":
            raise EngineError(self.status.message or "the server is not known to be ready yet.")
        begun, heard = time.monotonic(), False
        try:
            async with aclosing(request_styles.ask(wire, self.server, request, self._unwanted)) as pieces:
                async for piece in pieces:
                    if not heard:
                        heard = True
                        self._succeeded()
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            waited_ms = (time.monotonic() - begun) * 1000
            if not heard and waited_ms > 0.9 * request.deadline_ms:  # given up because it took too long
                self._failed(TooLate(f"it has said nothing within {request.deadline_ms / 1000:g} s."))
            raise
        except EngineError as error:
            self._failed(error)
            raise
        except Exception as error:
            self._failed(not_understood(error))
            raise not_understood(error) from error

    # ── is it well? ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        """Find out what the server is, and look again whenever it was left alone for a while."""
        try:
            self._wire, api, infill = await self._connect()
        except SpeclspError as error:
            self._say(state="error", message=self._sentence(error))
            return
        if (wait_s := asked_to_wait.get(self._url, 0.0) - time.monotonic()) > 0:
            self._say(state="error", message=f"{self.status.remote} asks to be left alone until {clock(wait_s)}.")
            await asyncio.sleep(wait_s)
        while True:
            self._opened.clear()
            try:
                self.server = await detection.find_out(self._wire, self._config, api, infill)
            except SpeclspError as error:
                self._open(error)
            except Exception as error:  # whatever a stranger's words lead to, the next look comes
                self._open(not_understood(error))
            else:
                self._breaker.looked_well()
                pair, target = self.server.pair or self._config.pair, self.server.model or self._url
                target = target.replace("\\", "/").rpartition("/")[2] if target.endswith(".gguf") else target
                self._say(state="ready", message="", pair=pair, target=target)
                await self._opened.wait()
            await asyncio.sleep(self._breaker.wait_s)
            if self._denied and not self._asked_a_person:
                self._wire = await self._with_another_key(self._wire)

    async def _connect(self) -> tuple[RemoteHttp, str, bool]:
        """The wire, with the key that is for this server. Raises SpeclspError: there must be none."""
        parts = urlsplit(self._url)
        if "@" in parts.netloc:
            raise SpeclspError(
                "take name and password out of it, settings are no place for them: `speclsp key set URL`."
            )
        if parts.query or parts.fragment:
            raise SpeclspError("it has a `?` or `#` part: write the address alone.")
        if parts.scheme != "https" and not is_loopback(self._url):
            raise SpeclspError(
                "it would send your code in the clear: use https://, or a tunnel that ends on this machine."
            )
        root, api, infill = detection.addresses(self._url)
        url, own_url, begun = self._url, self._own_url, time.monotonic()
        try:
            key, self._withheld = await asyncio.wait_for(in_thread(lambda: api_keys.find(url, own_url)), KEYRING_S)
        except asyncio.TimeoutError as error:
            raise SpeclspError(
                f"the system's keyring has not answered within {KEYRING_S:.0f} s: open it, and restart the language "
                f"server, or set {api_keys.VARIABLE}."
            ) from error
        self._asked_a_person = time.monotonic() - begun > KEYRING_ASKS_S
        return RemoteHttp(root, key, self._config.backend.ca_file), api, infill

    async def _with_another_key(self, wire: RemoteHttp) -> RemoteHttp:
        """A wire with the key that is stored by now: the user was told to store one. Closes `wire`."""
        with suppress(SpeclspError):  # then the next look says what is wrong with the old one
            fresh, _, _ = await self._connect()
            await wire.close()
            return fresh
        return wire

    def _succeeded(self) -> None:
        self._breaker.succeeded()
        if self.status.state == "ready" and self.status.message:
            self._say(message="")

    def _failed(self, error: EngineError) -> None:
        """A request has failed: say so, and leave the server alone where that is wiser."""
        if self.status.state != "ready":
            return  # another one has said so
        if isinstance(error, HttpRefused) and error.status in OF_THE_REQUEST:
            self._say(message=self._sentence(error, "has failed once"))
            return
        final = isinstance(error, Unreachable) or (isinstance(error, HttpRefused) and error.status < 500)
        if self._breaker.failed(final, getattr(error, "retry_after_s", None)):
            self._tell_open(error)
        else:
            self._say(message=self._sentence(error, "has failed once"))

    def _open(self, error: SpeclspError) -> None:
        self._breaker.failed(True, getattr(error, "retry_after_s", None))
        self._tell_open(error)

    def _tell_open(self, error: SpeclspError) -> None:
        self._opened.set()
        self._denied = isinstance(error, HttpRefused) and error.status in (401, 403)
        if getattr(error, "retry_after_s", None) is not None:
            asked_to_wait[self._url] = time.monotonic() + self._breaker.wait_s
        self._say(state="error", message=f"{self._sentence(error)} Next try at {clock(self._breaker.wait_s)}.")

    def _sentence(self, error: SpeclspError, what: str = "cannot be used") -> str:
        shown = urlsplit(self._url)._replace(netloc=self.status.remote).geturl()  # a password was refused, and not told
        denied = isinstance(error, HttpRefused) and error.status in (401, 403)
        hint = f" {self._withheld[0].upper()}{self._withheld[1:]}" if denied and self._withheld else ""
        return f"backend.url = {shown!r} {what}: {error}{hint}"

    def _say(self, **changes: str) -> None:
        shown = {
            name: error_messages.visible(text)[:LONGEST_SHOWN] for name, text in changes.items()
        }  # a stranger's words
        new = replace(self.status, **shown)  # type: ignore[arg-type]
        if new != self.status:
            self.status = new
            self._on_status(new)


def not_understood(error: Exception) -> BadAnswer:
    """For what nobody foresaw in an answer."""
    return BadAnswer(f"its answer cannot be understood ({type(error).__name__}).")


def clock(wait_s: float) -> str:
    """What the clock says in so many seconds."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + wait_s))


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns, from a thread that nobody has to wait for at the end."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if not result.done():
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="keyring", daemon=True).start()
    return await result
