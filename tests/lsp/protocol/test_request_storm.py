"""Typing faster than the engine answers: every request is answered once, and never for an older text."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from support.lsp.editor_client import Editor, Page, echoed

KEYS, KEYS_PER_S = 500, 50
ROUND_MS = 100
WHOLE_S = 19 * ROUND_MS / 1000  # duration of a request that is not cancelled
SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1


@pytest.fixture(scope="module")
def slow() -> Iterator[Editor]:
    """An editor with an engine that takes two seconds for an answer and gets only the editor's requests."""
    no_prefetch = (
        "--set",
        "completion.prefetch_next=false",
    )  # an abandoned prefetch also counts as a cancelled request
    with Editor("--set", f"echo.round_ms={ROUND_MS}", "--set", "completion.timeout_ms=20000", *no_prefetch) as editor:
        yield editor.begin()
        assert editor.popups() == []


def wait_until_working(editor: Editor) -> None:
    deadline = time.monotonic() + 20
    while not editor.metrics().get("speclsp_running_requests") and time.monotonic() < deadline:
        time.sleep(0.01)


def cancelled(editor: Editor) -> float:
    return sum(value for name, value in editor.metrics().items() if "cancelled_total" in name)


@pytest.mark.promise(10)
def test_a_newer_request_of_the_document_ends_the_older_one_empty_at_once(slow: Editor):
    page = Page(slow, SOURCE, uri="file:///superseded.py")
    older = page.ask(CURSOR)
    wait_until_working(slow)
    start = time.perf_counter()
    newer = page.ask(page.type(CURSOR, "x "))
    assert slow.items(older) == []
    assert time.perf_counter() - start < 0.8 * WHOLE_S
    assert slow.text(newer) == page.expected(CURSOR + 2)


@pytest.mark.promise(10)
def test_documents_do_not_supersede_each_other(slow: Editor):
    first, second = Page(slow, SOURCE, uri="file:///one.py"), Page(slow, SOURCE + "#", uri="file:///two.py")
    request_ids = first.ask(CURSOR), second.ask(CURSOR)
    assert (slow.text(request_ids[0]), slow.text(request_ids[1])) == (first.expected(CURSOR), second.expected(CURSOR))


@pytest.mark.promise(10)
def test_a_change_alone_supersedes_nothing(slow: Editor):
    page = Page(slow, SOURCE, uri="file:///changed.py")
    request_id, expected = page.ask(CURSOR), page.expected(CURSOR)
    page.type(0, "# ")
    assert slow.text(request_id) == expected


@pytest.mark.promise(9, 10)
def test_a_cancelled_request_gets_its_error_and_the_engine_stops_within_a_round(slow: Editor):
    page = Page(slow, SOURCE, uri="file:///cancelled.py")
    cancelled_before = cancelled(slow)
    request_id = page.ask(CURSOR)
    wait_until_working(slow)
    start = time.perf_counter()
    slow.notify("$/cancelRequest", {"id": request_id})
    assert slow.reply(request_id)["error"]["code"] == -32800
    assert time.perf_counter() - start < 0.8 * WHOLE_S
    while slow.metrics()["speclsp_running_requests"]:
        assert time.perf_counter() - start < 0.8 * WHOLE_S
    assert cancelled(slow) == cancelled_before + 1
    assert slow.text(page.ask(CURSOR)) == page.expected(CURSOR)


def test_a_closed_document_ends_its_request(slow: Editor):
    page = Page(slow, SOURCE, uri="file:///closed.py")
    request_id = page.ask(CURSOR)
    slow.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    assert slow.items(request_id, timeout_s=0.8 * WHOLE_S) == []


def test_shutdown_in_mid_round_leaves_no_request_unanswered():
    with Editor("--set", f"echo.round_ms={ROUND_MS}") as editor:
        page = Page(editor.begin(), SOURCE)
        request_id = page.ask(CURSOR)
        wait_until_working(editor)
        (engine,) = editor.engines()
        editor.call("shutdown")
        assert editor.reply(request_id)["error"]["code"] == -32800
        editor.notify("exit")
        assert editor.ended(10) == 0
        assert editor.gone(engine, within_s=10)


@pytest.mark.promise(10, 11)
def test_a_storm_of_keys_is_answered_completely_in_order_and_never_for_an_older_text():
    rng = random.Random(7)
    with Editor("--set", "echo.round_ms=1") as editor:
        page = Page(editor.begin(), SOURCE)
        cursor, expected = CURSOR, {}
        memory_mib = editor.server.memory_info().rss / 2**20
        next_key = time.perf_counter()
        for number in range(KEYS):
            if number and number % 40 == 0:
                cursor = rng.choice([at for at in page.stops() if page.text[at : at + 1] == "\n"])
            if rng.random() < 0.1 and cursor > 12:
                page.edit(cursor - 1, cursor, "")
                cursor -= 1
            else:
                cursor = page.type(cursor, rng.choice("abcdxyz _.=(é𝒙\n"))
            request_id = page.ask(cursor)
            expected[request_id] = page.expected(cursor)
            if rng.random() < 0.2:
                editor.notify("$/cancelRequest", {"id": request_id})
                del expected[request_id]
            elif number % 10 == 9:
                editor.reply(request_id)  # a pause in typing
            next_key += 1 / KEYS_PER_S
            time.sleep(max(0.0, next_key - time.perf_counter()))
        start = time.perf_counter()
        cursor = page.type(len(page.text), "\n")
        final = page.ask(cursor)
        assert editor.text(final) == page.expected(cursor)
        assert time.perf_counter() - start < 5, "the storm is not over for it"
        assert editor.wait_for(lambda: all(editor.replies[request_id] for request_id in expected)), "unanswered"
        texts = {request_id: editor.text(request_id) for request_id in expected}
        assert [request_id for request_id, text in texts.items() if text not in (None, expected[request_id])] == [], (
            "stale"
        )
        shown = [request_id for request_id, text in texts.items() if text is not None]
        assert len(shown) > KEYS / 20, "some were waited for"
        assert all(len(replies) == 1 for replies in editor.replies.values())
        arrived = [request_id for request_id in editor.arrived if request_id in expected]
        assert arrived == sorted(arrived), "out of order"
        assert editor.server.memory_info().rss / 2**20 - memory_mib < 20
        assert editor.popups() == []


@pytest.mark.promise(21)
def test_answers_to_two_editors_at_one_engine_are_not_mixed_up():
    with Editor("--set", "echo.round_ms=1") as first:
        first.begin()
        (socket,) = first.runtime.glob("*.sock")
        with Editor("--set", f"engine.socket={socket}") as second:
            second.begin()
            for number in range(10):
                text = f"{SOURCE}# {number}"
                pages = Page(first, text + "1"), Page(second, text + "2")
                request_ids = [page.ask(CURSOR) for page in pages]
                for editor, page, request_id in zip((first, second), pages, request_ids, strict=True):
                    assert editor.text(request_id) == echoed(page.text[:CURSOR], page.text[CURSOR:])
