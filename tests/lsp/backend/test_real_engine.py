"""The whole system over the wire: a keystroke goes in, a real model's suggestion comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.lsp.editor_client import Editor, Page
from support.waiting import becomes_true

SOURCE = 'def add(a, b):\n    """The sum of two numbers."""\n    return \n\n\ndef sub(a, b):\n    return a - b\n'
CURSOR = SOURCE.index("return ") + len("return ")


def test_a_trained_model_loads_with_progress_and_completes():
    with Editor(model="tiny") as editor:
        editor.initialize({"window": {"workDoneProgress": True}})
        page = Page(editor, SOURCE)
        assert editor.items(page.ask(CURSOR)) == [], "nothing to show while it loads, and no error"
        editor.until("ready", timeout_s=60)
        status = editor.statuses()[-1]
        assert status["model"] == "tiny" and status["target"].startswith("tiny")
        assert becomes_true(lambda: "end" in {value["kind"] for value in editor.progress()}), (
            "its end comes after the status"
        )
        for cursor in (CURSOR, SOURCE.index("a - b")):
            for item in editor.items(page.ask(cursor)):
                assert item["range"]["start"]["line"] == item["range"]["end"]["line"]


PLACES = [  # language, code with the cursor at ¦, and a pattern of every suggestion on request
    ("python", 'import re\nm = re.match(r"(\\d+)-(¦)", s)\n', r'[^"]+'),
    ("rust", "fn f(c: char) -> bool {\n    c == '¦'\n}\n", r"[^']+"),
    ("go", "package main\n\nvar a, ¦ int\n", r"\w+"),
    ("vue", "<template>\n  <div>\n    ¦\n  </div>\n</template>\n", r"(?s)<([\w-]+).*(</\1>|/>)|[^<]*"),
    ("css", "@media print {\n  .a {\n    color: red;\n  ¦\n", r"\}\n\}"),
]


@pytest.mark.real
def test_qwen_completes_a_line_and_typing_through_it_needs_no_model(coder_0_5b: Path):
    settings = ("--set", f"models_dir={coder_0_5b.parent}", "--set", "completion.disabled_languages=")
    settings += ("--set", "completion.eagerness=high")  # "b" alone is worth no reading at "medium"
    with Editor(*settings, model="qwen2.5-coder-0.5b-instruct") as editor:
        editor.initialize({"window": {"workDoneProgress": True}})
        page = Page(editor, SOURCE)
        editor.until("ready", timeout_s=120)
        assert "adapter qwen2.5-coder-0.5b-fill-9" in editor.statuses()[-1]["target"], "the one in the package"
        assert editor.text(page.ask(CURSOR)) == "a + b"
        assert becomes_true(lambda: editor.request_count() == 1), (
            "the engine counts one at its end, a round after the answer was shown"
        )
        assert editor.text(page.ask(page.type(CURSOR, "a "))) in ("+ b", "a + b"), "the start may lie before the cursor"
        assert editor.request_count() == 1, "answered from the suggestion that was shown"
        page.type(CURSOR + 2, "* ")
        suggestion = editor.text(page.ask(CURSOR + 4))
        assert suggestion is not None and "b" in suggestion
        assert becomes_true(lambda: editor.request_count() == 2)
        for number, (language, marked, pattern) in enumerate(PLACES):
            uri, before = f"file:///project/{number}", marked.partition("¦")[0]
            editor.open(uri, marked.replace("¦", ""), language=language)
            column = len(before.rpartition("\n")[2])
            items = editor.items(editor.complete(uri, before.count("\n"), column, kind=1))
            assert items and all(re.fullmatch(pattern, item["insertText"]) for item in items), (language, items)
