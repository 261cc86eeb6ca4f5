"""Progress until the first suggestion: fetching is shown with sizes, can be cancelled, and resumes where it stopped."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.waiting import becomes_true
from support.weights.faulty_hub import Hub

from speclsp.weights import cards

PAIR = "starcoder2-3b"
SIZE = 30_000_000
TENSORS = bytes(range(250)) * (SIZE // 250)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that sends the large file slowly."""
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": TENSORS}
    server = Hub({PAIR: files}, cards.load(PAIR).target.revision)
    server.next = [("slow", 0)] * 9
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()


def begun(editor: Editor) -> list[dict[str, Any]]:
    """The params of each $/progress that begins a progress bar."""
    sent = [message["params"] for message in list(editor.notifications) if message["method"] == "$/progress"]
    return [params for params in sent if params["value"]["kind"] == "begin"]


def fetched_mb(editor: Editor) -> list[int]:
    """The sizes in the messages of the progress bar, in megabytes."""
    messages = [value.get("message", "") for value in editor.progress()]
    return [int(match[1]) for match in map(re.compile(r"fetching .*: (\d+) of 30 MB$").match, messages) if match]


def test_fetching_is_shown_with_sizes_cancelled_by_its_button_and_resumed(hub: Hub):
    partial = Path(os.environ["XDG_CACHE_HOME"]) / "speclsp" / "models" / f"{PAIR}.fetching"
    with Editor(model=PAIR) as editor:
        editor.initialize(CAPABILITIES)
        assert editor.wait_for(lambda: max(fetched_mb(editor), default=0) >= 1, 60), editor.progress()
        (engine,) = editor.engines()
        (bar,) = begun(editor)
        assert bar["value"]["cancellable"] is True and PAIR in bar["value"]["title"]
        assert any(status["progress"] for status in editor.statuses())

        editor.notify("window/workDoneProgress/cancel", {"token": "somebody else's"})
        editor.notify("window/workDoneProgress/cancel", {"token": bar["token"]})
        editor.until("error")
        message = editor.statuses()[-1]["message"]
        assert "restart" in message and "setting" in message and "smaller model" in message
        assert editor.wait_for(lambda: editor.progress()[-1]["kind"] == "end")
        assert editor.gone(engine, within_s=10)
        kept_bytes = sum(file.stat().st_size for file in partial.rglob("*") if file.is_file())
        assert kept_bytes >= 1_000_000, "what was fetched is gone"
        page = Page(editor, "x = \n")
        assert editor.items(page.ask(4)) == []
        assert editor.states()[-1] == "error", "nothing is started by asking"

        before = len(editor.statuses())
        editor.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"max_tokens": 50}}})
        editor.until("loading", after=before, timeout_s=60)
        assert editor.wait_for(lambda: len(begun(editor)) == 2, 60)
        assert becomes_true(lambda: len(hub.transfers) >= 2)
    first, second = (start for _, start in hub.transfers[:2])
    assert first == 0 and second >= 100_000, "it went on where it was"


def test_cancelling_a_finished_progress_bar_does_nothing():
    with Editor() as editor:
        editor.begin()
        assert editor.wait_for(lambda: "end" in [value["kind"] for value in editor.progress()])
        editor.notify("window/workDoneProgress/cancel", {"token": begun(editor)[0]["token"]})
        page = Page(editor, "x = \n")
        assert editor.text(page.ask(4)) == page.expected(4)
        assert editor.states()[-1] != "error"
