"""Keys that agree with what is being streamed, and prompts read ahead: over the wire, with real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.lsp.editor_client import Editor, Page

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    """An engine that says a character every 20 ms, 19 in all."""
    with Editor("--set", "echo.round_ms=20") as editor:
        yield editor.begin()
        assert editor.popups() == []


def wait_until_working(editor: Editor) -> None:
    deadline = time.monotonic() + 20
    while not editor.metrics().get("speclsp_running_requests") and time.monotonic() < deadline:
        time.sleep(0.005)


def count(editor: Editor, name: str) -> float:
    return sum(value for found, value in editor.metrics().items() if found.startswith(f"speclsp_{name}"))


@pytest.mark.promise(11)
def test_a_key_that_agrees_takes_the_stream_over_and_the_engine_notices_nothing(editor: Editor):
    page = Page(editor, SOURCE, uri="file:///along.py")
    asked, cancelled = editor.asked(), count(editor, "cancelled_total")
    said = page.expected(CURSOR)
    older, cursor = page.ask(CURSOR), CURSOR
    wait_until_working(editor)
    for typed in said[:3]:
        cursor = page.type(cursor, typed)
        newer = page.ask(cursor)
        assert editor.items(older) == [], "answered at once"
        older = newer
    assert editor.text(older) == said[3:]
    assert editor.asked() == asked + 1 and count(editor, "cancelled_total") == cancelled
    assert editor.arrived == sorted(editor.arrived)


@pytest.mark.promise(11)
def test_it_does_so_for_an_editor_that_cancels_before_it_asks_again(editor: Editor):
    """VS Code: $/cancelRequest, didChange, and up to 50 ms later the next request."""
    page = Page(editor, SOURCE, uri="file:///cancels-first.py")
    asked, said = editor.asked(), page.expected(CURSOR)
    older = page.ask(CURSOR)
    wait_until_working(editor)
    editor.notify("$/cancelRequest", {"id": older})
    cursor = page.type(CURSOR, said[0])
    assert editor.reply(older)["error"]["code"] == -32800
    time.sleep(0.04)
    assert editor.text(page.ask(cursor)) == said[1:]
    assert editor.asked() == asked + 1


@pytest.mark.promise(11)
def test_a_key_that_disagrees_is_asked_about_anew(editor: Editor):
    page = Page(editor, SOURCE, uri="file:///disagrees.py")
    older = page.ask(CURSOR)
    wait_until_working(editor)
    cursor = page.type(CURSOR, "x")
    newer = page.ask(cursor)
    assert editor.items(older) == []
    assert editor.text(newer) == page.expected(cursor)


def test_a_prompt_is_read_ahead_after_a_pause_and_the_request_goes_on_from_there(editor: Editor):
    page = Page(editor, SOURCE, uri="file:///ahead.py")
    assert editor.text(page.ask(CURSOR))
    used, asked = count(editor, 'prefill_ahead_total{outcome="used"}'), editor.asked()
    cursor = page.type(CURSOR, "xy")
    time.sleep(0.3)  # an editor that waits before it asks
    assert editor.asked() == asked, "reading ahead is no request"
    assert editor.text(page.ask(cursor)) == page.expected(cursor)
    assert count(editor, 'prefill_ahead_total{outcome="used"}') == used + 1


def test_a_request_that_comes_with_its_key_leaves_nothing_to_read_ahead(editor: Editor):
    page = Page(editor, SOURCE, uri="file:///at-once.py")
    read = count(editor, "prefill_ahead_total")
    cursor = CURSOR
    for typed in "abcde":
        cursor = page.type(cursor, typed)
        assert editor.text(page.ask(cursor)) == page.expected(cursor)
    assert count(editor, "prefill_ahead_total") == read
