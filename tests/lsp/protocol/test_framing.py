"""Malformed bytes sent to a real process: it answers every readable request and keeps running.

A B-number in a test's name is a probe of stock pygls that stock pygls fails.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.lsp.lsp_client import Client, frame

MESSAGES = 2000


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    with Client() as client:
        client.initialize()
        yield client
        assert client.popups() == []
        assert client.stray == b""
        assert "Traceback" not in client.stderr()


def faults(client: Client) -> list[int]:
    return [reply["error"]["code"] for reply in client.replies[None]]


@pytest.mark.promise(3)
@pytest.mark.parametrize("body", [b"{", b'{"jsonrpc": "2.0", "id": 5', b"", b"\xff\xff", b"[" * 200_000])
def test_b5_a_body_that_is_not_json_is_answered_with_a_parse_error(shared: Client, body: bytes):
    before = len(faults(shared))
    shared.send(body)
    assert shared.call("test/echo", 1) == 1
    assert faults(shared)[before:] == [-32700]


@pytest.mark.promise(3)
@pytest.mark.parametrize("name", [b"content-length", b"CONTENT-LENGTH", b"Content-Length "])
def test_b7_a_header_may_be_in_any_case(shared: Client, name: bytes):
    shared.raw(
        frame({"jsonrpc": "2.0", "id": name.decode(), "method": "test/echo"}).replace(b"Content-Length", name, 1)
    )
    assert shared.reply(name.decode())["result"] is None


@pytest.mark.promise(3)
@pytest.mark.parametrize("length", [9_999_999_999, 10**14, 10**23])
def test_b8_b9_a_content_length_over_the_limit_is_refused_without_allocation(shared: Client, length: int):
    before, virtual_kib = len(faults(shared)), shared.call("test/state")["virtual_kib"]
    shared.raw(b"Content-Length: %d\r\n\r\n{}" % length)
    assert shared.call("test/state", timeout_s=2)["virtual_kib"] < virtual_kib + 64 * 1024
    assert faults(shared)[before:] == [-32600]
    assert str(length) in shared.stderr()


@pytest.mark.promise(3)
def test_a_message_over_the_limit_is_skipped_while_it_arrives(shared: Client):
    before, rss_kib = len(faults(shared)), shared.call("test/state")["rss_kib"]
    shared.send(b'{"jsonrpc":"2.0","method":"test/echo","params":"' + b"x" * (65 * 2**20) + b'"}')
    assert shared.call("test/state", timeout_s=10)["rss_kib"] < rss_kib + 32 * 1024
    assert faults(shared)[before:] == [-32600]


def test_a_large_message_within_the_limit_is_read(shared: Client):
    shared.open("file:///large", "x = 1\n" * 2_000_000)
    shared.insert("file:///large", 2, 1_000_000, 5, "0")
    assert (
        len(shared.reply(shared.complete("file:///large", 2_000_000, 0), 20)["result"]["items"][0]["insertText"]) > 12e6
    )
    shared.notify("textDocument/didClose", {"textDocument": {"uri": "file:///large"}})


@pytest.mark.promise(1)
def test_batches_and_other_json_are_refused(shared: Client):
    before = len(faults(shared))
    shared.send([{"jsonrpc": "2.0", "id": "in a batch", "method": "test/echo"}])
    assert shared.reply("in a batch")["error"]["code"] == -32600
    for message in ([], "text", 5, None, {"jsonrpc": "2.0", "id": {}, "method": "test/echo"}):
        shared.send(message)
    assert shared.call("test/echo", 1) == 1
    assert faults(shared)[before:] == [-32600] * 5


@pytest.mark.promise(3)
def test_noise_between_messages_does_not_matter(shared: Client):
    for noise in (b"\r\n", b"garbage", b"Content-Length: x\r\n\r\n{}", b"\x00" * 10_000, b"Content-Length: -1\r\n\r\n"):
        shared.raw(noise)
        assert shared.call("test/echo", "alive") == "alive"


# ── mutated messages ────────────────────────────────────────────────────────────────────────────────────────────────

URI = "file:///fuzz"
OPEN = {"textDocument": {"uri": URI, "languageId": "a", "version": 1, "text": "a\r\nb"}}
CHANGE = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": "é𐐀\n"}]}
PLACE = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 1}}
WHOLE: list[dict[str, Any]] = [
    {"method": "textDocument/didOpen", "params": OPEN},
    {"method": "textDocument/didChange", "params": CHANGE},
    {"method": "textDocument/didClose", "params": {"textDocument": {"uri": URI}}},
    {"method": "$/cancelRequest", "params": {"id": 3}},
    {"method": "$/setTrace", "params": {"value": "off"}},
    {"method": "workspace/didChangeWorkspaceFolders", "params": {"event": {"added": [], "removed": []}}},
    {"id": 0, "method": "textDocument/hover", "params": PLACE},
    {"id": 0, "method": "textDocument/inlineCompletion", "params": {**PLACE, "context": {"triggerKind": 1}}},
    {"id": 0, "method": "workspace/executeCommand", "params": {"command": "test.add", "arguments": [1, 2]}},
    {"id": 0, "method": "test/echo", "params": {"deep": [{"deeper": ["x"]}]}},
    {"id": 0, "method": "initialize", "params": {"capabilities": {}, "processId": None, "rootUri": None}},
]
VALUES: list[Any] = [
    None,
    True,
    -1,
    2**31,
    10**30,
    1.5,
    "",
    "x" * 100,
    "\ud83d",
    [],
    {},
    [[]],
    {"line": -1},
    "file:///fuzz",
]


def mutate(value: Any, random: random.Random) -> Any:
    """The value with one part, at any depth, dropped, replaced or doubled."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice([key for key in value if key != "id"] or list(value))
        if random.random() < 0.2:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutate(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        return [*value, mutate(random.choice(value), random)]
    return random.choice(VALUES)


def readable_id(body: bytes) -> Any:
    """The id of a body that must get a reply; None when no reply is due."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    msg_id = message.get("id") if isinstance(message, dict) and "method" in message else None
    return msg_id if type(msg_id) in (int, str) else None


@pytest.mark.promise(1)
def test_b6_every_readable_id_of_mutated_messages_is_answered_once_without_popups():
    rng = random.Random(20)
    with Client() as client:
        client.initialize()
        expected: dict[Any, int] = {}
        for number in range(1000, 1000 + MESSAGES):
            template = {"jsonrpc": "2.0", **rng.choice(WHOLE)}
            message = mutate({**template, "id": number} if "id" in template else template, rng)
            body = json.dumps(message).encode()
            if rng.random() < 0.1:
                offset = rng.randrange(len(body))
                body = body[:offset] + bytes([rng.randrange(256)]) + body[offset + 1 :]
            if (msg_id := readable_id(body)) is not None:
                expected[msg_id] = expected.get(msg_id, 0) + 1
            client.send(body)
            if number % 100 == 0:
                assert client.call("test/echo", number, timeout_s=20) == number, "the server has died or hangs"
        client.wait_for(lambda: all(len(client.replies[i]) >= count for i, count in expected.items()), 10)
        assert client.call("test/echo", "done", timeout_s=20) == "done"
        assert {i: len(client.replies[i]) for i in expected} == expected
        assert len(expected) > MESSAGES // 4
        assert client.popups() == []
        assert client.requests == []
        assert client.stray == b""
        assert "Traceback" not in client.stderr() + json.dumps(client.replies)
        assert client.call("test/state")["futures"] == 0


@pytest.mark.promise(3)
def test_valid_frames_between_mutated_frames_are_answered():
    rng = random.Random(21)
    with Client() as client:
        client.initialize()
        for number in range(200):
            good = frame({"jsonrpc": "2.0", "id": f"n{number}", "method": "test/echo"})
            offset = rng.randrange(22)  # in the header, before its blank line
            broken = good[:offset] + bytes([rng.choice(b"x \r\n:-5\x00")]) + good[offset + rng.randrange(2) :]
            client.raw(broken + frame({"jsonrpc": "2.0", "id": number, "method": "test/echo"}))
        unanswered = [n for n in range(200) if not client.wait_for(lambda n=n: client.replies[n], 5)]
        assert unanswered == []
        assert client.popups() == []
