"""The wire to whoever completes: streams cut anywhere, errors in one sentence, servers that are not what they seem."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp import config as settings
from speclsp.cards import Fim
from speclsp.config import Config, parse
from speclsp.errors import EngineError
from speclsp.lsp import backend, child, local
from speclsp.lsp.backend import Cost, FimRequest, Piece, Status
from speclsp.lsp.remote import Remote, fim_prompt
from speclsp.lsp.wire import BadAnswer, ConnectionLost, TooLate, Wire, infill, is_loopback

ASK = FimRequest(prefix="a\n", line_prefix="b", suffix="c", path="f.py", extra=(("g.py", "d"),), deadline_ms=500)
ODD = "x\u2028\u0085\r\n\ud800é𝒙"  # what splits lines elsewhere, and what is no UTF-8


class Server:
    """An HTTP server over a Unix socket that answers with bytes as they are, and notes what it was sent."""

    def __init__(self, answer: Callable[[str, bytes], Iterable[bytes]], pause_s: float = 0.0) -> None:
        self.answer, self.pause_s = answer, pause_s
        self.bodies: list[Any] = []
        self.headers: list[str] = []
        self.closed = asyncio.Event()  # a client went away in the middle

    @asynccontextmanager
    async def at(self, path: Path | None) -> AsyncIterator[str]:
        """Serve on a socket, or on a port when there is no path; the address."""
        if path is not None:
            server = await asyncio.start_unix_server(self.serve, path)
            where = str(path)
        else:
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            where = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield where
        finally:
            server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:")), 0
            )
            body = await reader.readexactly(length)
            self.headers.append(head)
            self.bodies.append(json.loads(body) if body else None)
            for part in self.answer(head.split()[1], body):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(self.pause_s)
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.set()


def head(status: int = 200, kind: str = "text/event-stream") -> bytes:
    return b"HTTP/1.1 %d -\r\nconnection: close\r\ncontent-type: %b\r\n\r\n" % (status, kind.encode())


def sse(*events: object) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event, ensure_ascii=True).encode() for event in events)


async def text_of(pieces: AsyncIterator[Piece]) -> str:
    return "".join([piece.text async for piece in pieces])


def run(work: Awaitable[object]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(work, 10)

    asyncio.run(whole())


async def ask(answer: Callable[[str, bytes], Iterable[bytes]], path: Path, **how: Any) -> tuple[list[Piece], Server]:
    """All pieces of /infill."""
    server = Server(answer, **how)
    async with server.at(path) as where:
        wire = Wire(socket=where)
        try:
            return [piece async for piece in infill(wire, "/infill", ASK)], server
        finally:
            await wire.close()


LAST = {
    "content": "",
    "stop": True,
    "stop_type": "eos",
    "timings": {"prompt_n": 5, "cache_n": 3, "predicted_n": 4, "ttft_ms": 1.5},
    "speculation": {"rounds": 2, "drafted": 4, "accepted": 2, "by_source": {"ngram": {"drafted": 4, "accepted": 2}}},
}
ROUND = {"content": ODD, "tokens": [1, 2], "stop": False, "round": {"source": "ngram", "drafted": 4, "accepted": 1}}


def test_rounds_become_pieces_and_the_last_one_tells_the_cost(isolated: Path):
    async def work() -> None:
        pieces, server = await ask(lambda *_: [head() + sse(ROUND, LAST)], isolated / "s")
        assert pieces[0] == Piece(text=ODD, tokens=2, source="ngram", drafted=4, accepted=1)
        assert pieces[1].cost == Cost(
            stop_type="eos",
            prompt_tokens=8,
            cached_tokens=3,
            tokens=4,
            ttft_ms=1.5,
            rounds=2,
            by_source={"ngram": {"drafted": 4, "accepted": 2}},
        )
        (body,) = server.bodies
        assert (body["input_prefix"], body["prompt"], body["input_suffix"]) == ("a\n", "b", "c")
        assert body["input_extra"] == [{"filename": "g.py", "text": "d"}]
        assert body["t_max_predict_ms"] == 500 and body["stream"] is True

    run(work())


@given(cuts=st.lists(st.integers(0, 300), max_size=5))
def test_it_does_not_matter_where_the_stream_is_cut(cuts: list[int]):
    whole = sse({"content": "é"}, ROUND) + b": a comment\n\nevent: x\n" + sse(LAST) + b"data: [DONE]\n\n"
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts = [whole[a:b] for a, b in itertools.pairwise(edges)]

    class Response:
        status_code = 200

        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            for part in parts:
                yield part

    class Http:
        @asynccontextmanager
        async def stream(self, *_: object, **__: object) -> AsyncIterator[Response]:
            yield Response()

    wire = Wire.__new__(Wire)
    wire._http = Http()  # type: ignore[assignment]

    async def work() -> None:
        texts = [piece.text async for piece in infill(wire, "/infill", ASK)]
        assert texts == ["é", ODD, ""]

    run(work())


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (head(400) + b'{"error":{"code":400,"message":"n_predict is -1."}}', EngineError, "n_predict is -1."),
        (head(503) + b"<html>", EngineError, "HTTP status 503"),
        (head(500) + b'{"error":"plain"}', EngineError, "plain"),
        (head(302) + b"", EngineError, "HTTP status 302"),
        (head() + sse(ROUND, {"error": {"message": "out of memory"}}), EngineError, "out of memory"),
        (head() + b"data: {\n\n", BadAnswer, "not a JSON object"),
        (head() + b"data: []\n\n", BadAnswer, "not a JSON object"),
        (head() + sse(ROUND), ConnectionLost, "ended before"),
        (b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n5\r\nda", ConnectionLost, "lost"),
        (b"nonsense\r\n\r\n", ConnectionLost, "lost"),
        (b"", ConnectionLost, "lost"),
    ],
)
def test_what_goes_wrong_is_one_sentence(answer: bytes, error: type[EngineError], said: str, isolated: Path):
    async def work() -> None:
        with pytest.raises(error, match=said) as raised:
            await ask(lambda *_: [answer], isolated / "s")
        assert "\n" not in str(raised.value)

    run(work())


def test_nobody_there_is_a_lost_connection(isolated: Path):
    async def work() -> None:
        wire = Wire(socket=str(isolated / "none"))
        with pytest.raises(ConnectionLost):
            await wire.get("/health")
        with pytest.raises(ConnectionLost):
            [piece async for piece in infill(wire, "/infill", ASK)]
        await wire.close()

    run(work())


def test_a_server_that_says_nothing_is_given_up_after_the_deadline(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("speclsp.lsp.wire.SLACK_S", 0.2)

    async def work() -> None:
        start = time.perf_counter()
        with pytest.raises(TooLate):
            await ask(lambda *_: [head()], isolated / "s", pause_s=5)
        assert time.perf_counter() - start < 2

    run(work())


def test_a_closed_stream_is_a_closed_connection(isolated: Path):
    async def work() -> None:
        server = Server(lambda *_: [head(), *[sse(ROUND)] * 1000], pause_s=0.01)
        async with server.at(isolated / "s") as where:
            wire = Wire(socket=where)
            async with aclosing(infill(wire, "/infill", ASK)) as pieces:
                async for _ in pieces:
                    break
            await asyncio.wait_for(server.closed.wait(), 1)
            await wire.close()

    run(work())


# ── servers somewhere else ────────────────────────────────────────────────────────────────────────────────────────────


def remote(url: str, said: list[Status], pair: str = "auto") -> Remote:
    config, problems = parse({"backend.url": url, "pair": pair})
    assert problems == []
    found = backend.connect(config, said.append, lambda line: None)
    assert isinstance(found, Remote)
    return found


async def until(said: list[Status], state: str) -> Status:
    while not said or said[-1].state != state:
        await asyncio.sleep(0.01)
    return said[-1]


def openai(model: str, *events: object) -> Callable[[str, bytes], list[bytes]]:
    def answer(path: str, body: bytes) -> list[bytes]:
        if path == "/v1/models":
            return [head(kind="application/json") + json.dumps({"data": [{"id": model}]}).encode()]
        assert path == "/v1/completions"
        return [head() + sse(*events) + b"data: [DONE]\n\n"]

    return answer


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/completions"])
def test_an_openai_server_gets_the_markers_of_the_pair_whose_model_it_runs(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPECLSP_API_KEY", "secret")
    chunks = [{"choices": [{"text": text, "finish_reason": None}]} for text in ("x", ODD)]
    chunks += [{"choices": [{"text": "", "finish_reason": "length"}]}]

    async def work() -> None:
        server, said = Server(openai("Qwen/Qwen2.5-Coder-7B", *chunks)), list[Status]()
        async with server.at(None) as url:
            found = remote(url + path, said)
            found.start()
            status = await until(said, "ready")
            assert (status.pair, status.target) == ("qwen2.5-coder-7b", "Qwen/Qwen2.5-Coder-7B")
            pieces = [piece async for piece in found.stream(ASK)]
            await found.close()
        assert "".join(piece.text for piece in pieces) == "x" + ODD
        assert pieces[-1].cost == Cost(stop_type="limit", tokens=3)
        prompt = server.bodies[-1]["prompt"]
        assert prompt.endswith("<|fim_prefix|>a\n<|fim_suffix|>c<|fim_middle|>b")
        assert "g.py\nd" in prompt
        assert "authorization: bearer secret" in server.headers[-1].lower()

    run(work())


def test_a_llama_cpp_server_is_asked_as_an_engine_is():
    def answer(path: str, body: bytes) -> list[bytes]:
        if path == "/health":
            return [head(kind="application/json") + b'{"status":"ok"}']
        assert path == "/infill"
        return [head() + sse({"content": "x", "stop": False, "tokens": [1]}, {"content": "", "stop": True})]

    async def work() -> None:
        said = list[Status]()
        async with Server(answer).at(None) as url:
            found = remote(url + "/infill", said)
            found.start()
            await until(said, "ready")
            assert await text_of(found.stream(ASK)) == "x"
            await found.close()

    run(work())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://198.51.100.7:8000", "in the clear"),
        ("http://localhost.example.org", "in the clear"),
        ("http://127.0.0.1:9", "cannot be used"),
    ],
)
def test_a_remote_that_cannot_be_used_says_why(url: str, said: str):
    async def work() -> None:
        heard = list[Status]()
        found = remote(url, heard)
        found.start()
        assert said in (await until(heard, "error")).message
        with pytest.raises(EngineError):
            await text_of(found.stream(ASK))
        await found.close()

    run(work())


def test_a_model_without_a_card_is_named():
    async def work() -> None:
        said = list[Status]()
        async with Server(openai("acme/wonder")).at(None) as url:
            found = remote(url, said)
            found.start()
            assert "'acme/wonder'" in (await until(said, "error")).message
            await found.close()
            named = remote(url, said, pair="starcoder2-3b")
            named.start()
            assert (await until(said, "ready")).pair == "starcoder2-3b"
            await named.close()

    run(work())


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost/x", "http://a.localhost"])
def test_loopback_is_recognised(url: str):
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1.evil.org", "http://0.0.0.0", "http://10.0.0.1", "http://u:127.0.0.1@x"]
)
def test_what_is_not_loopback_is_not(url: str):
    assert not is_loopback(url)


def test_suffix_first_families_get_their_order():
    fim = Fim(order="spm", prefix="<P>", suffix="<S>", middle="<M>")
    assert fim_prompt(fim, ASK) == "<S>c<P>a\n<M>b"


# ── our own process ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_runtime_directory_is_replaced_by_a_private_one(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    short, made = child.socket_path()
    assert made is None and short.parent == settings.runtime_dir()
    long = isolated / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    path, made = child.socket_path()
    assert made is not None and path.parent == made and len(os.fsencode(path)) <= settings.SOCKET_PATH_BYTES
    assert made.stat().st_mode & 0o777 == 0o700
    made.rmdir()


def test_relative_paths_mean_the_same_to_the_engine():
    config = child.rooted(Config(pair="./models/mine", models_dir="weights"))
    assert (config.pair, config.models_dir) == (str(Path.cwd() / "models/mine"), str(Path.cwd() / "weights"))
    assert child.rooted(Config(pair="echo")) == Config(pair="echo")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit('speclsp engine: no weights: run this.')", "no weights: run this."),
        ("raise SystemExit(3)", "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended 3 times"),
    ],
)
def test_an_engine_that_does_not_start_is_explained(
    program: str, said: str, monkeypatch: pytest.MonkeyPatch, isolated: Path
):
    fake = isolated / "python"
    fake.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{program}"\n')
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(local, "BACKOFF_S", (0.0, 0.0, 0.0))

    async def work() -> None:
        heard, lines = list[Status](), list[str]()
        engine = backend.connect(Config(pair="echo"), heard.append, lines.append)
        engine.start()
        assert said in (await until(heard, "error")).message
        await engine.close()

    run(work())
    assert list(settings.runtime_dir().iterdir()) == []


def test_an_engine_that_will_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, isolated: Path):
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    fake = isolated / "python"
    fake.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{stubborn}"\n')
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(child, "GENTLE_END_S", 0.2)
    lines: list[str] = []
    started = child.Child.start(Config(pair="echo"), lines.append)
    while not lines:
        time.sleep(0.01)
    begin = time.perf_counter()
    started.end()
    assert time.perf_counter() - begin < 1
    assert not Path(f"/proc/{started.pid}").exists()
