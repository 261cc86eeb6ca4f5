"""Progress until the first suggestion: fetching is shown with sizes, can be cancelled, and resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.lsp.editor_client import CAPABILITIES, Editor, Page

from speclsp.weights import cards

PAIR = "starcoder2-3b"
SIZE = 30_000_000
TENSORS = bytes(range(250)) * (SIZE // 250)


class SlowHub(ThreadingHTTPServer):
    """A hub that sends the large file slowly: 256 KiB every 0.1 s."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.card = cards.load(PAIR).target
        self.files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": TENSORS}
        self.spans: list[str] = []  # the Range headers of the large file
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for name, body in self.files.items():
            git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(body), "blobId": git}
            if len(body) > 1000:
                entry["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
            siblings.append(entry)
        name, sha = self.card.repo, self.card.revision
        return {"id": name, "modelId": name, "sha": sha, "siblings": siblings, "tags": []}


class Answers(BaseHTTPRequestHandler):
    server: SlowHub

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        path, span = self.path.partition("?")[0], self.headers.get("Range", "")
        if path.startswith("/api/models/"):
            return self.answer(json.dumps(self.server.listing()).encode())
        name = path.rpartition("/")[2]
        if name != "model.safetensors":
            return self.answer(self.server.files[name])
        self.server.spans.append(span)
        start = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
        return self.answer(TENSORS[start:], 206 if span else 200, slowly=True)

    def answer(self, body: bytes, status: int = 200, slowly: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        step = 1 << 18 if slowly else len(body)
        try:
            for offset in range(0, len(body), step):
                self.wfile.write(body[offset : offset + step])
                time.sleep(0.1 if slowly else 0)
        except OSError:
            self.close_connection = True  # the client has disconnected


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowHub]:
    server = SlowHub()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
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


def test_fetching_is_shown_with_sizes_cancelled_by_its_button_and_resumed(hub: SlowHub):
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
        deadline = time.monotonic() + 60
        while len(hub.spans) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert hub.spans[0] == "" and re.fullmatch(r"bytes=\d{6,}-", hub.spans[1]), "it went on where it was"


def test_cancelling_a_finished_progress_bar_does_nothing():
    with Editor() as editor:
        editor.begin()
        assert editor.wait_for(lambda: "end" in [value["kind"] for value in editor.progress()])
        editor.notify("window/workDoneProgress/cancel", {"token": begun(editor)[0]["token"]})
        page = Page(editor, "x = \n")
        assert editor.text(page.ask(4)) == page.expected(4)
        assert editor.states()[-1] != "error"


def test_after_cancelling_one_pair_another_can_be_chosen(hub: SlowHub):
    with Editor(model=PAIR) as editor:
        editor.initialize(CAPABILITIES)
        assert editor.wait_for(lambda: begun(editor), 60)
        editor.notify("window/workDoneProgress/cancel", {"token": begun(editor)[0]["token"]})
        editor.until("error")
        editor.notify("workspace/didChangeConfiguration", {"settings": {"model": "echo"}})
        editor.until("ready", timeout_s=60)
        page = Page(editor, "x = \n")
        assert editor.text(page.ask(4)) == page.expected(4)
        assert editor.wait_for(lambda: len(editor.engines()) == 1)
