"""The pieces of the wire without a process: framing, the writer, and what the protocol replies to anything at all."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, default_converter

from speclsp.errors import SpeclspError
from speclsp.lsp.protocol import framing, process_exit, stdio
from speclsp.lsp.protocol.framing import FramingFault, MessageReader
from speclsp.lsp.protocol.language_server import PYGLS_PRIVATE_NAMES, SpecLanguageServer
from speclsp.lsp.protocol.process_exit import ProcessExit, hung_up
from speclsp.lsp.protocol.stdio import Backpressure, MessageWriter

SCALAR = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
GOOD = {"jsonrpc": "2.0", "method": "good"}


def frame(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def read(data: bytes, chunk_bytes: int = 65_536) -> list[Any]:
    """What a reader makes of a stream that comes in chunks."""
    chunks = iter([data[i : i + chunk_bytes] for i in range(0, len(data), chunk_bytes)])
    return list(MessageReader(lambda _: next(chunks, b"")))


# ── framing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=100)
@given(st.lists(JSON, max_size=4), st.integers(1, 50))
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(messages, chunk_bytes):
    assert read(b"".join(map(frame, messages)), chunk_bytes) == messages


@pytest.mark.parametrize(
    "header",
    [
        b"content-length: 5\r\n\r\n",
        b"CONTENT-LENGTH:5\r\n\r\n",
        b"Content-Length : 5 \r\n\r\n",
        b"Content-Length: 00005\r\n\r\n",
        b"Content-Length: 5\n\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 5\r\n\r\n",
        b"Content-Length: 5\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n",
        b"Content-Length: 77\r\nContent-Length: 5\r\n\r\n",
        b"\r\n\r\nContent-Length: 5\r\n\r\n",
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000])
def test_a_header_may_be_written_in_any_of_the_ways_clients_write_it(header, chunk_bytes):
    assert read(header + b"[1,2]" + frame(GOOD), chunk_bytes) == [[1, 2], GOOD]


@pytest.mark.parametrize(
    "noise",
    [
        b"garbage",
        b"{}\r\n\r\n",
        b"Content-Length: -5\r\n\r\nxxxxx",
        b"Content-Length: five\r\n\r\nxxxxx",
        b"Content-Length:\r\n\r\n",
        b"Content-Type: x\r\n\r\n{}",
        b"Content-Length: 5\r\nno header at all\r\n",
        b"Content-Length: 5\r\n" + b"x" * 20_000,
        b"\x00\xff" * 3000,
    ],
)
@pytest.mark.parametrize("chunk_bytes", [13, 65_536])
def test_noise_between_messages_is_skipped(noise, chunk_bytes):
    assert read(frame(GOOD) + noise + frame(GOOD), chunk_bytes) == [GOOD, GOOD]


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff\xfe", b"nonsense", b'{"a":1}}', b"[" * 100_000, b'"\xed"', b"\xef\xbb\xbf{}"]
)
def test_a_body_that_is_not_json_is_one_fault_and_the_next_message_is_read(body):
    fault, after = read(frame(body) + frame(GOOD))
    assert fault.code == -32700
    assert after == GOOD


@pytest.mark.parametrize("error_bytes", [-7, -1, 1, 3, 16, 17, 30])
def test_a_length_that_is_wrong_costs_no_other_message(error_bytes):
    body = json.dumps(GOOD).encode()
    wrong = b"Content-Length: %d\r\n\r\n%b" % (len(body) + error_bytes, body)
    messages = read(wrong + frame([1]) + frame([2]))
    assert messages[-2:] == [[1], [2]]
    assert messages[0] == GOOD or messages[0].code == -32700


@pytest.mark.parametrize("length", [1_000, 100_000, framing.MAX_MESSAGE_BYTES])
@pytest.mark.parametrize("body", [b"", json.dumps(GOOD).encode()])
def test_a_length_that_is_far_too_long_is_noticed_as_soon_as_the_next_message_comes(length, body):
    came = [b"Content-Length: %d\r\n\r\n%b" % (length, body) + frame([1])[:9], frame([1])[9:], frame([2])]
    came = iter(came)  # and then the client waits for its answers
    reader = iter(MessageReader(lambda _: next(came)))
    first, second, third = next(reader), next(reader), next(reader)
    assert (first if body else first.code) == (GOOD if body else -32700)
    assert (second, third) == ([1], [2])


@pytest.mark.parametrize("chunk_bytes", [1, 11, 65_536])
def test_a_text_about_headers_is_a_text(chunk_bytes):
    said = ["Content-Length: 5\r\n\r\n{}", {"Content-Length: 7": "\nContent-Length: 8\n"}]
    assert read(frame(said) + frame(json.dumps(said, indent="\r\n").encode()) + frame(GOOD), chunk_bytes) == [
        said, said, GOOD,
    ]  # fmt: skip


@pytest.mark.parametrize("digits", [str(framing.MAX_MESSAGE_BYTES + 1), "9999999999", "1" + "0" * 14, "9" * 5000])
def test_a_promise_of_too_many_bytes_is_refused_and_the_next_message_is_read(digits):
    fault, after = read(b"Content-Length: %b\r\n\r\n{}" % digits.encode() + frame(GOOD))
    assert fault.code == -32600
    assert "limit" in fault.reason
    assert after == GOOD


def test_lone_surrogates_are_read_both_escaped_and_raw():
    assert read(frame(b'"\\ud83d"') + frame(b'"\xed\xa0\xbd"')) == ["\ud83d", "\ud83d"]


def test_a_stream_that_ends_inside_a_message_ends_quietly():
    for cut in range(len(frame(GOOD))):
        assert read(frame(GOOD)[:cut]) == []


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_writer_keeps_the_order_and_drops_only_notifications_of_a_client_that_does_not_read():
    out, into = os.pipe()
    outbox = MessageWriter(into, on_broken=lambda: None)
    big = b'"' + b"x" * 2**20 + b'"'
    for _ in range(10):
        outbox.write(big)
    outbox.write(b'"news"', droppable=True)
    outbox.write(b'"reply"')
    assert not outbox.has_room()
    received = bytearray()
    while b'"reply"' not in received:
        received += os.read(out, 2**20)
    outbox.close()
    assert outbox.has_room()
    os.close(into), os.close(out)
    assert [len(m) for m in read(bytes(received))] == [2**20] * 10 + [len("reply")]


@pytest.mark.parametrize("ends", [os.pipe, lambda: tuple(end.detach() for end in socket.socketpair())])
@given(sizes=st.lists(st.sampled_from([0, 10, 400, 3000, 4060, 4090, 5000, 70_000]), max_size=60), ahead=st.booleans())
@settings(max_examples=25, deadline=None)
def test_whatever_goes_at_once_and_whatever_waits_the_order_is_kept(ends, sizes, ahead):
    out, into = ends()
    outbox, received, bodies = (
        MessageWriter(into, lambda: None),
        bytearray(),
        [b"%d" % n * size for n, size in enumerate(sizes)],
    )
    total = sum(len(b"Content-Length: %d\r\n\r\n" % len(body)) + len(body) for body in bodies)

    def take() -> None:
        while len(received) < total:
            received.extend(os.read(out, 5000))

    reader = threading.Thread(target=take)
    if ahead:
        reader.start()
    for body in bodies:
        outbox.write(body)  # where nobody reads yet, it returns all the same
    if not ahead:
        reader.start()
    reader.join(60)
    outbox.close()
    os.close(into), os.close(out)
    assert bytes(received) == b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)


@pytest.mark.skipif(not stdio.ATOMIC_WRITE_BYTES, reason="this system does not say what a pipe has room for")
def test_a_short_reply_to_a_client_that_reads_waits_for_no_thread():
    out, into = os.pipe()
    outbox = MessageWriter(into, on_broken=lambda: None)
    for number in range(200):
        outbox.write(b"%d" % number)
        assert select.select([out], [], [], 0)[0], "it has left when write returns"
        assert read(os.read(out, 65_536)) == [number]
    outbox.close()
    os.close(into), os.close(out)


def test_a_reader_that_has_gone_is_noticed_and_nothing_more_is_kept_for_it():
    out, into = os.pipe()
    broken = threading.Event()
    outbox = MessageWriter(into, on_broken=broken.set)
    os.close(out)
    outbox.write(b"{}")
    assert broken.wait(2)
    outbox.write(b"{}")
    outbox.close()
    os.close(into)


def test_closing_waits_a_moment_for_a_client_that_does_not_read_and_no_longer():
    out, into = os.pipe()
    outbox = MessageWriter(into, on_broken=lambda: None)
    outbox.write(b"x" * 2**20)
    start = time.monotonic()
    outbox.close()
    assert time.monotonic() - start < 2
    os.close(out), os.close(into)


def test_what_waits_for_the_loop_is_so_many_messages_and_so_many_bytes():
    room = Backpressure()
    assert room.acquire(stdio.MAX_WAITING_BYTES * 3, 0), "one may be larger than all that may wait"
    assert not room.acquire(0, 0)
    room.release(stdio.MAX_WAITING_BYTES * 3)
    assert all(room.acquire(stdio.MAX_WAITING_BYTES // 8, 0) for _ in range(8))
    assert not room.acquire(1, 0)
    threading.Timer(0.05, room.release, [stdio.MAX_WAITING_BYTES // 8]).start()
    assert room.acquire(1, 20), "it is waited for"
    assert sum(room.acquire(0, 0) for _ in range(stdio.MAX_WAITING_MESSAGES)) == stdio.MAX_WAITING_MESSAGES - 8


def test_a_pipe_without_a_writer_has_hung_up():
    out, into = os.pipe()
    assert not hung_up(out)
    os.close(into)
    assert hung_up(out)
    os.close(out)


# ── the way out ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_end_decides_the_code_and_on_exit_runs_once_even_when_it_fails():
    runs = []

    def on_exit() -> None:
        runs.append(1)
        raise RuntimeError

    life = ProcessExit()
    life._on_exit = on_exit
    life.end(0)
    life.end(1)
    assert life.finish(join=lambda: None) == 0
    assert life.finish(join=lambda: None) == 0
    assert runs == [1]


def test_a_watched_process_that_ends_ends_the_life(monkeypatch):
    monkeypatch.setattr(process_exit, "WATCH_INTERVAL_S", 0.05)
    life, woken = ProcessExit(), threading.Event()
    life.wake = woken.set
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    life.watch(other.pid)
    assert not woken.wait(0.3)
    other.kill()
    assert woken.wait(3), "a zombie counts as ended"
    other.wait()
    other.stdin.close()
    assert life.code == 1


@pytest.mark.parametrize("pid", [0, -1, 2**30])
def test_a_process_that_cannot_be_seen_is_not_watched(pid, monkeypatch):
    monkeypatch.setattr(process_exit, "WATCH_INTERVAL_S", 0.01)
    life = ProcessExit()
    life.watch(pid)
    time.sleep(0.1)
    assert life.code is None


# ── replies ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pygls_has_every_private_name_that_the_protocol_uses():
    pygls_own = LanguageServerProtocol(LanguageServer("plain", "1"), default_converter())
    assert [name for name in PYGLS_PRIVATE_NAMES if not hasattr(pygls_own, name)] == []
    assert len(PYGLS_PRIVATE_NAMES) == 13


class Sent(list):
    """Stands for the writer."""

    def write(self, body: bytes, droppable: bool = False) -> None:
        self.append(json.loads(body))


def make_server() -> tuple[SpecLanguageServer, Sent]:
    server = SpecLanguageServer("test", "1")
    sent = server.protocol.writer = Sent()

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def complete(params: types.InlineCompletionParams) -> dict[str, Any]:
        return {"items": []}

    @server.feature("test/echo")
    def echo(params: Any) -> Any:
        return params

    return server, sent


def exchange(*messages: Any, ready: bool = True) -> list[dict[str, Any]]:
    """What a server, initialized or not, sends in answer to messages."""
    server, sent = make_server()

    async def run() -> None:
        if ready:
            server.protocol.receive(request(0, "initialize", {"processId": None, "rootUri": None, "capabilities": {}}))
            sent.clear()
        for message in messages:
            server.protocol.receive(message)
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)

    asyncio.run(run())
    return list(sent)


def request(msg_id: Any, method: Any, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params}


METHODS = ["initialize", "textDocument/inlineCompletion", "workspace/executeCommand", "textDocument/hover", "test/echo"]
METHODS += ["textDocument/didOpen", "textDocument/didChange", "$/setTrace", "$/cancelRequest", "window/showMessage"]


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.sampled_from(METHODS) | JSON, JSON), min_size=5, max_size=20), st.booleans(), st.booleans()
)
def test_every_request_with_a_readable_id_gets_exactly_one_reply(requests, ready, text_ids):
    ids = [f"id {n}" if text_ids else n for n in range(len(requests))]
    replies = exchange(*(request(i, *parts) for i, parts in zip(ids, requests, strict=True)), ready=ready)
    assert sorted(reply["id"] for reply in replies) == sorted(ids)
    assert all(("result" in reply) != ("error" in reply) for reply in replies)


NOTIFICATION = st.fixed_dictionaries({"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS), "params": JSON})


@settings(max_examples=20)
@given(st.lists(JSON | NOTIFICATION, min_size=5, max_size=20))
def test_no_message_whatever_it_is_brings_a_popup_or_a_request(messages):
    assert all("method" not in sent for sent in exchange(*messages))


@pytest.mark.parametrize(
    ("offered", "chosen", "column"),
    [
        (["utf-8", "utf-16"], "utf-8", 4),
        (["utf-32"], "utf-32", 1),
        (["utf-7", "utf-16"], "utf-16", 2),
        (5, "utf-16", 2),
    ],
)
def test_the_clients_first_encoding_that_we_know_counts_the_columns(offered, chosen, column):
    server, sent = make_server()
    general = {"general": {"positionEncodings": offered}}
    server.protocol.receive(request(1, "initialize", {"processId": None, "rootUri": None, "capabilities": general}))
    assert sent[0]["result"]["capabilities"]["positionEncoding"] == server.position_encoding == chosen
    document = {"uri": "file:///a", "languageId": "x", "version": 1, "text": "𐐀é\n"}
    server.protocol.receive({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}})
    assert server.documents.get("file:///a").offset({"line": 0, "character": column}, server.position_encoding) == 1


@pytest.mark.parametrize("msg_id", [None, True, 1.5, [], {}])
def test_an_id_that_is_no_id_is_refused_without_one(msg_id):
    assert [(r["id"], r["error"]["code"]) for r in exchange(request(msg_id, "test/echo"))] == [(None, -32600)]


def test_a_batch_is_refused_for_each_request_in_it():
    replies = exchange([request(1, "test/echo"), 7, {"jsonrpc": "2.0", "method": "x"}, request("a", "test/echo")], [])
    assert [(r["id"], r["error"]["code"]) for r in replies] == [(1, -32600), ("a", -32600), (None, -32600)]


def test_params_are_not_coerced_and_the_reply_says_which_one_is_wrong():
    place = {"textDocument": {"uri": None}, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 1}}
    (reply,) = exchange(request(1, "textDocument/inlineCompletion", place))
    assert reply["error"]["code"] == -32602
    assert "params.textDocument.uri: expected a string, found None" in reply["error"]["message"]


def test_capabilities_that_cannot_be_read_are_left_out_and_the_others_count():
    capabilities = {
        "general": {"positionEncodings": ["utf-8"], "markdown": 7},
        "window": [],
        "workspace": {"symbol": 1},
    }
    server, sent = make_server()
    params = {"processId": None, "rootUri": None, "capabilities": capabilities}
    server.protocol.receive(request(1, "initialize", params))
    assert sent[0]["result"]["capabilities"]["positionEncoding"] == "utf-8"
    assert server.position_encoding == "utf-8"


def test_an_initialize_that_failed_may_be_sent_again():
    params = {"processId": None, "rootUri": None, "capabilities": {}}
    replies = exchange(request(1, "initialize", {"capabilities": 7}), request(2, "initialize", params), ready=False)
    assert [r.get("error", {}).get("code") for r in replies] == [-32602, None]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"result": [1]}, (1,)),
        ({}, "not valid"),
        ({"result": 7}, "not valid"),
        ({"error": {"code": -32800, "message": "no"}}, "no"),
        ({"error": 5}, "None"),
    ],
)
def test_the_clients_answers_reach_who_asked_and_leave_nothing_behind(answer, outcome):
    server, sent = make_server()
    future = server.protocol.send_request("workspace/configuration", types.ConfigurationParams([]))
    answer = {"jsonrpc": "2.0", "id": sent[0]["id"], **answer}
    server.protocol.receive(answer)
    server.protocol.receive(answer)
    error = future.exception(0)
    assert future.result(0) == outcome if error is None else outcome in str(error)
    assert not server.protocol._request_futures
    assert not server.protocol._result_types


def test_an_answer_to_a_question_that_was_withdrawn_is_ignored():
    server, sent = make_server()
    future: concurrent.futures.Future[Any] = server.protocol.send_request("test/question")
    future.cancel()
    server.protocol.receive({"jsonrpc": "2.0", "id": sent[0]["id"], "result": 1})
    assert future.cancelled()


def test_there_is_no_way_in_but_stdio():
    server, _ = make_server()
    with pytest.raises(SpeclspError, match="TCP"):
        server.start_tcp("127.0.0.1", 0)
    with pytest.raises(SpeclspError, match="WebSockets"):
        server.start_ws("127.0.0.1", 0)


def test_a_fault_of_framing_is_answered_without_an_id():
    assert exchange(FramingFault(-32700, "not JSON")) == [
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON"}}
    ]
