"""Typing faster than the engine answers: every request is answered once, none with a text of the past."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from support.lsp.editor_client import Editor, Page, echoed

KEYS, KEYS_PER_S = 500, 50
ROUND_MS = 100
WHOLE_S = 19 * ROUND_MS / 1000  # what a request takes that nobody stops
SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1


@pytest.fixture(scope="module")
def slow() -> Iterator[Editor]:
    """An engine that takes two seconds for an answer, and is asked for nothing but what the editor asks for."""
    only_asked = ("--set", "completion.prepare_next=false")  # a preparation that is given up is a cancelled request too
    with Editor("--set", f"echo.round_ms={ROUND_MS}", "--set", "completion.deadline_ms=20000", *only_asked) as editor:
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
    one, two = Page(slow, SOURCE, uri="file:///one.py"), Page(slow, SOURCE + "#", uri="file:///two.py")
    asked = one.ask(CURSOR), two.ask(CURSOR)
    assert (slow.text(asked[0]), slow.text(asked[1])) == (one.expected(CURSOR), two.expected(CURSOR))


@pytest.mark.promise(10)
def test_a_change_alone_supersedes_nothing(slow: Editor):
    page = Page(slow, SOURCE, uri="file:///changed.py")
    asked, expected = page.ask(CURSOR), page.expected(CURSOR)
    page.type(0, "# ")
    assert slow.text(asked) == expected


@pytest.mark.promise(9, 10)
def test_a_cancelled_request_is_answered_as_such_and_the_engine_stops_within_a_round(slow: Editor):
    page = Page(slow, SOURCE, uri="file:///cancelled.py")
    before = cancelled(slow)
    asked = page.ask(CURSOR)
    wait_until_working(slow)
    start = time.perf_counter()
    slow.notify("$/cancelRequest", {"id": asked})
    assert slow.reply(asked)["error"]["code"] == -32800
    assert time.perf_counter() - start < 0.8 * WHOLE_S
    while slow.metrics()["speclsp_running_requests"]:
        assert time.perf_counter() - start < 0.8 * WHOLE_S
    assert cancelled(slow) == before + 1
    assert slow.text(page.ask(CURSOR)) == page.expected(CURSOR)


def test_a_closed_document_ends_its_request(slow: Editor):
    page = Page(slow, SOURCE, uri="file:///closed.py")
    asked = page.ask(CURSOR)
    slow.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    assert slow.items(asked, timeout_s=0.8 * WHOLE_S) == []


def test_shutdown_in_the_middle_of_a_round_leaves_nothing_unanswered():
    with Editor("--set", f"echo.round_ms={ROUND_MS}") as editor:
        page = Page(editor.begin(), SOURCE)
        asked = page.ask(CURSOR)
        wait_until_working(editor)
        (engine,) = editor.engines()
        editor.call("shutdown")
        assert editor.reply(asked)["error"]["code"] == -32800
        editor.notify("exit")
        assert editor.ended(10) == 0
        assert editor.gone(engine, within_s=10)


@pytest.mark.promise(10, 11)
def test_a_storm_of_keys_is_answered_completely_in_order_and_never_with_the_past():
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
            asked = page.ask(cursor)
            expected[asked] = page.expected(cursor)
            if rng.random() < 0.2:
                editor.notify("$/cancelRequest", {"id": asked})
                del expected[asked]
            elif number % 10 == 9:
                editor.reply(asked)  # a moment's thought
            next_key += 1 / KEYS_PER_S
            time.sleep(max(0.0, next_key - time.perf_counter()))
        start = time.perf_counter()
        cursor = page.type(len(page.text), "\n")
        final = page.ask(cursor)
        assert editor.text(final) == page.expected(cursor)
        assert time.perf_counter() - start < 5, "the storm is not over for it"
        assert editor.wait_for(lambda: all(editor.replies[asked] for asked in expected)), "unanswered"
        texts = {asked: editor.text(asked) for asked in expected}
        assert [asked for asked, text in texts.items() if text not in (None, expected[asked])] == [], "stale"
        shown = [asked for asked, text in texts.items() if text is not None]
        assert len(shown) > KEYS / 20, "some were waited for"
        assert all(len(replies) == 1 for replies in editor.replies.values())
        arrived = [asked for asked in editor.arrived if asked in expected]
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
                asked = [page.ask(CURSOR) for page in pages]
                for editor, page, number_asked in zip((first, second), pages, asked, strict=True):
                    assert editor.text(number_asked) == echoed(page.text[:CURSOR], page.text[CURSOR:])
