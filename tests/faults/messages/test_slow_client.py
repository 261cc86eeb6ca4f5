"""Backpressure: the server waits in bounded memory for an editor that does not read, and still exits with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from support.lsp.editor_client import Editor, Page

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
REQUESTS = 1_000  # requests of either kind
GROWTH_MIB = 50
PATIENCE_S = 180.0
TEXTS = 40
LARGE = "x = 'a line of some length'\n" * 40_000  # 1.1 MB


@pytest.fixture
def editor() -> Iterator[Editor]:
    with Editor() as editor:
        yield editor.begin()
        assert editor.popups() == []
        assert editor.stray == b""
        assert editor.stderr() == ""


class Watched:
    """The peak memory of a server, in MiB above its first measurement."""

    def __init__(self, editor: Editor) -> None:
        self.editor, self.first_kib = editor, editor.rss_kib()
        self.most_mib = 0.0

    def look(self) -> None:
        self.most_mib = max(self.most_mib, (self.editor.rss_kib() - self.first_kib) / 1024)

    def for_s(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(0.02)


@pytest.mark.promise(8)
def test_requests_of_an_editor_that_does_not_read_are_answered_once_it_reads(editor: Editor, soak: bool, promise):
    asleep_s, requests = (30, REQUESTS) if soak else (3, REQUESTS * 2 // 5)
    pages = [Page(editor, SOURCE, uri=f"file:///slow/{number}.py") for number in range(8)]
    cursors = [CURSOR] * len(pages)
    for page in pages:
        assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)
    large = len(str(editor.call("speclsp/models", timeout_s=20)))
    assert large > 5_000
    typed_in = Page(editor, LARGE, uri="file:///slow/large.py")
    editor.call("speclsp/here", {"textDocument": {"uri": typed_in.uri}}, timeout_s=20)
    memory, expected, msg_ids = Watched(editor), dict[int, str](), list[int]()

    def ask() -> None:
        for number in range(requests):
            at = number % len(pages)
            cursors[at] = pages[at].type(cursors[at], "x")
            msg_ids.append(pages[at].ask(cursors[at]))
            expected[msg_ids[-1]] = pages[at].expected(cursors[at])
            msg_ids.append(editor.request("speclsp/models"))
        for version in range(2, 2 + TEXTS):  # from here the server must not answer, nor read more than it can hold
            msg_ids.extend(editor.request("speclsp/models") for _ in range(requests // TEXTS))
            editor.change(typed_in.uri, version, {"text": LARGE})

    editor.stop_reading()
    asking = threading.Thread(target=ask)
    asking.start()  # a writer may block: a pipe holds 64 KiB
    memory.for_s(asleep_s)
    unread = sum(not editor.replies.get(msg_id) for msg_id in list(msg_ids))
    editor.stop_reading(False)
    start = time.monotonic()
    asking.join(PATIENCE_S)
    assert not asking.is_alive()
    assert editor.wait_for(lambda: all(editor.replies[msg_id] for msg_id in msg_ids), PATIENCE_S)
    took_s = time.monotonic() - start
    memory.look()
    assert unread > requests / 2, "it was not slow"
    assert len(msg_ids) == 3 * requests
    assert all(len(editor.replies[msg_id]) == 1 for msg_id in msg_ids)
    texts = {msg_id: editor.text(msg_id) for msg_id in expected}
    assert [msg_id for msg_id, text in texts.items() if text not in (None, expected[msg_id])] == []
    last = list(expected)[-len(pages) :]
    assert [texts[msg_id] for msg_id in last] == [expected[msg_id] for msg_id in last], "nothing newer ended these"
    assert memory.most_mib < GROWTH_MIB
    promise.measured(
        f"{asleep_s} s without reading, {requests:,} completions, {2 * requests:,} replies of {large / 1000:.1f} KB and"
        f" {TEXTS * len(LARGE) / 1e6:.0f} MB of text: memory {memory.most_mib:+.1f} MiB,"
        f" all answered {took_s:.1f} s after",
        holds=memory.most_mib < GROWTH_MIB / 1.048576,
    )


@pytest.mark.promise(8)
@pytest.mark.promise(4)
def test_a_server_whose_editor_does_not_read_still_exits_with_it(editor: Editor, promise):
    Page(editor, SOURCE)
    (engine,) = editor.engines()
    editor.stop_reading()
    msg_ids = [editor.request("speclsp/models") for _ in range(400)]
    time.sleep(1)
    assert not all(editor.replies.get(msg_id) for msg_id in msg_ids)
    start = time.monotonic()
    editor.process.stdin.close()
    editor.ended(PATIENCE_S)
    took_s = time.monotonic() - start
    assert editor.gone(engine)
    promise.measured(f"400 replies unread, then the end of stdin: gone after {took_s:.1f} s", holds=took_s < 3)
    assert took_s < 20
