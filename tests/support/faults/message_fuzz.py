"""Invalid messages, each generated from a seed and a number: `python message_fuzz.py SEED NUMBER`.

Two thirds are messages that the server knows, with one to three places changed; the others are whole messages in
invalid bytes. Each comes with its expected replies: one to every request whose id can be read, an error without id
for an unreadable message, and none for the rest.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from support.lsp.lsp_client import frame

URIS = ["file:///strange/a.py", "file:///strange/b.rs", "untitled:c", "file:///strange/notebook.ipynb#1"]
NOTEBOOK = "file:///strange/notebook.ipynb"
TEXT = "def f(x):\n    return x + \n\nclass Größe:\r\n    名 = '𝒙'  # Content-Length: 5\n"
CONFIG = {  # no value here starts another engine; its mutations may switch suggestions off
    "completion": {
        "enabled": True, "disabled_languages": [], "disabled_globs": ["**/.env*"], "eagerness": "high",
        "multiline": "auto", "max_tokens": 96, "max_tokens_single_line": 32, "timeout_ms": 3000,
        "alternatives": 3,
        "debounce_ms": 0, "show_in_menu": True,
    },
    "context": {"prefix_tokens": 640, "suffix_tokens": 128, "parse_budget_ms": 10, "max_file_bytes": 10_000_000},
    "stats": {"enabled": True},
    "remote": {"url": "http://127.0.0.1:9"},
}  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, -(2**63), 10**30, 1.5, -0.0, 1e308, float("nan"), float("-inf"), "", "x",
    "x" * 5000, "\ud83d", "a\x00b", "\u202e\u2028\r\n", "file:///", "file:///strange/a.py", "utf-8", "2.0", [], {},
    [[]], [None], {"line": -1, "character": 10**18}, {"": {}}, {"uri": 5}, [{}] * 20, [[[[[["deep"]]]]]],
]  # fmt: skip
KEYS = ["", "id", "method", "params", "result", "error", "jsonrpc", "__class__", "text", "range", "x" * 300, "\udc00"]
IDS: list[Any] = [None, True, 1.5, [], {}, float("nan"), -1, 0, 10**30, "", "x" * 400, "\ud800", "null"]
FIRST_ID = 10**6
NEVER = ("shutdown", "exit")  # the lifecycle tests cover their order


@dataclass
class Strange:
    """A sequence of bytes and the replies that may come back."""

    sent: bytes = b""
    owed: list[Any] = field(default_factory=list)  # ids, each as often as its replies
    perhaps: list[Any] = field(default_factory=list)  # ids that may get one reply: their frame is broken
    unreadable: int = 0  # errors without an id
    whole: bool = True  # no frame is broken: `unreadable` is exact


def strange(seed: int, number: int, methods: list[str]) -> Strange:
    """Generates the message of this number."""
    chance, number, made = Random(f"{seed}:{number}"), FIRST_ID + number, Strange()
    kind = chance.random()
    if kind < 0.55:
        deliver(made, encode(mutated(message(chance, number, methods), chance), chance))
    elif kind < 0.62:
        deliver(made, encode(odd_envelope(message(chance, number, methods), chance), chance))
    elif kind < 0.68:
        several = [message(chance, f"{number}.{part}", methods) for part in range(chance.randrange(4))]
        deliver(made, encode([mutated(one, chance) if chance.random() < 0.3 else one for one in several], chance))
    elif kind < 0.72:
        twice = encode(message(chance, number, methods), chance)
        deliver(made, twice)
        deliver(made, twice)
    elif kind < 0.76:
        deliver(made, encode(deep(message(chance, number, methods), chance), chance))
    elif kind < 0.88:
        made.whole = False  # a piece cut out of a text may look like a header
        deliver(made, bitten(encode(message(chance, number, methods), chance), chance))
    else:
        break_frame(made, message(chance, number, methods), chance)
    return made


# ── whole messages ───────────────────────────────────────────────────────────────────────────────────────────────────


def message(chance: Random, number: object, methods: list[str]) -> dict[str, Any]:
    """A message as a client may send it, of a known or an unknown method."""
    method = chance.choice(methods)
    uri = chance.choice(URIS)
    document: dict[str, Any] = {"uri": uri}
    place = {"line": chance.randrange(5), "character": chance.randrange(30)}
    span = {"start": place, "end": {"line": place["line"], "character": place["character"] + chance.randrange(3)}}
    here = {"textDocument": document, "position": place}
    edit: dict[str, Any] = {"range": span, "text": chance.choice(["x", "", "é𐐀\r\n", "\n"])}
    if chance.random() < 0.1:
        edit = {"text": TEXT * chance.randrange(4)}
    cell = {"kind": 2, "document": URIS[3]}
    cell_text = {"uri": URIS[3], "languageId": "python", "version": 1, "text": TEXT}
    encodings = {"general": {"positionEncodings": ["utf-8"]}}
    now = {**document, "version": chance.randrange(99)}
    params: dict[str, Any] = {
        "initialize": {"processId": None, "rootUri": None, "capabilities": encodings},
        "textDocument/didOpen": {"textDocument": {**document, "languageId": "python", "version": 1, "text": TEXT}},
        "textDocument/didChange": {"textDocument": now, "contentChanges": [edit]},
        "textDocument/didClose": here,
        "textDocument/inlineCompletion": {**here, "context": {"triggerKind": chance.choice([1, 2])}},
        "textDocument/completion": {**here, "context": {"triggerKind": 1}},
        "textDocument/hover": here,
        "notebookDocument/didOpen": {
            "notebookDocument": {"uri": NOTEBOOK, "notebookType": "jupyter-notebook", "version": 0, "cells": [cell]},
            "cellTextDocuments": [cell_text],
        },
        "notebookDocument/didChange": {
            "notebookDocument": {"uri": NOTEBOOK, "version": 2},
            "change": {"cells": {
                "structure": {"array": {"start": 0, "deleteCount": 1, "cells": [cell]}, "didOpen": [cell_text]},
                "textContent": [{"document": {"uri": URIS[3], "version": 2}, "changes": [edit]}],
            }},
        },
        "notebookDocument/didClose": {"notebookDocument": {"uri": NOTEBOOK}, "cellTextDocuments": [{"uri": URIS[3]}]},
        "workspace/didChangeConfiguration": {"settings": {"speclsp": CONFIG}},
        "workspace/didChangeWorkspaceFolders": {"event": {"added": [{"uri": URIS[0], "name": "s"}], "removed": []}},
        "workspace/executeCommand": {"command": chance.choice(["speclsp.none", "speclsp.retry"]), "arguments": [1, {}]},
        "window/workDoneProgress/cancel": {"token": chance.choice(["speclsp", "x", 3])},
        "$/cancelRequest": {"id": number if chance.random() < 0.5 else chance.choice([0, "0", 10**30])},
        "$/progress": {"token": 1, "value": {"kind": "begin", "title": "x"}},
        "$/setTrace": {"value": "off"},
    }  # fmt: skip
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method, "params": params.get(method, here)}
    if is_notification(method):
        del body["id"]
    return body


def is_notification(method: str) -> bool:
    return "/did" in method or method in ("$/cancelRequest", "$/progress", "$/setTrace", "initialized") or (
        method.endswith(("/cancel", "/nothing"))
    )  # fmt: skip


METHODS = [
    "initialize", "initialized", "textDocument/didOpen", "textDocument/didOpen", "textDocument/didChange",
    "textDocument/didOpen", "textDocument/didChange", "textDocument/didChange", "textDocument/didClose",
    *["textDocument/inlineCompletion"] * 6, "textDocument/completion", "textDocument/completion", "textDocument/hover",
    "notebookDocument/didOpen", "notebookDocument/didOpen", "notebookDocument/didChange", "notebookDocument/didClose",
    "workspace/didChangeConfiguration", "workspace/didChangeWorkspaceFolders", "workspace/executeCommand",
    "window/workDoneProgress/cancel", "$/cancelRequest", "$/progress", "$/setTrace", "no/such", "$/none", "no/nothing",
]  # fmt: skip


def every_method() -> list[str]:
    """METHODS and all other methods that the server handles."""
    from speclsp.lsp.server.app import HANDLERS

    return METHODS + [method for method in HANDLERS if method not in METHODS]


# ── changed in structure ─────────────────────────────────────────────────────────────────────────────────────────────


def mutated(value: Any, chance: Random) -> Any:
    """Changes one to three places of the message at any depth: drops, replaces, adds or doubles."""
    for _ in range(chance.choice([1, 1, 2, 3])):
        if isinstance(value, dict) and value.get("params") and chance.random() < 0.9:
            value = {**value, "params": changed(value["params"], chance)}
        else:
            value = changed(value, chance)
    if isinstance(value, dict) and value.get("method") in NEVER:
        return {}
    return value


def changed(value: Any, chance: Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.95:
        key = chance.choice([key for key in value if key != "id"] or list(value))
        how = chance.random()
        if how < 0.12:
            return {k: v for k, v in value.items() if k != key}
        if how < 0.24:
            return {**value, chance.choice(KEYS): chance.choice(VALUES)}
        return {**value, key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        if chance.random() < 0.5:
            return [changed(value[0], chance), *value[1:]]
        return [*value, changed(chance.choice(value), chance)]
    return chance.choice(VALUES)


def odd_envelope(whole: dict[str, Any], chance: Random) -> Any:
    """An invalid id, version or method, or an answer to a request that was never sent."""
    how = chance.randrange(5)
    if how == 0:
        return {**whole, "id": chance.choice(IDS)}
    if how == 1:
        return {**whole, "jsonrpc": chance.choice([None, "1.0", 2.0, 2, "", []])}
    if how == 2:
        return {**whole, "method": chance.choice([None, "", 5, [], {}, "x" * 10_000, "\ud800", "$/", "initialize "])}
    if how == 3:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": chance.choice([whole.get("id"), *IDS])}
        return {**answer, chance.choice(["result", "error"]): chance.choice(VALUES)}
    return chance.choice([None, 5, "text", [], {}, True, [[]], [5], 1e308])


def deep(whole: dict[str, Any], chance: Random) -> Any:
    """Inserts nesting far below the depth at which parsers fail."""
    tower: Any = chance.choice(VALUES)
    for _ in range(chance.choice([20, 150])):
        tower = chance.choice([[tower], {"settings": tower}])
    return {**whole, "params": tower} if chance.random() < 0.5 else changed({**whole, "more": tower}, chance)


# ── changed in bytes ─────────────────────────────────────────────────────────────────────────────────────────────────


def encode(value: Any, chance: Random) -> bytes:
    """Encodes the message in one of the valid ways of JSON."""
    how = chance.random()
    if how < 0.1:
        return json.dumps(value, indent=chance.choice(["\t", "\r\n"])).encode()
    return json.dumps(value, ensure_ascii=how < 0.5).encode("utf-8", "surrogatepass")


def bitten(body: bytes, chance: Random) -> bytes:
    """Damages a body inside a frame of the right length."""
    how, at = chance.random(), chance.randrange(len(body))
    if how < 0.5:
        return body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]
    if how < 0.65:
        return body[:at]
    if how < 0.75:
        return body[:at] + body[chance.randrange(len(body)) :]
    if how < 0.8:
        return body.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
    if how < 0.85:
        return b"\xef\xbb\xbf" + body
    if how < 0.9:
        return b"[" * 100_000
    if how < 0.95:
        return b'{"id":' + b"9" * 5000 + b"}"
    return bytes(chance.randrange(256) for _ in range(chance.randrange(200)))


def deliver(made: Strange, body: bytes) -> None:
    """Adds a valid frame; determines its expected replies as the server has to."""
    made.sent += frame(body)
    try:
        parsed = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        made.unreadable += 1
        return
    if isinstance(parsed, list):
        ids = [item["id"] for item in parsed if isinstance(item, dict) and "method" in item and is_id(item.get("id"))]
        made.owed += ids
        made.unreadable += not ids
    elif not isinstance(parsed, dict):
        made.unreadable += 1
    elif "method" not in parsed and ("result" in parsed or "error" in parsed):
        pass  # an answer
    elif "id" in parsed and is_id(parsed["id"]):
        made.owed.append(parsed["id"])
    elif "id" in parsed:
        made.unreadable += 1


def is_id(value: object) -> bool:
    return type(value) in (int, str)


def break_frame(made: Strange, whole: dict[str, Any], chance: Random) -> None:
    """Adds a broken frame, or noise before a valid one; the messages behind it must still be read."""
    made.whole = False
    body = json.dumps(whole).encode()
    good = frame(body)
    how = chance.randrange(7)
    if how < 5 and "id" in whole:
        made.perhaps.append(whole["id"])
    if how == 0:  # a wrong length, by little or by much
        off = chance.choice([-len(body) // 2, -5, -1, 1, 2, 17, 300, 70_000, 60_000_000])
        made.sent += b"Content-Length: %d\r\n\r\n%b" % (max(0, len(body) + off), body)
    elif how == 1:  # a length above the limit
        length = chance.choice([2**26 + 1, 2**28, 10**10, 10**23, int("9" * 60)])
        made.sent += b"Content-Length: %d\r\n\r\n%b" % (length, body)
    elif how == 2:  # a header with a flipped bit
        at = chance.randrange(good.index(b"{"))
        made.sent += good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :]
    elif how == 3:  # cut off
        made.sent += good[: chance.randrange(len(good))]
    elif how == 4:  # a length that is no number
        length = chance.choice([b"-5", b"x", b"", b"1e3", b"0x10", b"5 5", b"+5", "５".encode()])
        made.sent += b"Content-Length: " + length + b"\r\n\r\n" + body
    elif how == 5:  # odd but valid
        name = chance.choice([b"content-length", b"Content-Length", b"Content-Length "])
        more = chance.choice(
            [b"", b"Content-Type: x; charset=utf-8\r\n", b"Content-Length: 3\r\n", b"X-Y: " + b"z" * 999 + b"\r\n"]
        )
        end = chance.choice([b"\r\n", b"\n"])
        made.sent += more + b"%b: %d %b%b%b" % (name, len(body), end, end, body)
        made.owed += [whole["id"]] if "id" in whole else []
    else:  # noise between two messages
        noise = [
            b"\r\n",
            b"garbage",
            b"\x00" * 9000,
            b"Content-Length: 7\r\n",
            b"Content-Length: 1",
            b"{}\r\n\r\n",
            b"C",
        ]
        made.sent += chance.choice(noise) + good
        made.owed += [whole["id"]] if "id" in whole else []


# ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Account:
    """The expected replies to all messages sent."""

    owed: Counter[Any] = field(default_factory=Counter)
    perhaps: Counter[Any] = field(default_factory=Counter)
    unreadable: int = 0
    broken: int = 0
    by: dict[Any, int] = field(default_factory=dict)  # the number of the last message with an id

    def add(self, number: int, made: Strange) -> None:
        self.owed.update(made.owed)
        self.perhaps.update(made.perhaps)
        self.unreadable += made.unreadable
        self.broken += not made.whole
        self.by.update(dict.fromkeys([*made.owed, *made.perhaps], number))

    def wrong(self, replies: dict[Any, list[dict[str, Any]]]) -> list[tuple[int | None, Any, int, int]]:
        """(message, id, expected replies, received replies) where these differ."""
        differences = []
        for msg_id in {*self.owed, *replies} - {None}:
            owed, received = self.owed[msg_id], len(replies.get(msg_id, ()))
            if not owed <= received <= owed + self.perhaps[msg_id]:
                differences.append((self.by.get(msg_id), msg_id, owed, received))
        return differences


if __name__ == "__main__":
    print(strange(int(sys.argv[1]), int(sys.argv[2]), every_method()))
