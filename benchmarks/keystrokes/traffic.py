"""Load model for `sizing`: the requests that one developer's typing sends to a server behind `remote.url`.

    python -m benchmarks traffic [--model NAME] [--minutes 6] [--slower MS ...]

    recorded keys ─► speclsp lsp (remote.url) ─► a tap that counts ─► our engine's /v1/completions, the real model

The tap sees the requests that any server would get: after the language server's reuse, typing through and cancelling,
and without prefetch. Each --slower repeats the run with the answers delayed by so many ms: the typist overtakes a
slower server more often, which changes the number of requests. Prompts are counted in the model's tokens. The part that
a prefix cache would hold is computed from the prompts (blocks of 16, as in vLLM), not taken from our engine. Tokens of
the answer are those sent before the language server closed the stream. Writes benchmarks/results/traffic-<model>.json,
one row for each request; no text. In real time: so many minutes for each --slower.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from benchmarks import results_file
from benchmarks.keystrokes.keystrokes import ROOT, chosen, recordings, uri_of, warm_up
from benchmarks.keystrokes.language_server import Server
from benchmarks.keystrokes.replay_editor import Press, replay
from speclsp import config
from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.engine.model.kv_archive import common_prefix
from speclsp.errors import EngineError
from speclsp.weights import cards, store

BLOCK_TOKENS = 16  # of the prefix cache, as vLLM's
LOADING_S = 300
NEAR_S = 0.1  # a stream that was read to the end, or far enough, is closed so near to the editor's answer
AGES = (
    1,
    2,
    3,
    4,
    8,
    16,
)  # of a cache that saw only each so-manieth request of this developer: replicas without affinity
COLUMNS = (
    "at_ms",  # since the recording began
    "prompt_tokens",
    "max_tokens",
    "output_tokens",  # sent until the stream was closed, by whom ever
    "first_ms",  # -1: nothing came
    "open_ms",
    "overtaken",  # closed because of a key
    "wanted_ms",  # until a key ends it; where it was answered in time, until the next key
    *(f"cached_tokens_{age}" for age in AGES),
)


@dataclass(slots=True)
class Call:
    """One request that reached the server."""

    at_s: float
    prompt: str
    max_tokens: int
    first_s: float = 0.0
    closed_s: float = 0.0
    text: str = ""
    ended: bool = False  # by the server: its own stop, or its limit


@dataclass(slots=True)
class Tap:
    """A proxy on loopback before a server on a Unix socket; holds every answer back by `slower_ms`."""

    socket: str
    slower_ms: float
    calls: list[Call] = field(default_factory=list)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def start(self) -> None:
        up = threading.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            up.set()
            async with server:
                await server.serve_forever()

        def run() -> None:
            with contextlib.suppress(asyncio.CancelledError, RuntimeError):
                self._loop.run_until_complete(serve())

        threading.Thread(target=run, name="tap", daemon=True).start()
        up.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request for each connection: the next one comes on a new one."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
            length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")), 0)
            body = await reader.readexactly(length)
            call = None
            if b"/completions" in lines[0]:
                request = json.loads(body)
                call = Call(perf_counter(), request["prompt"], request["max_tokens"])
                self.calls.append(call)
            from_server, to_server = await asyncio.open_unix_connection(self.socket)
            to_server.write(b"\r\n".join([*lines, b"connection: close", b"", b""]) + body)
            closed = asyncio.ensure_future(reader.read(1))  # the client closes: nothing else comes from it
            pump = asyncio.ensure_future(self._pump(from_server, writer, call))
            await asyncio.wait({closed, pump}, return_when=asyncio.FIRST_COMPLETED)
            if call is not None:
                call.closed_s = perf_counter()
            for task in (closed, pump):
                task.cancel()
            to_server.close()
        writer.close()

    async def _pump(
        self, from_server: asyncio.StreamReader, to_client: asyncio.StreamWriter, call: Call | None
    ) -> None:
        rest = b""
        while data := await from_server.read(65536):
            if call is not None:
                await asyncio.sleep(max(0.0, call.at_s + self.slower_ms / 1000 - perf_counter()))
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._note(line, call)
            to_client.write(data)
            await to_client.drain()

    @staticmethod
    def _note(line: bytes, call: Call) -> None:
        if not line.startswith(b"data: {"):
            return
        for choice in json.loads(line[6:]).get("choices") or []:
            call.text += choice.get("text") or ""
            call.first_s = call.first_s or perf_counter()
            call.ended |= bool(choice.get("finish_reason"))


class Remote(Server):
    """A language server whose engine is somewhere else, and tells no counts."""

    def metrics(self) -> dict[str, float]:
        return {}


@contextlib.contextmanager
def engine(settings: Config) -> Iterator[str]:
    """Our engine with the model loaded, on a Unix socket; its path."""
    with tempfile.TemporaryDirectory(prefix="speclsp-") as place:
        socket = f"{place}/e.sock"
        words = [sys.executable, "-m", "speclsp", "engine", "--socket", socket, *config.as_flags(settings)]
        process = subprocess.Popen([*words, "--watch-parent", str(os.getpid())], stdin=subprocess.DEVNULL)
        try:
            until_s = monotonic() + LOADING_S
            while not ready(socket):
                if process.poll() is not None or monotonic() > until_s:
                    raise EngineError("the engine did not come up.")
                sleep(0.2)
            yield socket
        finally:
            process.terminate()
            process.wait(20)


def ready(path: str) -> bool:
    """True if the engine at that socket has loaded its model."""
    import http.client
    import socket

    connection = http.client.HTTPConnection("engine")
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.settimeout(5)
        connection.sock.connect(path)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def language_server(settings: Config) -> Iterator[Remote]:
    """As `replay.serving`, for a server elsewhere."""
    with tempfile.TemporaryDirectory(prefix="speclsp-") as place:
        server = Remote(settings, Path(place))
        try:
            yield server
        finally:
            server.end()


def typed(
    settings: Config, socket: str, minutes: float, slower_ms: float, bar: terminal.ProgressLine
) -> list[list[Any]]:
    """(recording, its presses, the calls they led to), one after the other."""
    tap = Tap(socket, slower_ms)
    tap.start()
    results = []
    try:
        whole = config.with_value(settings, "remote.url", f"http://127.0.0.1:{tap.port}")
        whole = config.with_value(whole, "remote.api", "template")
        plan = chosen(recordings(), minutes)
        with language_server(whole) as server:
            server.begin(ROOT)
            warm_up(server, plan[0][0])
            for number, (recording, limit_ms) in enumerate(plan):
                bar.step(number / len(plan), f"{recording.language}, answers {slower_ms:g} ms later")
                before = len(tap.calls)
                presses = replay(server, recording, uri_of(recording), limit_ms)
                sleep(0.3)
                results.append([recording, presses, tap.calls[before:]])
    finally:
        tap.stop()
    return results


def shared(ids: Sequence[int], other: Sequence[int]) -> int:
    """Tokens of `ids` that a prefix cache holds after `other`, in whole blocks; the last token is always computed."""
    return common_prefix(ids[:-1], other) // BLOCK_TOKENS * BLOCK_TOKENS


def rows(presses: Sequence[Press], calls: Sequence[Call], tokenizer: Any) -> Iterator[str]:
    """Each call in numbers, in the order of COLUMNS."""
    began_s = presses[0].sent_s if presses else 0.0
    sent = [press.sent_s for press in presses]
    earlier: list[list[int]] = []  # newest first
    for call in calls:
        ids = tokenizer.encode(call.prompt, add_special_tokens=False).ids
        answered = any(press.error == 0 and abs(press.heard_s - call.closed_s) < NEAR_S for press in presses)
        overtaken = not (call.ended or answered)
        next_s = next((at_s for at_s in sent if at_s > call.at_s + 0.001), call.closed_s + 10.0)
        wanted_s = call.closed_s if overtaken else max(next_s, call.closed_s)
        numbers = [
            round((call.at_s - began_s) * 1000),
            len(ids),
            call.max_tokens,
            len(tokenizer.encode(call.text, add_special_tokens=False).ids),
            round((call.first_s - call.at_s) * 1000) if call.first_s else -1,
            round((call.closed_s - call.at_s) * 1000),
            int(overtaken),
            round((wanted_s - call.at_s) * 1000),
        ]
        ages = [max((shared(ids, other) for other in earlier[age - 1 :: age]), default=0) for age in AGES]
        yield " ".join(map(str, [*numbers, *ages]))
        earlier.insert(0, ids)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks traffic`."""
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct")
    parser.add_argument("--minutes", type=float, default=6.0, help="of typing, spread over all languages")
    parser.add_argument("--slower", type=float, nargs="+", default=[0.0, 150.0, 400.0], metavar="MS")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    from tokenizers import Tokenizer

    settings = config.load({"model": options.model})
    folder = store.ensure(cards.load(options.model).target)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    servers = []
    with terminal.progress() as bar, engine(settings) as socket:
        for slower_ms in options.slower:
            load_before = os.getloadavg()[0]
            sessions = [
                {
                    "language": recording.language,
                    "path": recording.path,
                    "seconds": round(sum(min(press.next_ms, 10_000) for press in presses) / 1000, 1),
                    "keys": len(presses),
                    "seen": sum(press.on_screen for press in presses),
                    "requests": list(rows(presses, calls, tokenizer)),
                }
                for recording, presses, calls in typed(settings, socket, options.minutes, slower_ms, bar)
            ]
            servers.append(
                {"slower_ms": slower_ms, "load_average": [load_before, os.getloadavg()[0]], "sessions": sessions}
            )
    figures = {
        "pair": options.model,
        "minutes": options.minutes,
        "block_tokens": BLOCK_TOKENS,
        "columns": COLUMNS,
        "servers": servers,
    }
    print(f"wrote {results_file.write('traffic', figures, name=f'traffic-{options.model}')}")
    return 0
