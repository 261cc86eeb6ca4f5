"""Typing through a stream and prefilled prompts: over the wire, with real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    """An editor with an engine that streams one character every 20 ms, 19 in all."""
    with Editor("--set", "echo.round_ms=20") as editor:
        yield editor.begin()
        assert editor.popups() == []


def wait_until_working(editor: Editor) -> None:
    wait_until(lambda: editor.metrics().get("speclsp_running_requests"))


def count(editor: Editor, name: str) -> float:
    return sum(value for metric, value in editor.metrics().items() if metric.startswith(f"speclsp_{name}"))


@pytest.mark.promise(11)
def test_a_matching_key_continues_the_stream_without_a_new_engine_request(editor: Editor):
    page = Page(editor, SOURCE, uri="file:///along.py")
    requests_before, cancelled_before = editor.request_count(), count(editor, "cancelled_total")
    suggestion = page.expected(CURSOR)
    older, cursor = page.ask(CURSOR), CURSOR
    wait_until_working(editor)
    for key in suggestion[:3]:
        cursor = page.type(cursor, key)
        newer = page.ask(cursor)
        assert editor.items(older) == [], "answered at once"
        older = newer
    assert editor.text(older) == suggestion[3:]
    assert editor.request_count() == requests_before + 1 and count(editor, "cancelled_total") == cancelled_before
    assert editor.arrived == sorted(editor.arrived)


@pytest.mark.promise(11)
def test_the_stream_continues_for_an_editor_that_cancels_before_its_next_request(editor: Editor):
    """VS Code sends $/cancelRequest, didChange, and up to 50 ms later the next request."""
    page = Page(editor, SOURCE, uri="file:///cancels-first.py")
    requests_before, suggestion = editor.request_count(), page.expected(CURSOR)
    older = page.ask(CURSOR)
    wait_until_working(editor)
    editor.notify("$/cancelRequest", {"id": older})
    cursor = page.type(CURSOR, suggestion[0])
    assert editor.reply(older)["error"]["code"] == -32800
    time.sleep(0.04)
    assert editor.text(page.ask(cursor)) == suggestion[1:]
    assert editor.request_count() == requests_before + 1


def test_neither_a_change_alone_nor_another_document_supersedes_a_request_and_closing_ends_it(editor: Editor):
    first, second, closed = (Page(editor, f"{SOURCE}# {name}", uri=f"file:///{name}.py") for name in "abc")
    expected = [page.expected(CURSOR) for page in (first, second)]
    request_ids = [page.ask(CURSOR) for page in (first, second, closed)]
    first.type(0, "# ")
    editor.notify("textDocument/didClose", {"textDocument": {"uri": closed.uri}})
    assert [editor.text(request_id) for request_id in request_ids[:2]] == expected
    assert editor.items(request_ids[2]) == []
