"""The wire protocol without a process: framing, the writer, process exit, and replies."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import select
import socket
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types

from speclsp.lsp.protocol import framing, stdio
from speclsp.lsp.protocol.framing import MessageReader
from speclsp.lsp.protocol.initialize_answer import initialize_result
from speclsp.lsp.protocol.language_server import SpecLanguageServer
from speclsp.lsp.protocol.process_exit import ProcessExit
from speclsp.lsp.protocol.stdio import MessageWriter

SCALAR = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
PARAMS = {"processId": None, "rootUri": None, "capabilities": {}}
GOOD = {"jsonrpc": "2.0", "method": "good"}


def frame(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def read(data: bytes, chunk_bytes: int = 65_536) -> list[Any]:
    """The messages and faults that a MessageReader yields for a stream in chunks."""
    chunks = iter([data[i : i + chunk_bytes] for i in range(0, len(data), chunk_bytes)])
    return list(MessageReader(lambda _: next(chunks, b"")))


# ── framing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=100)
@given(st.lists(JSON, max_size=4), st.integers(1, 50))
def test_framed_messages_are_read_back_for_every_split_into_chunks(messages, chunk_bytes):
    assert read(b"".join(map(frame, messages)), chunk_bytes) == messages


@pytest.mark.parametrize("length", [1_000, 100_000, framing.MAX_MESSAGE_BYTES])
@pytest.mark.parametrize("body", [b"", json.dumps(GOOD).encode()])
def test_a_length_that_is_far_too_long_is_detected_when_the_next_message_arrives(length, body):
    chunks = [b"Content-Length: %d\r\n\r\n%b" % (length, body) + frame([1])[:9], frame([1])[9:], frame([2])]
    chunks = iter(chunks)  # after these the client waits for its answers
    reader = iter(MessageReader(lambda _: next(chunks)))
    first, second, third = next(reader), next(reader), next(reader)
    assert (first if body else first.code) == (GOOD if body else -32700)
    assert (second, third) == ([1], [2])


@pytest.mark.parametrize("chunk_bytes", [1, 11, 65_536])
def test_a_body_that_contains_headers_is_one_message(chunk_bytes):
    message = ["Content-Length: 5\r\n\r\n{}", {"Content-Length: 7": "\nContent-Length: 8\n"}]
    assert read(frame(message) + frame(json.dumps(message, indent="\r\n").encode()) + frame(GOOD), chunk_bytes) == [
        message, message, GOOD,
    ]  # fmt: skip


def test_lone_surrogates_are_read_both_escaped_and_raw():
    assert read(frame(b'"\\ud83d"') + frame(b'"\xed\xa0\xbd"')) == ["\ud83d", "\ud83d"]


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_writer_keeps_the_order_and_drops_only_notifications_when_the_client_stops_reading():
    read_end, write_end = os.pipe()
    writer = MessageWriter(write_end, on_broken=lambda: None)
    big = b'"' + b"x" * 2**20 + b'"'
    for _ in range(10):
        writer.write(big)
    writer.write(b'"news"', droppable=True)
    writer.write(b'"reply"')
    assert not writer.has_room()
    received = bytearray()
    while b'"reply"' not in received:
        received += os.read(read_end, 2**20)
    writer.close()
    assert writer.has_room()
    os.close(write_end), os.close(read_end)
    assert [len(m) for m in read(bytes(received))] == [2**20] * 10 + [len("reply")]


PIPES = [os.pipe, *([] if sys.platform == "win32" else [lambda: tuple(end.detach() for end in socket.socketpair())])]


@pytest.mark.parametrize("ends", PIPES)
@given(sizes=st.lists(st.sampled_from([0, 10, 400, 3000, 4060, 4090, 5000, 70_000]), max_size=60), ahead=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_order_is_kept_between_direct_and_queued_writes(ends, sizes, ahead):
    read_end, write_end = ends()
    writer, received, bodies = (
        MessageWriter(write_end, lambda: None),
        bytearray(),
        [b"%d" % n * size for n, size in enumerate(sizes)],
    )
    total = sum(len(b"Content-Length: %d\r\n\r\n" % len(body)) + len(body) for body in bodies)

    def read_all() -> None:
        while len(received) < total:
            received.extend(os.read(read_end, 5000))

    reader = threading.Thread(target=read_all)
    if ahead:
        reader.start()
    for body in bodies:
        writer.write(body)  # it returns even while nothing reads
    if not ahead:
        reader.start()
    reader.join(60)
    writer.close()
    os.close(write_end), os.close(read_end)
    assert bytes(received) == b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)


@pytest.mark.skipif(not stdio.ATOMIC_WRITE_BYTES, reason="this system does not say what a pipe has room for")
def test_a_short_reply_to_a_client_that_reads_is_written_without_the_thread():
    read_end, write_end = os.pipe()
    writer = MessageWriter(write_end, on_broken=lambda: None)
    for number in range(200):
        writer.write(b"%d" % number)
        assert select.select([read_end], [], [], 0)[0], "it has left when write returns"
        assert read(os.read(read_end, 65_536)) == [number]
    writer.close()
    os.close(write_end), os.close(read_end)


# ── process exit ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_end_decides_the_code_and_on_exit_runs_once_even_when_it_fails(monkeypatch):
    monkeypatch.setattr(atexit, "register", lambda joined: joined())  # no grace period kills the tests
    runs = []

    def on_exit() -> None:
        runs.append(1)
        raise RuntimeError

    exit_state = ProcessExit()
    exit_state.begin(on_exit)
    exit_state.end(0)
    exit_state.end(1)
    assert exit_state.finish(join=lambda: None) == 0
    assert exit_state.finish(join=lambda: None) == 0
    assert runs == [1]


# ── replies ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Sent(list):
    """A stand-in for MessageWriter that keeps the messages."""

    def write(self, body: bytes, droppable: bool = False) -> None:
        self.append(json.loads(body))


def make_server() -> tuple[SpecLanguageServer, Sent]:
    server = SpecLanguageServer("test", "1")
    sent = server.protocol.writer = Sent()

    server.feature(types.INITIALIZE)(lambda params: initialize_result(params, copilot=False, has_menu=False))
    return server, sent


def request(msg_id: Any, method: Any, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params}


@pytest.mark.parametrize(
    ("offered", "chosen", "column"),
    [
        (["utf-8", "utf-16"], "utf-8", 4),
        (["utf-32"], "utf-32", 1),
        (["utf-7", "utf-16"], "utf-16", 2),
        (5, "utf-16", 2),
    ],
)
async def test_columns_are_in_the_clients_first_known_encoding(offered, chosen, column):
    server, sent = make_server()
    capabilities = {"general": {"positionEncodings": offered, "markdown": 7}, "window": [], "workspace": {"symbol": 1}}
    server.protocol.receive(request(1, "initialize", PARAMS | {"capabilities": capabilities}))
    await asyncio.sleep(0)
    assert sent[0]["result"]["capabilities"]["positionEncoding"] == server.position_encoding == chosen
    document = {"uri": "file:///a", "languageId": "x", "version": 1, "text": "𐐀é\n"}
    server.protocol.receive({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}})
    assert server.documents.get("file:///a").offset({"line": 0, "character": column}, server.position_encoding) == 1


async def test_initialize_may_be_sent_again_after_a_failure():
    server, sent = make_server()
    for message in (request(1, "initialize", {"capabilities": 7}), request(2, "initialize", PARAMS)):
        server.protocol.receive(message)
        await asyncio.sleep(0)
    assert [reply.get("error", {}).get("code") for reply in sent] == [-32602, None]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [({"result": [1]}, [1]), ({"result": None}, None), ({"error": {"message": "no"}}, "no"), ({"error": 5}, "None")],
)
async def test_a_reply_of_the_client_resolves_its_future_and_leaves_no_state(answer, outcome):
    server, sent = make_server()
    future, cancelled = (server.protocol.request("test/question", {}) for _ in range(2))
    cancelled.cancel()
    for question in [*sent, *sent]:
        server.protocol.receive({"jsonrpc": "2.0", "id": question["id"], **answer})
    error = future.exception()
    assert future.result() == outcome if error is None else outcome in str(error)
    assert not server.protocol.awaited and cancelled.cancelled()
