"""Lifecycle of the real server: the reply to each message in each phase, in any order, and the exit code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from support.lsp.editor_client import Editor, Page
from support.lsp.lsp_client import frame

NOT_INITIALIZED, REFUSED, UNKNOWN = -32002, -32600, -32601
BUSY_S = 20.0  # on a busy machine
SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
WHOLE = {"processId": None, "rootUri": None, "capabilities": {}}
ORDERS = [
    ["ask", "initialize", "ask", "shutdown", "exit"],
    ["tell", "ask", "exit"],
    ["initialize", "initialize", "ask", "shutdown", "exit"],
    ["initialize", "shutdown", "ask", "shutdown", "initialize", "exit"],
    ["initialize", "ask", "exit"],
    ["initialize", "shutdown", "end"],
    ["shutdown", "exit"],
    ["initialize", "tell", "end"],
    ["end"],
]


def owed(order: list[str]) -> tuple[list[int | None], int]:
    """The specification: for each request its error code, or None for a result; and the exit code."""
    phase, codes = "new", list[int | None]()
    for word in order:
        if word == "initialize":
            codes.append(None if phase == "new" else REFUSED)
            phase = "ready" if phase == "new" else phase
        elif word in ("shutdown", "ask"):
            served = None if word == "shutdown" else UNKNOWN
            codes.append({"new": NOT_INITIALIZED, "ready": served, "down": REFUSED}[phase])
            phase = "down" if (word, phase) == ("shutdown", "ready") else phase
    return codes, 0 if phase == "down" else 1


def lived(order: list[str]) -> tuple[list[int | None], int]:
    """The same for a server that receives the messages in that order at once."""
    sent, count = b"", 0
    with Editor() as editor:
        for word in order:
            if word in ("initialize", "shutdown", "ask"):
                count += 1
                method = {"ask": "textDocument/hover"}.get(
                    word, word
                )  # a method of LSP that the server lacks: answered at once
                sent += frame({"jsonrpc": "2.0", "id": count, "method": method, "params": WHOLE})
            elif word in ("tell", "exit"):
                sent += frame({"jsonrpc": "2.0", "method": {"tell": "$/setTrace"}.get(word, word)})
        editor.raw(sent)
        if order[-1] == "end":
            editor.process.stdin.close()
        code = editor.ended(BUSY_S)
        assert editor.wait_for(lambda: sum(map(len, editor.replies.values())) == count), (order, editor.replies)
        assert editor.stray == b"" and editor.stderr() == "" and editor.popups() == []
        return [editor.replies[number][0].get("error", {}).get("code") for number in range(1, count + 1)], code


@pytest.fixture
def engine() -> Iterator[None]:
    """One engine for all servers of a test."""
    with Editor() as editor:
        editor.begin()
        yield


@pytest.mark.promise(2)
def test_in_any_order_each_message_gets_its_reply_and_the_shell_its_exit_code(engine: None, soak: bool, promise):
    chance, words = Random(2), ["initialize", "initialize", "shutdown", "ask", "ask", "tell"]
    orders = list(ORDERS)
    while len(orders) < (100 if soak else 12):
        orders.append([*chance.choices(words, k=chance.randrange(6)), chance.choice(["exit", "end"])])
    with ThreadPoolExecutor(4) as four:
        outcomes = list(four.map(lived, orders))
    wrong = [
        (order, owed(order), outcome) for order, outcome in zip(orders, outcomes, strict=True) if owed(order) != outcome
    ]
    assert wrong == []
    requests = sum(len(codes) for codes, _ in outcomes)
    promise.measured(f"{len(orders)} orders with {requests} requests: every code exact", holds=True)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A server that has answered a completion. Its threads share one arena: virtual memory equals allocations."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    with Editor() as editor:
        page = Page(editor.begin(), SOURCE)
        in_step_s(page)
        yield page


def in_step_s(page: Page) -> float:
    """The duration of a completion, whose text is checked."""
    start = time.monotonic()
    assert page.editor.text(page.ask(CURSOR)) == page.expected(CURSOR)
    return time.monotonic() - start


@pytest.mark.promise(3)
def test_a_content_length_above_the_limit_allocates_no_memory(ready: Page, promise):
    editor, before_kib, longest_s = ready.editor, peak_kib(ready.editor), 0.0
    lengths = [2**28 + 1, 10**10, 10**23, 60_000_000]  # the last length is allowed, and no memory is kept for it
    for length in lengths:
        editor.raw(b"Content-Length: %d\r\n\r\n{" % length)
        longest_s = max(longest_s, in_step_s(ready))
    grown_mib = (peak_kib(editor) - before_kib) / 1024
    assert [reply["error"]["code"] for reply in editor.replies[None]] == [-32600, -32600, -32600, -32700]
    log = (editor.logs / "lsp.log").read_text()
    assert all(str(length) in log for length in lengths[:3])
    assert grown_mib < 64
    promise.measured(
        f"promises of 57 MiB to 10^23 bytes: refused and logged; in step after {longest_s * 1000:.0f} ms at most;"
        f" peak memory {grown_mib:+.1f} MiB",
        holds=longest_s < 2,
    )


@pytest.mark.promise(3)
def test_a_message_that_really_is_too_long_is_skipped(ready: Page, promise):
    editor, before_kib, mib = ready.editor, peak_kib(ready.editor), b"x" * 2**20
    editor.raw(b'Content-Length: %d\r\n\r\n{"jsonrpc":"2.0","method":"no/such","params":"' % (257 * 2**20))
    for _ in range(257):
        editor.raw(mib)
    editor.raw(b'"}')
    took_s, grown_mib = in_step_s(ready), (peak_kib(editor) - before_kib) / 1024
    assert [reply["error"]["code"] for reply in editor.replies[None]] == [-32600]
    assert grown_mib < 64
    promise.measured(
        f"a message of 257 MiB: in step {took_s:.2f} s after it; peak memory {grown_mib:+.1f} MiB", holds=took_s < 2
    )


def peak_kib(editor: Editor) -> int:
    """The server's peak virtual memory in KiB."""
    status = Path(f"/proc/{editor.process.pid}/status").read_text()
    return int(status.partition("VmPeak:")[2].split()[0])
