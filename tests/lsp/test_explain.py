"""speclsp/explain and `speclsp explain`: how the last suggestion came about, or why there was none; and no text."""

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
    """Where the server leaves its last explanation."""
    return editor.runtime / f"explain-{editor.process.pid}.json"


def until_left(editor: Editor, **facts: object) -> dict[str, Any]:
    """What the server has left, once it says this."""
    told: dict[str, Any] = {}

    def said() -> bool:
        told.update(json.loads(left(editor).read_text()) if left(editor).exists() else {})
        return bool(told) and all(told.get(name) == fact for name, fact in facts.items())

    wait_until(said)
    return told


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_suggestion_is_explained_with_its_times_its_rounds_its_context_and_its_cuts():
    with Editor(pair="tiny") as editor:
        editor.begin(**ROOT)
        page = Page(editor, STACK + "\n\n\ndef main():\n    pass\n")
        editor.open("file:///project/notes.md", "hello", language="markdown")
        editor.items(editor.complete("file:///project/notes.md", 0, 5))  # by then its ignore files are known
        (item,) = editor.items(page.ask(len(STACK)), timeout_s=30)
        told = explain(editor)
        assert (told["asked"], told["outcome"], told["meaning"]) == (True, "shown", "")
        assert (told["document"], told["language"], told["line"], told["column"]) == ("app.py", "python", 9, 9)
        assert told["shown_characters"] == len(item["insertText"])
        assert told["streamed_characters"] - sum(cut["characters"] for cut in told["cut"]) == len(item["insertText"])
        ms, made, prompt = told["ms"], told["generation"], told["prompt"]
        assert ms["total"] >= ms["engine"] >= ms["rounds"] > 0 and ms["prompt"] > 0 and ms["first_text"] > 0
        assert ms["waiting"] + ms["parse"] + ms["context"] + ms["engine"] <= ms["total"] + 1
        assert prompt["tokens"] > 20 and prompt["cached_tokens"] < prompt["tokens"]
        assert made["tokens"] >= made["rounds"] > 0 and made["stop"]
        assert sum(one["drafted"] for one in made["by_source"].values()) == made["drafted"]
        (file,) = told["context"]["files"]
        assert file["path"] == "app.py" and file["characters"] == len(page.text)
        assert sum(told["context"]["left_out"].values()) == 1
        assert told["engine"]["pair"] == "tiny" and told["engine"]["target"]
        for word in ("suggested", "app.py, line 9, column 9", "ms", "tokens", "context"):
            assert word in told["text"]


def test_nothing_is_explained_with_the_reason_and_the_setting_that_is_one():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, "value = 1\n")
        settings = {"settings": {"completion": {"languages_off": ["python"]}}}
        editor.notify("workspace/didChangeConfiguration", settings)
        assert editor.items(page.ask(3)) == []
        told = explain(editor)
        assert told["outcome"] == "language_off" and told["meaning"] == reasons.meaning("language_off")
        assert told["message"] == "python is in completion.languages_off"
        assert "nothing shown" in told["text"] and "completion.languages_off" in told["text"]


def test_a_nothing_names_its_document_as_a_suggestion_does():
    with Editor() as editor:
        editor.begin(**ROOT)
        editor.open("file:///project/sub/.env", "WORD=1\n")
        for name in ("sub/.env", "sub/not_open.py"):
            assert editor.items(editor.complete(f"file:///project/{name}", 0, 0)) == []
            told = explain(editor)
            assert told["document"] == name and f"at         {name}, line 1" in told["text"]


def test_each_document_has_its_own_last_one_and_a_request_that_was_overtaken_is_none():
    with Editor("--set", "echo.round_ms=20") as editor:
        editor.begin(**ROOT)
        first, second = Page(editor, "a = 1\n"), Page(editor, "b = 22\n", uri="file:///project/b.py")
        assert editor.items(first.ask(3)) and editor.items(second.ask(4))
        overtaken, newest = second.ask(2), second.ask(6)
        assert editor.items(overtaken) == [] and editor.items(newest)
        assert (explain(editor)["document"], explain(editor)["column"]) == ("b.py", 7)
        assert explain(editor, textDocument={"uri": URI})["document"] == "app.py"
        nobody = explain(editor, textDocument={"uri": "file:///project/c.py"})
        assert nobody["asked"] is False and "nothing was asked yet" in nobody["text"]


def test_what_the_deadline_cut_says_so():
    with Editor("--set", "echo.round_ms=60", "--set", "completion.deadline_ms=500") as editor:
        editor.begin(**ROOT)
        page = Page(editor, "a = \n")
        assert editor.items(page.ask(4))
        told = explain(editor)
        assert told["generation"]["stop"] == "deadline" and "ended: the deadline" in told["text"]
        assert told["streamed_characters"] == told["shown_characters"] < 19


