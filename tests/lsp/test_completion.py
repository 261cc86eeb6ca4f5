"""`speclsp lsp --model echo` as an editor uses it. Every answer identifies the text of its request."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.lsp.editor_client import CAPABILITIES, Editor, Page, echoed

from speclsp import config
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles

INVOKED = 1
SOURCE = 'def area(r):\n    """π r² 𝒙"""\n    return \n\nclass Ω:\n    pass\n'


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    with Editor() as shared:
        yield shared.begin()
        assert shared.popups() == []
        assert shared.stray == b""


@pytest.fixture
def page(editor: Editor, request: pytest.FixtureRequest) -> Page:
    return Page(editor, SOURCE, uri=f"file:///{request.node.name}.py")


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_initialize_is_answered_before_anything_heavy_and_torch_is_never_loaded():
    """It takes 0.4 s. This test checks that nothing blocks."""
    with Editor(warm=False) as editor:
        assert editor.initialize()["serverInfo"]["name"] == "speclsp"
        assert time.perf_counter() - editor.started < 10
        page = Page(editor.until("ready"), SOURCE)
        assert editor.text(page.ask(3)) == page.expected(3)
        assert "libtorch" not in Path(f"/proc/{editor.process.pid}/maps").read_text()


def test_loading_is_reported_as_status_and_as_progress():
    with Editor() as editor:
        editor.begin()
        assert editor.wait_for(lambda: "end" in [value["kind"] for value in editor.progress()])
        page = Page(editor, SOURCE)
        assert editor.text(page.ask(3)) == page.expected(3)
        editor.until("ready", after=editor.states().index("thinking"))
        statuses = editor.statuses()
    assert [status["state"] for status in statuses][:2] == ["asleep", "starting"]
    assert [status["state"] for status in statuses][-3:] == ["ready", "thinking", "ready"]
    assert set(statuses[-1]) == {
        *("state", "model", "model_reason", "target", "draft", "device", "message", "progress", "last_latency_ms"),
        *("last_reason", "last_reason_meaning", "problems"),
        *("remote", "clients", "engine_pid", "trigger", "show_latency"),
        *("eagerness", "next_edit", "edit_format", "log"),
    }
    assert (statuses[-1]["model"], statuses[-1]["device"], statuses[-1]["problems"]) == ("echo", "cpu", [])
    assert statuses[-1]["log"] == str(config.log_dir() / "lsp.log")
    assert 0 < statuses[-1]["last_latency_ms"] < 3000
    assert all(a != b for a, b in itertools.pairwise(statuses)), "sent without a change"
    kinds = [value["kind"] for value in editor.progress()]
    assert kinds[0] == "begin" and kinds[-1] == "end" and set(kinds[1:-1]) <= {"report"}


def test_a_client_without_progress_support_gets_no_progress():
    with Editor() as editor:
        editor.begin({})
        assert editor.requests == [] and editor.progress() == []


def test_while_the_model_loads_answers_are_empty_and_progress_is_reported(isolated: Path):
    events = [b'{"status":"loading","progress":%.1f,"message":"reading"}' % (n / 10) for n in (2, 2, 4, 4, 4, 7, 9)]
    with telling(isolated / "e.sock", *events), Editor() as editor:
        editor.initialize(CAPABILITIES)
        editor.until("loading")
        page = Page(editor, SOURCE)
        assert editor.items(page.ask(3)) == []
        assert editor.wait_for(lambda: 90 in [value.get("percentage") for value in editor.progress()])
        fractions = [status["progress"] for status in editor.statuses() if status["state"] == "loading"]
        # A status repeats its progress when only the reason changes.
        fractions = [progress for progress, _ in itertools.groupby(fractions)]
        reported = [value for value in editor.progress() if value["kind"] == "report"]
    assert fractions == [0.2, 0.4, 0.7, 0.9]
    assert {"kind": "report", "message": "reading", "percentage": 70} in reported


# ── the text of an answer ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_invoked_request_may_get_several_different_suggestions(editor: Editor, page: Page):
    items = editor.items(page.ask(9, INVOKED))
    texts = [item["insertText"] for item in items]
    assert texts[0] == page.expected(9)
    assert 1 <= len(texts) == len(set(texts)) <= 3


def test_a_request_for_another_version_gets_nothing(editor: Editor, page: Page):
    assert editor.items(editor.complete(page.uri, 2, 11, version=7)) == []
    items = editor.items(editor.complete(page.uri, 2, 11, version=1, formattingOptions={"tabSize": 4}))
    assert len(items) == 1


# ── the item selected in the completion menu ──────────────────────────────────────────────────────────────────────────


def test_a_suggestion_continues_the_selected_menu_item(editor: Editor, page: Page):
    cursor = page.type(page.text.index("return ") + 7, "ma.")
    span = {"start": page.place(cursor - 1), "end": page.place(cursor)}
    (item,) = editor.items(page.ask(cursor, selectedCompletionInfo={"range": span, "text": ".log"}))
    assert item["insertText"] == ".log" + echoed(page.text[: cursor - 1] + ".log", page.text[cursor:])
    assert item["range"] == span


@pytest.mark.parametrize("columns", [(0, 3), (12, 14)])
def test_a_selected_item_away_from_the_cursor_gets_nothing(editor: Editor, page: Page, columns: tuple[int, int]):
    start, end = ({"line": 2, "character": column} for column in columns)
    cursor = page.text.index("return ") + 4  # column 8
    selected = {"range": {"start": start, "end": {**end, "line": 1}}, "text": "x"}
    assert editor.items(page.ask(cursor, selectedCompletionInfo=selected)) == []


# ── an engine that cannot serve ───────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def telling(path: Path, *events: bytes, kind: bytes = b"text/event-stream") -> Iterator[None]:
    """A server in the place of the engine: it answers every request with these events and then stays silent."""
    files = EngineFiles.of(config.Config(model="echo"))
    files.write(EngineEndpoint(pid=0, socket=str(path)))
    lock = files.try_lock()  # as an engine has it
    assert lock is not None
    listener = socket.create_server(str(path), family=socket.AF_UNIX)

    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 -\r\nconnection: close\r\ncontent-type: %b\r\n\r\n" % kind)
                for event in events:
                    peer.sendall(b"data: %b\n\n" % event)
                    time.sleep(0.05)
                peer.recv(1)
                peer.close()

    threading.Thread(target=serve, daemon=True).start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    os.close(lock)


@pytest.mark.parametrize(
    ("event", "kind", "error"),
    [
        (b'{"status":"ok"}', b"text/event-stream", "is not a speclsp engine"),
        (b"<html>", b"text/event-stream", "is not a speclsp engine"),
        (b"{}", b"application/json", "is not a speclsp engine"),
        (b'{"status":"error","error":{"message":"no weights."}}', b"text/event-stream", "no weights."),
    ],
)
def test_an_unusable_engine_is_one_sentence_in_the_status(isolated: Path, event: bytes, kind: bytes, error: str):
    with telling(isolated / "e.sock", event, kind=kind), Editor() as editor:
        editor.initialize()
        editor.until("error")
        page = Page(editor, SOURCE)
        assert editor.items(page.ask(3)) == []
        assert error in editor.statuses()[-1]["message"]
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "engine_away")
        assert editor.engines() == [] and editor.popups() == []


def test_an_unknown_pair_is_reported_once_and_not_retried():
    with Editor(model="ecko") as editor:
        editor.initialize()
        editor.until("error")
        assert "'echo'" in editor.statuses()[-1]["message"]
        assert editor.states().count("error") == 1
        assert editor.engines() == []
