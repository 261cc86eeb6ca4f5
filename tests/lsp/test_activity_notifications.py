"""What clients tell of their users beside LSP: announced where it is of use, ignored where it makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.engine.engine_process import wait_until
from support.lsp.editor_client import Editor, Page

HERE, THERE, SECRET = "file:///project/here.py", "file:///project/there.py", "file:///project/.env"
ROOT = {
    "workspaceFolders": [{"uri": "file:///project", "name": "project"}],
    "initializationOptions": {"context": {"sources": ["edit", "viewed", "copied"]}},
}
TEXT = "".join(f"value_of_{n} = compute({n})\n" for n in range(40))
CANARY = "kanarienvogel"


def shown(editor: Editor, page: Page) -> list[tuple[str, str]]:
    """Source and path of what the model was shown at the end of a page, of other documents."""
    editor.reply(page.ask(len(page.text)))
    told: dict[str, Any] = editor.call("speclsp/explain", {"textDocument": {"uri": page.uri}})
    files = [(file["source"], file["path"]) for file in told["context"]["files"]]
    return sorted(one for one in files if one[0] in ("edit", "viewed", "copied"))


def test_the_notifications_are_announced_where_the_settings_have_a_use_for_them():
    both, one = {"viewed": True, "copied": True}, {"viewed": True}
    for sources, told in (["viewed", "copied"], {"speclsp": both}), (["viewed"], {"speclsp": one}), (["edit"], None):
        with Editor() as editor:
            options = {"context": {"sources": sources}}
            assert editor.initialize(initializationOptions=options)["capabilities"].get("experimental") == told


def test_an_edit_is_shown_once_the_user_has_moved_on_and_a_file_off_limits_never():
    with Editor() as editor:
        editor.begin(**ROOT)
        there, secret, here = (Page(editor, TEXT, uri=uri) for uri in (THERE, SECRET, HERE))
        for page in (there, secret):
            editor.items(page.ask(0))  # by then its ignore files are known
        secret.edit(0, 8, CANARY)
        there.edit(0, 8, "total_of")
        assert shown(editor, here) == [("edit", "there.py")]
        for sources in ["similar"], ["edit"]:
            settings = {"speclsp": {"context": {"sources": sources}}}
            editor.notify("workspace/didChangeConfiguration", {"settings": settings})
        assert shown(editor, here) == [], "switching it off forgets"


def test_regions_and_copies_are_shown_and_those_of_a_file_off_limits_are_not():
    with Editor() as editor:
        editor.begin(**ROOT)
        there, secret, here = (Page(editor, TEXT, uri=uri) for uri in (THERE, SECRET, HERE))
        here.edit(0, len(TEXT), "import os\n")  # else it shows what was looked at
        lines = {"start": {"line": 3, "character": 0}, "end": {"line": 9, "character": 0}}
        for page in (there, secret):
            editor.items(page.ask(0))
            editor.notify("speclsp/viewed", {"textDocument": {"uri": page.uri}, "range": lines})
            copied = f"copied_from({page.uri!r})"
            editor.notify("speclsp/copied", {"text": copied, "textDocument": {"uri": page.uri}})
        assert shown(editor, here) == [("copied", "clipboard"), ("viewed", "there.py")]


def test_what_makes_no_sense_is_ignored_and_nothing_of_it_is_written_down():
    nothing = [None, [], 7, {}, {"text": 7}, {"text": None}, {"textDocument": 7}, {"textDocument": {"uri": 7}}]
    ranges = [
        None,
        7,
        {},
        {"start": 7},
        {"start": {"line": -1}},
        {"start": {"line": True}},
        {"start": {"line": 10**12}},
    ]
    with Editor() as editor:
        editor.begin(**ROOT)
        page = Page(editor, TEXT, uri=HERE)
        for params in nothing:
            editor.notify("speclsp/viewed", params)
            editor.notify("speclsp/copied", params)
        for span in ranges:
            editor.notify("speclsp/viewed", {"textDocument": {"uri": HERE}, "range": span})
        editor.notify("speclsp/viewed", {"textDocument": {"uri": "file:///not/open.py"}, "range": ranges[-1]})
        editor.notify("speclsp/copied", {"text": CANARY * 3})
        page.edit(0, 8, CANARY)
        assert editor.items(page.ask(len(page.text)))
        wait_until(lambda: any(editor.logs.iterdir()))
        assert CANARY not in "".join(file.read_text() for file in Path(editor.logs).iterdir())