def test_the_time_of_an_engine_that_said_nothing_is_told_as_a_whole():
    inside = dict.fromkeys(("waiting", "parse", "context", "queue", "prompt", "rounds", "first_text"), 0.0)
    assert explaining.time_of(inside | {"engine": 50.0, "total": 51.0}) == "51 ms: engine 50"
    assert explaining.time_of(inside | {"engine": 50.0, "prompt": 40.0, "total": 51.0}) == "51 ms: prompt 40"


def test_typing_along_is_told_apart_from_asking_the_model():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, "a = \n")
        text = editor.text(page.ask(4))
        editor.text(page.ask(page.type(4, text[:3])))
        told = explain(editor)
        assert told["reused"] and told["generation"]["rounds"] == 0
        assert "the model was not asked" in told["text"]


@pytest.mark.parametrize("params", [{"textDocument": 1}, {"textDocument": {}}, {"textDocument": {"uri": 3}}])
def test_params_that_make_no_sense_are_refused(params: dict[str, Any]):
    with Editor() as editor:
        editor.initialize({})
        assert editor.error("speclsp/explain", params)["code"] == -32602


def test_it_is_answered_before_there_is_an_engine_or_a_question():
    with Editor() as editor:
        editor.initialize({}, **ROOT)
        told = explain(editor)
        assert told["asked"] is False and told["engine"]["state"] in ("starting", "loading", "ready")
        assert "nothing was asked yet" in told["text"]


# ── no text ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_piece_of_a_document_is_told_and_no_name_is_logged():
    with Editor("--trace", pair="tiny") as editor:
        editor.begin(**ROOT)
        uri = "file:///project/namenstag.py"
        page = Page(editor, f"{CANARY} = 1\n{STACK}", uri=uri)
        Page(editor, f"{CANARY} = 2\n{STACK}", uri="file:///project/other.py")
        editor.items(page.ask(len(page.text)), timeout_s=30)
        told = json.dumps(explain(editor))
        assert CANARY not in told and "_items" not in told and "namenstag.py" in told
        until_left(editor, asked=True)
        assert CANARY not in left(editor).read_text() and "_items" not in left(editor).read_text()
        logged = (editor.logs / "lsp.log").read_text()
        assert "total_ms" in logged and "namenstag" not in logged and CANARY not in logged


def test_a_trace_in_the_log_has_numbers_and_no_names():
    trace = Trace(document="d", language="python", version=1, characters=3, wanted=1)
    trace.about = RequestInfo(uri=f"file:///{CANARY}", files=((CANARY, 3, "document"),), left_out=(CANARY,))
    assert CANARY not in json.dumps(as_json(trace))
    assert CANARY in json.dumps(explanation(trace))


# ── for `speclsp explain` ────────────────────────────────────────────────────────────────────────────────────


