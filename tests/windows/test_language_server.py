"""The language server on Windows: spellings of URIs, CRLF, the index, secret files, and the end of the process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.lsp.editor_client import Editor, Page, echoed
from support.waiting import becomes_true

STORE = """\
def load_account(path, version):
    account = read_record(path, version)
    account.balance = checked_balance(account)
    return account
"""
CRLF_STORE = STORE.replace("\n", "\r\n")
EXIT_S = 60


@pytest.fixture(autouse=True)
def program(windows: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`Editor` starts the program of Windows: the variable is read when the tests are collected."""
    from windows.harness.program import PREFIX

    assert windows == PREFIX, "SPECLSP_TESTS_PROGRAM names the same launcher as SPECLSP_WINDOWS_PYTHON"


def address(path: Path, drive: str = "z%3A") -> str:
    """The URI of a Linux path, on the drive that Wine has for it."""
    return f"file:///{drive}{quote(str(path))}"


def lay(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8", newline="")


def context_paths(editor: Editor) -> set[str]:
    """The files whose text was in the last prompt."""
    return {file["path"] for file in editor.call("speclsp/explain", {})["files"]}


@contextmanager
def windows_process(windows: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process of Windows that runs until its stdin ends, and the id that Windows has for it."""
    code = "import os; print(os.getpid(), flush=True); input()"
    process = subprocess.Popen([*windows, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdin.close(), process.stdout.close()


def test_every_spelling_of_a_uri_is_one_document_in_its_folder(tmp_path: Path):
    root = tmp_path / "größe & 100%"
    lay(root, {"App.py": "x = 1\r\n", ".gitignore": "HIDDEN/\n", "hidden/a.py": "import gone\n"})
    with Editor() as editor:
        editor.begin(workspaceFolders=[{"uri": address(root, "Z:"), "name": "work"}])
        uris = [
            address(root / "App.py"),
            address(root / "App.py", "Z:"),
            address(root / "app.py", "Z%3A").replace("%C3%B6", "%c3%b6"),
            f"file://localhost/z:{quote(str(root / 'APP.PY'))}",
        ]
        editor.open(uris[0], "x = \r\n")
        text = "x = \r\n"
        for version, uri in enumerate(uris, 2):
            editor.insert(uri, version, 0, version + 2, str(version))
            text = f"{text[: version + 2]}{version}\r\n"
            assert editor.text(editor.complete(uri, 0, version + 3)) == echoed(text[:-2], "\r\n"), uri
            assert editor.call("speclsp/explain", {})["document"] == "App.py", "its path in the folder"
            editor.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
            editor.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri, "type": 2}]})


def test_context_comes_from_crlf_files_of_long_paths_and_never_from_secret_files(tmp_path: Path):
    root = tmp_path / "work"
    deep = "/".join(["a directory with a long name, größer als sonst"] * 6)
    canary = STORE.replace("account", "kanarienvogel")
    lay(root, {"app.py": "", "store.py": CRLF_STORE, f"{deep}/other.py": f"import app\r\n{CRLF_STORE}"})
    lay(root, {"nul.py": CRLF_STORE, "ID_RSA": canary, ".Env": canary, "secrets.INI": canary, "con/x.py": CRLF_STORE})
    text = "\r\n".join(["import store", "", "def load_user(path, version):", "    account = read_record(", ""])
    with Editor() as editor:
        editor.begin(workspaceFolders=[{"uri": address(root), "name": "work"}])
        for name in (".Env", "ID_RSA", ".env%3A%3A$DATA", "secrets.INI."):
            secret = address(root / "x").removesuffix("x") + name
            editor.open(secret, canary)
            assert editor.items(editor.complete(secret, 0, 3)) == [], name
            assert editor.call("speclsp/explain", {})["outcome"] == "secret_file"
        page = Page(editor, text, uri=address(root / "app.py"))
        at = len(text) - 2
        assert editor.text(page.ask(at)) == page.expected(at)

        def shown() -> set[str]:
            nonlocal at
            at = page.type(at, "\r\n    account = read_record(path, version)")
            assert editor.text(page.ask(at)) == page.expected(at)
            return context_paths(editor)

        assert becomes_true(lambda: "store.py" in shown())
        assert shown() <= {"app.py", "store.py", f"{deep}/other.py"}


def test_a_next_edit_in_a_crlf_document_and_an_orderly_end(tmp_path: Path):
    lines = ["import lib", "", *(f"result_{n} = lib.read(open_file, {n})" for n in range(6)), ""]
    with Editor() as editor:
        editor.begin(workspaceFolders=[{"uri": address(tmp_path), "name": "work"}])
        page = Page(editor, "\r\n".join(lines), uri=address(tmp_path / "app.py"))

        def next_edits(cursor: int) -> list[dict[str, Any]]:
            document = {"uri": page.uri, "version": page.version}
            params = {"textDocument": document, "position": page.place(cursor), "context": {"triggerKind": 2}}
            return editor.call("textDocument/copilotInlineEdit", params)["edits"]

        next_edits(0)  # after this its ignore files have been read
        cursor = 0
        for number in range(2):
            start = page.text.index("open_file")
            page.edit(start, start + len("open_file"), "shared.file")
            cursor = start + len("shared.file")
            assert page.text.count("shared.file") == number + 1
        (edit,) = next_edits(cursor)
        changed = page.place(page.text.index("open_file"))
        end = page.place(page.text.index("open_file") + len("open_file"))
        assert (edit["text"], edit["range"]) == ("shared.file", {"start": changed, "end": end})
        cancelled = page.ask(cursor)
        editor.notify("$/cancelRequest", {"id": cancelled})
        reply = editor.reply(cancelled)
        assert "result" in reply or reply["error"]["code"] == -32800
        assert editor.call("shutdown") is None
        editor.notify("exit")
        assert editor.ended(EXIT_S) == 0
        assert editor.stray == b"", "stdout is binary: no line end was translated"


def test_the_end_of_the_client_ends_the_server_although_its_pipe_is_open(windows: list[str]):
    with windows_process(windows) as (client, pid), Editor() as editor:
        editor.initialize({}, processId=pid)
        editor.call("speclsp/explain", {})
        client.kill()
        assert editor.ended(EXIT_S) == 1


def test_an_id_that_is_no_process_is_not_watched_and_exit_without_shutdown_ends_with_1():
    with Editor() as editor:
        editor.begin(processId=2**30 - 4)
        assert editor.call("speclsp/explain", {})["asked"] is False
        editor.notify("exit")
        assert editor.ended(EXIT_S) == 1


def test_the_end_of_stdin_ends_the_server_and_its_processes(tmp_path: Path):
    lay(tmp_path, {"app.py": "x = 1\r\n"})
    with Editor() as editor:
        editor.begin(workspaceFolders=[{"uri": address(tmp_path), "name": "work"}])
        Page(editor, "x = 1\r\n", uri=address(tmp_path / "app.py"))
        assert becomes_true(lambda: len(editor.server.children(recursive=True)) >= 1)
        started = editor.server.children(recursive=True)
        editor.process.stdin.close()
        assert editor.ended(EXIT_S) == 1
        assert becomes_true(lambda: not any(process.is_running() for process in started)), "no orphan"
