"""textDocument/completion for editors without inline completion, with an Emacs-like client."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.lsp.editor_client import Editor, Page
from support.soak import in_soak

SOURCE = "def f():\n    value = 1\n    return \n"
ON = {"completion": {"show_in_menu": True}}
EMACS = {"textDocument": {"completion": {"dynamicRegistration": False, "completionItem": {"snippetSupport": False}}}}


def ask(page: Page, cursor: int) -> int:
    params = {"textDocument": {"uri": page.uri}, "position": page.place(cursor), "context": {"triggerKind": 1}}
    return page.editor.request("textDocument/completion", params)


def entries(editor: Editor, msg_id: int) -> list[dict[str, Any]]:
    reply = editor.reply(msg_id, 15)
    assert "error" not in reply, reply
    assert reply["result"]["isIncomplete"] is True, "the next key is another question"
    return reply["result"]["items"]


def accepted(page: Page, item: dict[str, Any]) -> str:
    """The text of the document after the editor has applied the entry's edit."""
    edit = item["textEdit"]
    offsets = []
    for position in (edit["range"]["start"], edit["range"]["end"]):
        offsets.append(next(offset for offset in page.stops() if page.place(offset) == position))
    return page.text[: offsets[0]] + edit["newText"] + page.text[offsets[1] :]


@pytest.mark.parametrize("how", ["flag", "initializationOptions"])
def test_menu_completion_is_announced_when_it_is_on_from_the_start(how: str):
    flags = ("--set", "completion.show_in_menu=true") if how == "flag" else ()
    with Editor(*flags) as editor:
        options = {} if how == "flag" else {"initializationOptions": ON}
        provider = editor.initialize(EMACS, **options)["capabilities"]["completionProvider"]
        assert "." in provider["triggerCharacters"]


def test_menu_completion_is_not_announced_when_off_and_a_request_gets_nothing():
    with Editor() as editor:
        assert "completionProvider" not in editor.initialize(EMACS)["capabilities"]
        page = Page(editor.until("ready"), SOURCE)
        assert entries(editor, ask(page, len(SOURCE) - 1)) == []


@pytest.mark.parametrize("encoding", ["utf-32", *in_soak("utf-8", "utf-16")])
def test_the_menu_entry_inserts_the_inline_suggestion_and_survives_the_menus_filter(encoding: str):
    with Editor("--set", "completion.show_in_menu=true") as editor:
        editor.begin({**EMACS, "general": {"positionEncodings": [encoding]}})
        page = Page(editor, "x = '日本𝒙'; appendé\n", encoding)
        for cursor in page.stops():
            inline = editor.text(page.ask(cursor))
            (item,) = entries(editor, ask(page, cursor))
            assert accepted(page, item) == page.text[:cursor] + inline + page.text[cursor:]
            word = re.search(r"\w*\Z", page.text[:cursor])[0]
            assert item["filterText"].startswith(word), "it would be filtered away"
            assert item["textEdit"]["newText"] == word + inline
            assert item["label"] and "\n" not in item["label"] and len(item["label"]) <= 60
            assert (item["insertTextMode"], item["insertTextFormat"]) == (1, 1)
            assert item["documentation"]["kind"] == "markdown"
            assert item["documentation"]["value"] == f"```python\n{word}{inline}\n```"


def test_while_typing_through_it_the_entry_starts_with_the_word_at_the_cursor():
    """Emacs' eglot filters by the symbol at point, whatever the range is."""
    with Editor("--set", "completion.show_in_menu=true") as editor:
        editor.begin(EMACS)
        page = Page(editor, "x = ab\n")
        cursor, requests_before = 6, editor.request_count()
        (first,) = entries(editor, ask(page, cursor))
        suggestion = first["textEdit"]["newText"].removeprefix("ab")
        for key in suggestion[:6]:  # "E:1234", of which ":" is no part of a word
            cursor = page.type(cursor, key)
            (item,) = entries(editor, ask(page, cursor))
            word = re.search(r"\w*\Z", page.text[:cursor])[0]
            assert item["textEdit"]["newText"] == word + suggestion[cursor - 6 :]
            assert item["filterText"] == item["label"] == word + suggestion[cursor - 6 :]
            assert accepted(page, item) == "x = ab" + suggestion + "\n"
        assert editor.request_count() == requests_before + 1, "one request to the engine"


def test_several_lines_are_one_entry_with_its_first_line_as_the_label():
    with Editor("--set", "completion.show_in_menu=true", "--set", "completion.eagerness=high", model="tiny") as editor:
        editor.begin(EMACS)
        page = Page(
            editor,
            "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        ",
        )
        inline = editor.items(page.ask(len(page.text)), timeout_s=60)
        (item,) = entries(editor, ask(page, len(page.text))) or [None]
        assert item["textEdit"]["newText"] == inline[0]["insertText"]
        assert item["label"] == inline[0]["insertText"].strip().splitlines()[0][:60]
