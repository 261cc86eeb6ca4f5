"""HTTP client of completion servers: streams in any chunks, errors in one sentence, timeouts, loopback checks."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from async_tests import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.faults.local_listener import TOKEN, listening, listening_on_port, unused_address

from speclsp.errors import EngineError
from speclsp.lsp.backend.engine_http import (
    ConnectionLost,
    EngineHttp,
    InvalidResponse,
    ResponseTimeout,
    is_loopback_url,
)
from speclsp.lsp.backend.infill_codec import infill_body, is_last, parse_piece
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece, end_task

ASK = FimRequest(prefix="a\n", line_prefix="b", suffix="c", path="f.py", extra=(("g.py", "d"),), deadline_ms=500)
ODD = "x\u2028\u0085\r\n\ud800é𝒙"  # line ends of other standards, and a character that is not valid UTF-8


class Server:
    """An HTTP server that answers with unframed bytes and records its requests."""

    def __init__(self, answer: Callable[[str, bytes], Iterable[bytes]], pause_s: float = 0.0) -> None:
        self.answer, self.pause_s = answer, pause_s
        self.bodies: list[Any] = []
        self.headers: list[str] = []
        self.closed = asyncio.Event()  # a client disconnected in the middle of an answer

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


CHUNKED = b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n"


def sse(*events: object) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event, ensure_ascii=True).encode() for event in events)


async def completion(http: EngineHttp) -> AsyncGenerator[StreamPiece, None]:
    """The pieces of one /infill answer."""
    async with aclosing(http.post_events("/infill", infill_body(ASK), ASK.deadline_ms, is_last)) as events:
        async for event in events:
            yield parse_piece(event)


async def ask(
    answer: Callable[[str, bytes], Iterable[bytes]], path: Path, **how: Any
) -> tuple[list[StreamPiece], Server]:
    """All pieces of one /infill answer, and the server."""
    server = Server(answer, **how)
    async with listening(server.serve, path) as address:
        http = EngineHttp(**address)
        try:
            return [piece async for piece in completion(http)], server
        finally:
            await http.close()


LAST = {
    "content": "",
    "stop": True,
    "stop_type": "eos",
    "timings": {"prompt_n": 5, "cache_n": 3, "predicted_n": 4, "ttft_ms": 1.5},
    "speculation": {"rounds": 2, "drafted": 4, "accepted": 2, "by_source": {"ngram": {"drafted": 4, "accepted": 2}}},
}
ROUND = {"content": ODD, "tokens": [1, 2], "stop": False, "round": {"source": "ngram", "drafted": 4, "accepted": 1}}


async def test_rounds_become_pieces_and_the_last_one_carries_the_cost(isolated: Path):
    pieces, server = await ask(lambda *_: [head() + sse(ROUND, LAST)], isolated / "s")
    assert pieces[0] == StreamPiece(text=ODD, tokens=2, source="ngram", drafted=4, accepted=1, ids=(1, 2))
    assert pieces[1].cost == CompletionCost(stop_type="eos", prompt_tokens=8, cached_tokens=3)
    (body,) = server.bodies
    assert (body["input_prefix"], body["prompt"], body["input_suffix"]) == ("a\n", "b", "c")
    assert body["input_extra"] == [{"filename": "g.py", "text": "d"}]
    assert body["t_max_predict_ms"] == 500 and body["stream"] is True


def framed(body: bytes, framing: str) -> bytes:
    """A whole answer: in chunks, with its length, or up to the end of the connection."""
    if framing == "chunks":
        parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]))
        return CHUNKED + parts + b"0\r\n\r\n"
    return head()[:-2] + (b"Content-Length: %d\r\n\r\n" % len(body) if framing == "length" else b"\r\n") + body


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(cuts=st.lists(st.integers(0, 500), max_size=6), framing=st.sampled_from(["chunks", "length", "end"]))
def test_an_event_stream_parses_the_same_however_it_is_framed_and_cut(isolated: Path, cuts: list[int], framing: str):
    stream = sse({"content": "é"}, ROUND) + b": a comment\n\nevent: x\n" + sse(LAST) + b"data: [DONE]\n\n"
    whole = framed(stream, framing)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts = [whole[a:b] for a, b in itertools.pairwise(edges)]

    async def work() -> None:
        pieces, _ = await ask(lambda *_: parts, isolated / "s")
        assert [piece.text for piece in pieces] == ["é", ODD, ""]

    run(work())


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (head(400) + b'{"error":{"code":400,"message":"n_predict is -1."}}', EngineError, "n_predict is -1."),
        (head(503) + b"<html>", EngineError, "HTTP status 503"),
        (head(500) + b'{"error":"plain"}', EngineError, "plain"),
        (head(302) + b"", EngineError, "HTTP status 302"),
        (head() + sse(ROUND, {"error": {"message": "out of memory"}}), EngineError, "out of memory"),
        (head() + b"data: {\n\n", InvalidResponse, "not a JSON object"),
        (head() + b"data: []\n\n", InvalidResponse, "not a JSON object"),
        (head() + sse(ROUND), ConnectionLost, "is incomplete"),
        (CHUNKED + b"5\r\nda", ConnectionLost, "lost"),
        (CHUNKED + b"zz\r\n", ConnectionLost, "lost"),
        (CHUNKED + b"a\r\ndata: {}\n\n", ConnectionLost, "lost"),
        (b"HTTP/1.1 200 -\r\ncontent-length: 9\r\n\r\nhalf", ConnectionLost, "lost"),
        (b"nonsense\r\n\r\n", ConnectionLost, "lost"),
        (b"", ConnectionLost, "lost"),
    ],
)
async def test_every_failure_is_reported_in_one_sentence(
    answer: bytes, error: type[EngineError], message: str, isolated: Path
):
    with pytest.raises(error, match=message) as raised:
        await ask(lambda *_: [answer], isolated / "s")
    assert "\n" not in str(raised.value)


async def test_a_missing_server_is_a_lost_connection(isolated: Path):
    http = EngineHttp(**unused_address(isolated / "none"))
    with pytest.raises(ConnectionLost):
        await http.get("/health")
    with pytest.raises(ConnectionLost):
        [piece async for piece in completion(http)]
    await http.close()


@pytest.mark.parametrize("close", [None, EngineHttp.close], ids=["leaving the stream", "closing the client"])
async def test_leaving_a_stream_and_closing_the_client_both_close_the_connection(isolated: Path, close: Any):
    server = Server(lambda *_: [head(), *[sse(ROUND)] * 1000], pause_s=0.01)
    async with listening(server.serve, isolated / "s") as address:
        http = EngineHttp(**address)
        async with aclosing(completion(http)) as pieces:
            await anext(pieces)
            if close is not None:
                await close(http)
                await asyncio.wait_for(server.closed.wait(), 5)  # of ten seconds of text
        await asyncio.wait_for(server.closed.wait(), 5)


@pytest.mark.parametrize("begun", [b"", CHUNKED, head()])
async def test_silence_ends_with_a_timeout(isolated: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes):
    monkeypatch.setattr("speclsp.lsp.backend.engine_http.SLACK_S", 0.2)
    server = Server(lambda *_: [begun], pause_s=60.0)
    async with listening(server.serve, isolated / "s") as address:
        with pytest.raises(ResponseTimeout):
            async with aclosing(EngineHttp(**address).post_events("/infill", {}, 0, is_last)) as events:
                [event async for event in events]


async def test_an_engine_on_a_port_is_sent_the_token():
    """As on systems without Unix sockets: Windows."""
    server = Server(lambda *_: [head() + b"{}"])
    async with listening_on_port(server.serve) as address:
        assert await EngineHttp(**address).get("/health") == {}
    assert f"authorization: Bearer {TOKEN}" in server.headers[0]


@pytest.mark.parametrize(
    ("is_loopback", "urls"),
    [
        (True, "http://127.0.0.1:1 http://[::1]:1 http://localhost/x http://a.localhost"),
        (False, "http://127.0.0.1.evil.org http://0.0.0.0 http://10.0.0.1 http://u:127.0.0.1@x"),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(is_loopback: bool, urls: str):
    assert [is_loopback_url(url) for url in urls.split()] == [is_loopback] * 4


async def test_a_task_that_loses_a_cancellation_is_cancelled_again():
    cancellations = 0

    async def life() -> None:
        nonlocal cancellations
        while cancellations < 2:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancellations += 1

    task = asyncio.create_task(life())
    await asyncio.sleep(0)
    await end_task(task)
    assert (cancellations, task.done()) == (2, True)


async def test_the_error_of_an_ended_task_is_raised():
    async def life() -> None:
        raise ConnectionLost("gone")

    task = asyncio.create_task(life())
    await asyncio.sleep(0)
    with pytest.raises(ConnectionLost, match="gone"):
        await end_task(task)
