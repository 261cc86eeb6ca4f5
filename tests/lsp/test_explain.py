"""speclsp/explain: the origin of the last suggestion or the reason for none, without text."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from support.lsp.editor_client import Editor, Page

from speclsp.lsp import reasons
from speclsp.lsp.completion.trace import RequestInfo, Trace
from speclsp.lsp.server.explain import explanation

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


def explain(editor: Editor) -> dict[str, Any]:
    return editor.call("speclsp/explain", {})


# ── contents of an explanation ───────────────────────────────────────────────────────────────────────────────


def test_a_suggestion_is_explained_with_its_times_its_rounds_and_its_context():
    with Editor(model="tiny") as editor:
        editor.begin(**ROOT)
        page = Page(editor, STACK + "\n\n\ndef main():\n    pass\n")
        (item,) = editor.items(page.ask(len(STACK)), timeout_s=30)
        record = explain(editor)
    assert (record["asked"], record["outcome"], record["meaning"]) == (True, "shown", "")
    assert (record["document"], record["language"], record["line"], record["column"]) == ("app.py", "python", 9, 9)
    assert record["shown_characters"] == len(item["insertText"])
    assert record["streamed_characters"] >= len(item["insertText"])
    assert record["total_ms"] >= record["engine_ms"] >= record["rounds_ms"] > 0
    assert record["prompt_ms"] > 0 and record["first_ms"] > 0
    parts = ("waited_ms", "parse_ms", "context_ms", "engine_ms")
    assert sum(record[name] for name in parts) <= record["total_ms"] + 1
    assert record["prompt_tokens"] > 20 and record["cached_tokens"] < record["prompt_tokens"]
    assert record["tokens"] >= record["rounds"] > 0 and record["stop"]
    assert sum(counts["drafted"] for counts in record["by_source"].values()) == record["drafted"]
    (file,) = record["files"]
    assert file["path"] == "app.py" and file["characters"] == len(page.text)
    assert record["engine"]["model"] == "tiny" and record["engine"]["target"]


def test_the_prompt_of_a_new_line_is_computed_where_the_cursor_rests():
    below = "\n\n\ndef main():\n    pass\n"
    header = STACK.rpartition("\n")[0]  # up to the header of pop
    with Editor(model="tiny") as editor:
        editor.begin(**ROOT)
        for number in range(10):  # on a busy machine the request may come before the prefill has ended
            page = Page(editor, header + below, uri=f"file:///project/rest{number}.py")
            place = page.place(len(header))
            editor.notify("speclsp/didFocus", {"textDocument": {"uri": page.uri}, "position": place})
            time.sleep(0.5 + number)
            editor.items(page.ask(page.type(len(header), "\n        ")), timeout_s=30)
            record = explain(editor)
            if record["prompt_tokens"] - record["cached_tokens"] <= 8:  # the new line's own tokens
                break
        assert record["prompt_tokens"] - record["cached_tokens"] <= 8


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


def test_the_explanation_of_an_empty_answer_names_the_document():
    with Editor() as editor:
        editor.begin(**ROOT)
        editor.open("file:///project/sub/.env", "WORD=1\n")
        for name in ("sub/.env", "sub/not_open.py"):
            assert editor.items(editor.complete(f"file:///project/{name}", 0, 0)) == []
            assert explain(editor)["document"] == name


def test_the_last_request_is_explained_and_a_superseded_one_never():
    with Editor("--set", "echo.round_ms=20") as editor:
        editor.begin(**ROOT)
        assert explain(editor)["asked"] is False and explain(editor)["engine"]["state"]
        page = Page(editor, "b = 22\n", uri="file:///project/b.py")
        superseded, newest = page.ask(2), page.ask(6)
        assert editor.items(superseded) == [] and editor.items(newest)
        assert (explain(editor)["document"], explain(editor)["column"]) == ("b.py", 7)


def test_an_answer_cut_by_the_deadline_names_the_deadline():
    with Editor("--set", "echo.round_ms=60", "--set", "completion.timeout_ms=500") as editor:
        editor.begin(**ROOT)
        page = Page(editor, "a = \n")
        assert editor.items(page.ask(4))
        record = explain(editor)
        assert record["stop"] == "deadline"
        assert record["streamed_characters"] == record["shown_characters"] < 19


def test_a_reused_answer_is_distinguished_from_a_model_request():
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, "a = \n")
        text = editor.text(page.ask(4))
        editor.text(page.ask(page.type(4, text[:3])))
        record = explain(editor)
        assert record["reused"] and record["rounds"] == 0


# ── no text ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_explanation_holds_no_document_text_and_the_log_holds_no_file_name():
    with Editor("--trace", model="tiny") as editor:
        editor.begin(**ROOT)
        uri = "file:///project/namenstag.py"
        page = Page(editor, f"{CANARY} = 1\n{STACK}", uri=uri)
        Page(editor, f"{CANARY} = 2\n{STACK}", uri="file:///project/other.py")
        editor.items(page.ask(len(page.text)), timeout_s=30)
        record_json = json.dumps(explain(editor))
        assert CANARY not in record_json and "_items" not in record_json and "namenstag.py" in record_json
        log = (editor.logs / "lsp.log").read_text()
        assert "total_ms" in log and "namenstag" not in log and CANARY not in log


def test_names_from_a_repository_are_shown_without_control_characters():
    trace = Trace(document="d", language="py\x1b[2Jthon", version=1, characters=3, wanted=1, outcome="shown")
    trace.about = RequestInfo(uri="file:///a", files=(("\x1b]0;evil\x07\u202e.py", 3, "document"),))
    record = explanation(trace)
    assert (record["language"], record["files"][0]["path"]) == ("py[2Jthon", "]0;evil.py")


# ── documentation ───────────────────────────────────────────────────────────────────────────────────


def test_the_docs_list_every_reason():
    page = (DOCS / "lsp-extensions.md").read_text()
    listed = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert [text.split() for text in listed] == [list(reasons.MEANINGS)]
