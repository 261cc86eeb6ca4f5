"""Fuzzing: for any message bytes, the real server answers each valid request once, sends nothing else, and survives.

Each message is generated from a seed and its number: `python tests/support/faults/message_fuzz.py SEED NUMBER` prints
it.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest
from support.faults.message_fuzz import CONFIG, VALUES, Account, every_method, mutated, strange
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.soak import in_soak

BATCH = 50  # messages between two health requests
BATCHES_AHEAD = 4  # health requests in flight before the first is awaited
HANG_S = 5.0
BUSY = 4  # a wait of this factor more is no hang on a busy machine
GROWTH_MIB = 48  # tools imported on first use take 20
SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
CODES = {-32700, -32600, -32601, -32602, -32800}  # none of these blames the server
CAN = {**CAPABILITIES, "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}


class Stranger(Editor):
    """An editor that answers the server's requests with arbitrary values."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"answers:{seed}")
        self.behaves = True
        super().__init__("--set", "completion.show_in_menu=true", settings=CONFIG)

    def send(self, message: Any) -> None:
        if isinstance(message, dict) and "method" not in message and not self.behaves and self.chance.random() < 0.7:
            kind = self.chance.choice(["result", "error"])
            message = {"jsonrpc": "2.0", "id": message["id"], kind: mutated(self.chance.choice(VALUES), self.chance)}
        super().send(message)

    def knock(self, number: int) -> tuple[str, float]:
        """Sends a health request; returns its id and the time it was sent."""
        msg_id = f"alive after {number}"
        params = {"textDocument": {"uri": "file:///nowhere"}}
        self.send({"jsonrpc": "2.0", "id": msg_id, "method": "speclsp/here", "params": params})
        return msg_id, time.monotonic()

    def heard_after_s(self, knock: tuple[str, float], seed: int) -> float:
        """The wait for its answer in seconds."""
        msg_id, sent = knock
        alive = self.wait_for(lambda: msg_id in self.replies, HANG_S * BUSY)
        assert alive, (
            f"seed {seed}: not {msg_id!r} (exit code {self.process.poll()}): see the {BATCH} messages before it"
        )
        assert len(self.replies.pop(msg_id)) == 1
        return time.monotonic() - sent


@pytest.mark.promise(1, 7)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, *in_soak(2, 3)])
def test_every_fuzzed_request_is_answered_once_and_nothing_else_is_sent(seed: int, soak: bool, promise):
    messages = 34_000 if soak else 3_334
    methods, account, longest_s, knocks = every_method(), Account(), 0.0, list[tuple[str, float]]()
    with Stranger(seed) as editor:
        editor.begin(CAN)
        editor.replies.clear()
        editor.behaves = False
        start = time.monotonic()
        for number in range(messages):
            message = strange(seed, number, methods)
            account.add(number, message)
            editor.raw(message.sent)
            if number % BATCH == 0:
                knocks.append(editor.knock(number))
                if len(knocks) > BATCHES_AHEAD:
                    longest_s = max(longest_s, editor.heard_after_s(knocks.pop(0), seed))
            if number == messages // 10:
                early_kib = editor.rss_kib()
        for knock in [*knocks, editor.knock(messages)]:
            longest_s = max(longest_s, editor.heard_after_s(knock, seed))
        took_s = time.monotonic() - start

        editor.wait_for(lambda: not account.wrong(editor.replies), HANG_S * BUSY)
        wrong = account.wrong(editor.replies)
        assert wrong == [], f"seed {seed}: (message, id, replies owed, replies that came)"
        answered = {msg_id: list(replies) for msg_id, replies in editor.replies.items()}
        assert len(account.owed) > messages / 4
        assert account.unreadable <= len(answered.pop(None)) <= account.unreadable + account.broken
        errors = [(msg_id, reply["error"]) for msg_id in answered for reply in answered[msg_id] if "error" in reply]
        assert [(account.by[msg_id], error) for msg_id, error in errors if not is_plain(error)] == [], f"seed {seed}"

        grown_mib = (editor.rss_kib() - early_kib) / 1024
        editor.behaves = True
        editor.replies.clear()
        editor.notify("workspace/didChangeConfiguration", {"settings": {"speclsp": CONFIG}})
        page = Page(editor.until("ready", after=len(editor.statuses()) - 1), SOURCE, uri=f"file:///after/{seed}.py")
        assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)
        assert [request["method"] for request in editor.requests if request["method"].startswith("window/show")] == []
        assert editor.popups() == []
        assert editor.stray == b""
        assert editor.stderr() == ""
        assert faults_of_ours(editor) == []
        assert grown_mib < GROWTH_MIB
    promise.measured(
        f"{messages:,} fuzzed messages of seed {seed}: 0 deaths; 0 of {account.owed.total():,} readable ids unanswered"
        f" or answered twice; 0 popups; 0 stray bytes; longest wait {longest_s:.2f} s;"
        f" {messages / took_s:,.0f} messages a second; memory {grown_mib:+.0f} MiB",
        holds=longest_s < HANG_S,
    )


def is_plain(error: dict[str, Any]) -> bool:
    """True if the code blames the message and the text is one line without a traceback."""
    text = error["message"]
    return set(error) == {"code", "message"} and error["code"] in CODES and "\n" not in text and "Traceback" not in text


def faults_of_ours(editor: Editor) -> list[str]:
    """Log lines that report a fault of the server itself."""
    logs = sorted(editor.logs.glob("lsp.log*"))
    assert logs
    return [line for log in logs for line in log.read_text().splitlines() if " error " in line]
