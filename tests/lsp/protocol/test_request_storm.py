"""Typing faster than the engine answers: every request is answered once, and never for an older text."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.lsp.editor_client import Editor, Page, echoed

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


@pytest.mark.promise(21)
def test_answers_to_two_editors_at_one_engine_are_not_mixed_up():
    with Editor("--set", "echo.round_ms=1") as first:
        first.begin()
        with Editor("--set", "echo.round_ms=1") as second:
            second.begin()
            for number in range(10):
                text = f"{SOURCE}# {number}"
                pages = Page(first, text + "1"), Page(second, text + "2")
                request_ids = [page.ask(CURSOR) for page in pages]
                for editor, page, request_id in zip((first, second), pages, request_ids, strict=True):
                    assert editor.text(request_id) == echoed(page.text[:CURSOR], page.text[CURSOR:])