def test_the_command_shows_the_window_used_last_and_a_line_for_each(capsys: pytest.CaptureFixture[str]):
    with Editor() as one, Editor() as two:
        one.begin(**ROOT)
        two.begin(**(ROOT | {"clientInfo": {"name": "VS Code"}}))
        assert entry.main(["explain"]) in (0, 1)
        capsys.readouterr()
        for editor, column in ((two, 3), (one, 5)):
            page = Page(editor, "alpha = 1\n")
            editor.items(page.ask(column))
            until_left(editor, asked=True)
        assert entry.main(["explain"]) == 0
        said = capsys.readouterr().out
        assert "Neovim" in said and "line 1, column 6" in said and "\x1b" not in said
        assert entry.main(["explain", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["column"] == 6
        assert entry.main(["explain", "--all"]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert "Neovim" in first and "VS Code" in second


def test_before_anything_was_asked_it_says_so_with_the_state_of_the_engine(capsys: pytest.CaptureFixture[str]):
    with Editor() as editor:
        editor.begin(**ROOT)
        told = until_left(editor, asked=False)
        assert told["engine"]["state"] in ("starting", "ready")
        assert entry.main(["explain"]) == 0
        assert "nothing was asked yet (Neovim)" in capsys.readouterr().out


def test_while_the_model_is_loaded_it_says_that(capsys: pytest.CaptureFixture[str]):
    with Editor(pair="tiny") as editor:
        editor.initialize({}, **ROOT)
        wait_until(lambda: left(editor).exists() and '"state": "loading"' in left(editor).read_text())
        assert entry.main(["explain"]) == 0
        assert "engine     loading: " in capsys.readouterr().out
        editor.until("ready")


def test_without_a_server_it_says_the_way_out(capsys: pytest.CaptureFixture[str]):
    assert entry.main(["explain"]) == 1
    assert "no language server runs" in capsys.readouterr().out
    assert entry.main(["explain", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {}


def test_what_is_left_for_others_is_for_this_user_alone_and_gone_with_the_server():
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        assert stat.S_IMODE(left(editor).stat().st_mode) == 0o600
        assert stat.S_IMODE(editor.runtime.stat().st_mode) == 0o700
        path = left(editor)
    assert not path.exists()
    assert not list(path.parent.glob(".explain-*"))


def test_what_a_killed_server_left_is_removed_by_the_next_reader():
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        engines = editor.engines()
        editor.process.kill()
        editor.process.wait()
        assert left(editor).exists()
        assert explaining.running() == []
        assert not left(editor).exists()
        assert all(editor.gone(engine) for engine in engines)


def test_what_a_killed_server_left_is_removed_by_the_next_server():
    dead = explaining.path_of(99_999_999)
    dead.write_text('{"pid": 99999999, "written_s": 1.0}')
    dead.chmod(0o600)
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        wait_until(lambda: not dead.exists())


def test_a_storm_of_requests_writes_the_file_four_times_a_second_at_most():
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        page, seen, began_s = Page(editor, "a = 1\n"), set(), time.monotonic()
        while time.monotonic() - began_s < 1.2:
            editor.items(page.ask(len(seen) % 4))
            seen.add(left(editor).stat().st_mtime_ns)
        assert len(seen) <= 2 + (time.monotonic() - began_s) / 0.25


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"pid": "a"}', b'{"pid": 1, "written_s": "x"}', b"\xff\xfe"])
def test_a_file_that_makes_no_sense_is_no_explanation(content: bytes):
    path = explaining.path_of(99_999_999)
    path.write_bytes(content)
    path.chmod(0o600)
    assert explaining.running() == []
    assert not path.exists()


def test_a_fifo_or_a_link_in_its_place_is_not_waited_for(tmp_path: Path):
    os.mkfifo(explaining.path_of(99_999_998), 0o600)
    (tmp_path / "x").write_text('{"pid": 1}')
    explaining.path_of(99_999_997).symlink_to(tmp_path / "x")
    assert explaining.running() == []
    assert (tmp_path / "x").exists()


def test_names_from_a_repository_cannot_steer_a_terminal():
    trace = Trace(document="d", language="py\x1b[2Jthon", version=1, characters=3, wanted=1, outcome="shown")
    trace.about = RequestInfo(uri="file:///a", files=(("\x1b]0;evil\x07\u202e.py", 3, "document"),))
    told = explanation(trace) | {"asked": True, "client": "N\x1b[1mvim", "engine": ENGINE}
    said = explaining.in_words(told) + explaining.in_a_line(told | {"pid": 1})
    assert said.replace("\n", "").isprintable() and "evil" in said


ENGINE = {"state": "ready", "message": "", "pair": "p", "target": "t", "draft": "", "device": "cpu", "remote": ""}


def test_colour_is_for_terminals_and_can_be_turned_off():
    code = (
        "import sys; from speclsp.cli import entry; sys.stdout.isatty = lambda: True; sys.exit(entry.main(['explain']))"
    )
    with Editor() as editor:
        editor.begin(**ROOT)
        until_left(editor, asked=False)
        for no_colour, coloured in (("", True), ("1", False)):
            env = os.environ | {"NO_COLOR": no_colour, "TERM": "xterm"}
            said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
            assert ("\x1b[" in said.stdout) is coloured


# ── what it costs, and what the documents say ────────────────────────────────────────────────────────────────


def test_keeping_the_pieces_costs_the_request_nothing_to_speak_of():
    from speclsp.lsp.context.build import Chunk, Context

    seen = Context(
        "x" * 2000, "y", "z" * 500, tuple(Chunk(f"{n}.py", "t" * 200, 0.5, "similar") for n in range(4)), "a"
    )
    trace = Trace(document="d", language="python", version=1, characters=3, wanted=1)
    began_s = time.perf_counter()
    for _ in range(1000):
        trace.record_context(seen)
    assert (time.perf_counter() - began_s) < 2.0, "0.1 ms each is what it may cost; it is some microseconds"


def test_the_list_of_reasons_in_the_documents_is_the_one_in_the_code():
    assert reasons.as_markdown() in (DOCS / "protocol.md").read_text(), "paste `python -m speclsp.lsp.reasons`"
