"""speclsp/explain and `speclsp explain`: the origin of the last suggestion or the reason for none, without text."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.lsp.editor_client import URI, Editor, Page
from support.waiting import wait_until

from speclsp import config
from speclsp.cli import entry
from speclsp.lsp import reasons
from speclsp.lsp.completion.trace import RequestInfo, Trace, as_json
from speclsp.lsp.server.explain import explanation
from speclsp.observability import explanation as explaining

ROOT = {"workspaceFolders": [{"uri": "file:///project", "name": "project"}], "clientInfo": {"name": "Neovim"}}
STACK = """class Stack:
    def __init__(self):
        self._items = []

    def push(self, item):
        self._items.append(item)

    def pop(self):
        """
CANARY = "kanarienvogel"
DOCS = Path(__file__).parents[2] / "docs"


def explain(editor: Editor, **params: Any) -> dict[str, Any]:
    return editor.call("speclsp/explain", params)


def left(editor: Editor) -> Path:
    """The file in which the server writes its last explanation."""
    return editor.runtime / f"explain-{editor.process.pid}.json"


def until_left(editor: Editor, **facts: object) -> dict[str, Any]:
    """Wait until the file of the last explanation has these facts, and return its content."""
    record: dict[str, Any] = {}

    def has_facts() -> bool:
        record.update(json.loads(left(editor).read_text()) if left(editor).exists() else {})
        return bool(record) and all(record.get(name) == fact for name, fact in facts.items())

    wait_until(has_facts)
    return record


# ── contents of an explanation ───────────────────────────────────────────────────────────────────────────────


def test_a_suggestion_is_explained_with_its_times_its_rounds_its_context_and_its_cuts():
    with Editor("--set", "completion.disabled_languages=", pair="tiny") as editor:
        editor.begin(**ROOT)
        page = Page(editor, STACK + "\n\n\ndef main():\n    pass\n")
        editor.open("file:///project/notes.md", "hello", language="markdown")
        editor.items(editor.complete("file:///project/notes.md", 0, 5))  # after this its ignore files have been read
        (item,) = editor.items(page.ask(len(STACK)), timeout_s=30)
        record = explain(editor)
        assert (record["asked"], record["outcome"], record["meaning"]) == (True, "shown", "")
        assert (record["document"], record["language"], record["line"], record["column"]) == ("app.py", "python", 9, 9)
        assert record["shown_characters"] == len(item["insertText"])
        assert record["streamed_characters"] - sum(cut["characters"] for cut in record["cut"]) == len(
            item["insertText"]
        )
        ms, generation, prompt = record["ms"], record["generation"], record["prompt"]
        assert ms["total"] >= ms["engine"] >= ms["rounds"] > 0 and ms["prompt"] > 0 and ms["first_text"] > 0
        assert ms["waiting"] + ms["parse"] + ms["context"] + ms["engine"] <= ms["total"] + 1
        assert prompt["tokens"] > 20 and prompt["cached_tokens"] < prompt["tokens"]
        assert generation["tokens"] >= generation["rounds"] > 0 and generation["stop"]
        assert sum(counts["drafted"] for counts in generation["by_source"].values()) == generation["drafted"]
        (file,) = record["context"]["files"]
        assert file["path"] == "app.py" and file["characters"] == len(page.text)
        assert sum(record["context"]["left_out"].values()) == 1
        assert record["engine"]["pair"] == "tiny" and record["engine"]["target"]
        for word in ("suggested", "app.py, line 9, column 9", "ms", "tokens", "context"):
            assert word in record["text"]


def test_an_empty_answer_is_explained_with_its_reason_and_its_setting():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, "value = 1\n")
        settings = {"settings": {"completion": {"disabled_languages": ["python"]}}}
        editor.notify("workspace/didChangeConfiguration", settings)
        assert editor.items(page.ask(3)) == []
        record = explain(editor)
        assert record["outcome"] == "language_off" and record["meaning"] == reasons.meaning("language_off")
        assert record["message"] == "python is in completion.disabled_languages"
        assert "nothing shown" in record["text"] and "completion.disabled_languages" in record["text"]


def test_the_explanation_of_an_empty_answer_names_the_document():
    with Editor() as editor:
        editor.begin(**ROOT)
        editor.open("file:///project/sub/.env", "WORD=1\n")
        for name in ("sub/.env", "sub/not_open.py"):
            assert editor.items(editor.complete(f"file:///project/{name}", 0, 0)) == []
            record = explain(editor)
            assert record["document"] == name and f"at         {name}, line 1" in record["text"]


def test_each_document_has_its_last_explanation_and_a_superseded_request_has_none():
    with Editor("--set", "echo.round_ms=20") as editor:
        editor.begin(**ROOT)
        first, second = Page(editor, "a = 1\n"), Page(editor, "b = 22\n", uri="file:///project/b.py")
        assert editor.items(first.ask(3)) and editor.items(second.ask(4))
        superseded, newest = second.ask(2), second.ask(6)
        assert editor.items(superseded) == [] and editor.items(newest)
        assert (explain(editor)["document"], explain(editor)["column"]) == ("b.py", 7)
        assert explain(editor, textDocument={"uri": URI})["document"] == "app.py"
        unasked = explain(editor, textDocument={"uri": "file:///project/c.py"})
        assert unasked["asked"] is False and "no requests yet" in unasked["text"]


def test_an_answer_cut_by_the_deadline_names_the_deadline():
    with Editor("--set", "echo.round_ms=60", "--set", "completion.timeout_ms=500") as editor:
        editor.begin(**ROOT)
        page = Page(editor, "a = \n")
        assert editor.items(page.ask(4))
        record = explain(editor)
        assert record["generation"]["stop"] == "deadline" and "ended: the deadline" in record["text"]
        assert record["streamed_characters"] == record["shown_characters"] < 19


def test_the_time_of_an_engine_without_details_is_shown_as_one_number():
    inside = dict.fromkeys(("waiting", "parse", "context", "queue", "prompt", "rounds", "first_text"), 0.0)
    assert explaining.time_of(inside | {"engine": 50.0, "total": 51.0}) == "51 ms: engine 50"
    assert explaining.time_of(inside | {"engine": 50.0, "prompt": 40.0, "total": 51.0}) == "51 ms: prompt 40"


def test_a_reused_answer_is_distinguished_from_a_model_request():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, "a = \n")
        text = editor.text(page.ask(4))
        editor.text(page.ask(page.type(4, text[:3])))
        record = explain(editor)
        assert record["reused"] and record["generation"]["rounds"] == 0
        assert "no request to the model" in record["text"]


@pytest.mark.parametrize("params", [{"textDocument": 1}, {"textDocument": {}}, {"textDocument": {"uri": 3}}])
def test_invalid_params_are_refused(params: dict[str, Any]):
    with Editor() as editor:
        editor.initialize({})
        assert editor.error("speclsp/explain", params)["code"] == -32602


def test_explain_is_answered_before_an_engine_or_a_request_exists():
    with Editor() as editor:
        editor.initialize({}, **ROOT)
        record = explain(editor)
        assert record["asked"] is False and record["engine"]["state"] in ("starting", "loading", "ready")
        assert "no requests yet" in record["text"]


# ── no text ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_explanation_holds_no_document_text_and_the_log_holds_no_file_name():
    with Editor("--trace", pair="tiny") as editor:
        editor.begin(**ROOT)
        uri = "file:///project/namenstag.py"
        page = Page(editor, f"{CANARY} = 1\n{STACK}", uri=uri)
        Page(editor, f"{CANARY} = 2\n{STACK}", uri="file:///project/other.py")
        editor.items(page.ask(len(page.text)), timeout_s=30)
        record_json = json.dumps(explain(editor))
        assert CANARY not in record_json and "_items" not in record_json and "namenstag.py" in record_json
        until_left(editor, asked=True)
        assert CANARY not in left(editor).read_text() and "_items" not in left(editor).read_text()
        log = (editor.logs / "lsp.log").read_text()
        assert "total_ms" in log and "namenstag" not in log and CANARY not in log


def test_a_trace_in_the_log_has_numbers_and_no_names():
    trace = Trace(document="d", language="python", version=1, characters=3, wanted=1)
    trace.about = RequestInfo(uri=f"file:///{CANARY}", files=((CANARY, 3, "document"),), left_out=(CANARY,))
    assert CANARY not in json.dumps(as_json(trace))
    assert CANARY in json.dumps(explanation(trace))


# ── for `speclsp explain` ────────────────────────────────────────────────────────────────────────────────────


def test_the_command_shows_the_last_used_window_and_with_all_one_line_each(capsys: pytest.CaptureFixture[str]):
    with Editor() as neovim, Editor() as vscode:
        neovim.begin(**ROOT)
        vscode.begin(**(ROOT | {"clientInfo": {"name": "VS Code"}}))
        assert entry.main(["explain"]) in (0, 1)
        capsys.readouterr()
        for editor, column in ((vscode, 3), (neovim, 5)):
            page = Page(editor, "alpha = 1\n")
            editor.items(page.ask(column))
            until_left(editor, asked=True)
        assert entry.main(["explain"]) == 0
        output = capsys.readouterr().out
        assert "Neovim" in output and "line 1, column 6" in output and "\x1b" not in output
        assert entry.main(["explain", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["column"] == 6
        assert entry.main(["explain", "--all"]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert "Neovim" in first and "VS Code" in second


def test_before_the_first_request_the_command_shows_the_state_of_the_engine(capsys: pytest.CaptureFixture[str]):
    with Editor() as editor:
        editor.begin(**ROOT)
        record = until_left(editor, asked=False)
        assert record["engine"]["state"] in ("starting", "ready")
        assert entry.main(["explain"]) == 0
        assert "no requests yet (Neovim)" in capsys.readouterr().out


def test_while_the_model_loads_the_command_says_so(capsys: pytest.CaptureFixture[str]):
    with Editor(pair="tiny") as editor:
        editor.initialize({}, **ROOT)
        wait_until(lambda: left(editor).exists() and '"state": "loading"' in left(editor).read_text())
        assert entry.main(["explain"]) == 0
        assert "engine     loading: " in capsys.readouterr().out
        editor.until("ready")


def test_without_a_server_the_command_says_so_and_fails(capsys: pytest.CaptureFixture[str]):
    assert entry.main(["explain"]) == 1
    assert "no language server is running" in capsys.readouterr().out
    assert entry.main(["explain", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {}


def test_the_explanation_file_is_private_and_removed_with_the_server():
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        assert stat.S_IMODE(left(editor).stat().st_mode) == 0o600
        assert stat.S_IMODE(editor.runtime.stat().st_mode) == 0o700
        path = left(editor)
    assert not path.exists()
    assert not list(path.parent.glob(".explain-*"))


def test_the_file_of_a_killed_server_is_removed_by_the_next_reader():
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        engines = editor.engines()
        editor.process.kill()
        editor.process.wait()
        assert left(editor).exists()
        unfinished = left(editor).with_name(f".explain-{editor.process.pid}.json.abcd1234")  # killed in mid-write
        unfinished.touch(mode=0o600)
        being_written = left(editor).with_name(f".explain-{os.getpid()}.json.abcd1234")
        being_written.touch(mode=0o600)
        assert explaining.running() == []
        assert not left(editor).exists() and not unfinished.exists()
        assert being_written.exists()
        assert all(editor.gone(engine) for engine in engines)


def test_the_file_of_a_killed_server_is_removed_by_the_next_server():
    config.runtime_dir()
    dead = explaining.path_of(99_999_999)
    dead.write_text('{"pid": 99999999, "written_s": 1.0}')
    dead.chmod(0o600)
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        wait_until(lambda: not dead.exists())


def test_the_file_is_written_at_most_four_times_a_second():
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        page, write_times_ns, start_s = Page(editor, "a = 1\n"), set(), time.monotonic()
        while time.monotonic() - start_s < 1.2:
            editor.items(page.ask(len(write_times_ns) % 4))
            write_times_ns.add(left(editor).stat().st_mtime_ns)
        assert len(write_times_ns) <= 2 + (time.monotonic() - start_s) / 0.25


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"pid": "a"}', b'{"pid": 1, "written_s": "x"}', b"\xff\xfe"])
def test_an_invalid_explanation_file_is_ignored_and_removed(content: bytes):
    config.runtime_dir()
    path = explaining.path_of(99_999_999)
    path.write_bytes(content)
    path.chmod(0o600)
    assert explaining.running() == []
    assert not path.exists()


def test_a_fifo_or_a_link_in_place_of_the_file_does_not_block(tmp_path: Path):
    config.runtime_dir()
    os.mkfifo(explaining.path_of(99_999_998), 0o600)
    (tmp_path / "x").write_text('{"pid": 1}')
    explaining.path_of(99_999_997).symlink_to(tmp_path / "x")
    assert explaining.running() == []
    assert (tmp_path / "x").exists()


def test_names_from_a_repository_cannot_steer_a_terminal():
    trace = Trace(document="d", language="py\x1b[2Jthon", version=1, characters=3, wanted=1, outcome="shown")
    trace.about = RequestInfo(uri="file:///a", files=(("\x1b]0;evil\x07\u202e.py", 3, "document"),))
    record = explanation(trace) | {"asked": True, "client": "N\x1b[1mvim", "engine": ENGINE}
    output = explaining.in_words(record) + explaining.in_a_line(record | {"pid": 1})
    assert output.replace("\n", "").isprintable() and "evil" in output


ENGINE = {"state": "ready", "message": "", "pair": "p", "target": "t", "draft": "", "device": "cpu", "remote": ""}


def test_colour_is_used_on_a_terminal_and_can_be_turned_off():
    code = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'speclsp', 'explain']) >> 8)"
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        for no_colour, coloured in (("", True), ("1", False)):
            env = os.environ | {"NO_COLOR": no_colour, "TERM": "xterm"}
            command = [sys.executable, "-c", code]
            completed = subprocess.run(
                command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
            )
            assert ("\x1b[" in completed.stdout) is coloured


# ── cost and documentation ───────────────────────────────────────────────────────────────────────────────────


def test_recording_the_context_takes_under_two_milliseconds():
    from speclsp.lsp.context.build import Chunk, Context

    context = Context(
        "x" * 2000, "y", "z" * 500, tuple(Chunk(f"{n}.py", "t" * 200, 0.5, "similar") for n in range(4)), "a"
    )
    trace = Trace(document="d", language="python", version=1, characters=3, wanted=1)
    start_s = time.perf_counter()
    for _ in range(1000):
        trace.record_context(context)
    assert (time.perf_counter() - start_s) < 2.0, "0.1 ms each is what it may cost; it is some microseconds"


def test_the_list_of_reasons_in_the_docs_matches_the_code():
    assert reasons.as_markdown() in (DOCS / "lsp-extensions.md").read_text(), "paste `python -m speclsp.lsp.reasons`"
