"""Source text stays in the editor's buffers: never on disk, in a log or in a process's arguments."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from promises import Measured
from support.lsp.editor_client import Editor, Page
from support.lsp.faulty_http_server import Connection, FaultyServer, HttpRequest
from support.soak import in_soak
from windows.harness.program import IS_FOREIGN

from speclsp.observability import logfile

CANARY = "zq7canaryzq7"
SOURCE = f'def {CANARY}_total({CANARY}_values):\n    """{CANARY} in words."""\n    return \n'
CURSOR = len(SOURCE) - 1


def everything_written(root: Path) -> Iterator[tuple[Path, bytes]]:
    """All ordinary files below this test's own user directories."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


def found_in(root: Path) -> list[str]:
    return [str(path) for path, data in everything_written(root) if CANARY.encode() in data]


def use(editor: Editor, name: str) -> None:
    """An hour of editing: typing, accepting, invalid messages, odd documents, failing settings."""
    page, cursor = Page(editor, SOURCE, uri=f"file:///project/{name}.py"), CURSOR
    for letter in f"{CANARY}_values[0] + ":
        cursor = page.type(cursor, letter)
        editor.items(page.ask(cursor))
    items = editor.items(page.ask(cursor, kind=1))
    page.type(cursor, items[0]["insertText"] if items else "0")
    uri = {"uri": page.uri}
    editor.reply(editor.request("textDocument/inlineCompletion", {"textDocument": uri, "position": CANARY}))
    editor.reply(editor.request(f"unknown/{name}", {"text": SOURCE}))
    editor.notify(
        "textDocument/didChange",
        {"textDocument": {**uri, "version": 9}, "contentChanges": [{"text": 5, CANARY: SOURCE}]},
    )
    editor.notify("textDocument/didOpen", {"textDocument": {"uri": uri, "text": SOURCE}})
    editor.raw(b"Content-Length: %d\r\n\r\n%b" % (len(SOURCE), SOURCE.encode()))
    cancelled = page.ask(cursor)
    editor.notify("$/cancelRequest", {"id": cancelled})
    editor.reply(cancelled)
    editor.notify("textDocument/didClose", {"textDocument": uri})
    editor.call("speclsp/here", {"textDocument": uri})


@pytest.mark.promise(35)
@pytest.mark.parametrize("model", ["echo", *in_soak("tiny")])
def test_no_text_of_a_buffer_is_on_disk_or_in_a_process_s_arguments(promise: Measured, isolated: Path, model: str):
    with Editor("--trace", model=model, warm=False) as editor:
        editor.begin()
        use(editor, model)
        (engine,) = editor.engines()
        for process in (editor.server, engine):
            assert CANARY not in " ".join(process.cmdline()) + json.dumps(process.environ())
        during = found_in(isolated)
        engine.kill()  # a crash writes no more than an orderly end
        editor.until("ready", after=len(editor.statuses()))
        use(editor, f"{model}-again")
        logs = sorted(editor.logs.iterdir())
    assert {path.name for path in logs} >= {"lsp.log", "engine.log"}
    assert during == found_in(isolated) == []
    if not IS_FOREIGN:  # Windows has rights in place of modes
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in logs)
        assert stat.S_IMODE(editor.logs.stat().st_mode) == 0o700
    files = sum(1 for _ in everything_written(isolated))
    promise.measured(f"{model}: 0 canaries in {files} files after an hour's worth of messages and a crash", holds=True)


@pytest.mark.promise(35, 36)
def test_a_remote_error_that_quotes_the_document_reaches_no_log(promise: Measured, isolated: Path):
    async def quotes(request: HttpRequest, connection: Connection) -> None:
        await connection.whole(400, json.dumps({"error": {"message": f"cannot parse: {request.body}"}}).encode())

    with FaultyServer() as server:
        server.always = quotes
        with Editor("--trace", "--set", f"remote.url={server.url}", model="qwen2.5-coder-0.5b-instruct") as editor:
            editor.initialize()
            assert editor.wait_for(lambda: editor.states() and editor.states()[-1] in ("ready", "error"), 20)
            use(editor, "far")
        assert CANARY in json.dumps([request.body for request in server.requests]), "else nothing was quoted"
    assert found_in(isolated) == []
    promise.measured("a server's errors that quote the document: 0 canaries in the log", holds=True)


@pytest.mark.promise(35)
def test_a_log_stays_within_ten_megabytes_and_is_readable_by_its_user_only(promise: Measured, tmp_path: Path):
    before = os.umask(0)  # the most verbose setting
    try:
        handler = logfile.open_file(tmp_path / "log" / "x.log")
        assert handler is not None
        for count in range(15_000):
            handler.emit(logging.LogRecord("speclsp.x", logging.INFO, "", 0, f"{count} " + "x" * 990, None, None))
        handler.close()
    finally:
        os.umask(before)
    files = list((tmp_path / "log").iterdir())
    size = sum(path.stat().st_size for path in files)
    assert size <= 2 * logfile.MAX_BYTES + 5000
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    promise.measured(f"15 MB logged: {size / 1e6:.1f} MB kept, mode 0600", holds=size <= 10_000_000)
