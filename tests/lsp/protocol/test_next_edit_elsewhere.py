"""Next edits in other open documents over the wire: after the rename of an imported name, if the user wants that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

from speclsp.lsp.next_edit import wire

FOLDER = "file:///project/"
ABILITY = {"experimental": {"speclsp": {wire.ELSEWHERE: True}}}
SHAPES = "def area(box):\n    return box.width * box.height\n\n\ndef twice(box):\n    return 2 * area(box)\n"
APP = "from shapes import area\n\n\ndef total(boxes):\n    return sum(map(area, boxes))\n"
NUMBERS = count()
MAIN = "import shapes\n\n\nprint(shapes.area(None), area)\n"


def server(*arguments: str, **capabilities: Any) -> Editor:
    """A server that answers requests for next edits."""
    editor = Editor("--set", "completion.enabled=false", *arguments)
    editor.initialize(capabilities, workspaceFolders=[{"uri": FOLDER.rstrip("/"), "name": "project"}])
    page = Page(editor, "x = 1\n", uri=FOLDER + "first.py")

    def answers() -> bool:
        ask(page, 0)
        return "next_edit" in editor.call("speclsp/explain", {})

    wait_until(answers)
    return editor


def ask(page: Page, cursor: int, method: str = wire.NEXT_EDIT) -> list[dict[str, Any]]:
    document = {"uri": page.uri, "version": page.version}
    edits: list[dict[str, Any]] = page.editor.call(method, {"textDocument": document, "position": page.place(cursor)})[
        "edits"
    ]
    return edits


class Project:
    """Open documents in a folder of their own, by the names of their files.

    The server remembers the edits of other tests: `area` and `surface` have a number of the project behind them.
    """

    def __init__(self, editor: Editor, **texts: str) -> None:
        self.editor, self.number = editor, str(next(NUMBERS))
        self.folder = f"{FOLDER}case{self.number}/"
        self.pages = {
            f"{name}.py": Page(editor, self.numbered(text), uri=f"{self.folder}{name}.py")
            for name, text in texts.items()
        }
        for page in self.pages.values():
            ask(page, 0)  # the first request of a document reads its ignore files

    def numbered(self, text: str) -> str:
        return re.sub(r"area|surface", rf"\g<0>{self.number}", text)

    def plain(self, text: str) -> str:
        return re.sub(rf"(area|surface){self.number}", r"\1", text)

    def rename(self, file: str, old: str, new: str) -> tuple[Page, int]:
        page, old, new = self.pages[file], self.numbered(old), self.numbered(new)
        at = page.text.index(old)
        page.edit(at, at + len(old), new)
        return page, at + len(new)

    def walk(self, page: Page, cursor: int) -> list[str]:
        """Accept edit after edit, where it stands; the changed lines with their files."""
        lines = list[str]()
        while (edits := ask(page, cursor)) and len(lines) < 20:
            (edit,) = edits
            page = self.pages[edit["textDocument"]["uri"].removeprefix(self.folder)]
            assert edit["textDocument"]["version"] == page.version and edit["confidence"] > 0
            start, end = (page_offset(page, edit["range"][name]) for name in ("start", "end"))
            self.editor.notify(wire.SHOWN, {"id": edit["id"]})
            page.edit(start, end, edit["text"])
            self.editor.notify(wire.ACCEPTED, {"id": edit["id"]})
            cursor = start + len(edit["text"])
            line = page.text.splitlines()[edit["range"]["start"]["line"]]
            lines.append(self.plain(f"{page.uri.removeprefix(self.folder)}: {line.strip()}"))
        return lines

    def close(self) -> None:
        for page in self.pages.values():
            self.editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})


def page_offset(page: Page, place: dict[str, int]) -> int:
    return sum(map(len, page.text.splitlines(keepends=True)[: place["line"]])) + place["character"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Editor]:
    with server("--set", "next_edit.across_files=true", **ABILITY) as editor:
        yield editor
        assert editor.popups() == [] and editor.stray == b""


@pytest.fixture
def project(shared: Editor) -> Iterator[Project]:
    opened = Project(shared, shapes=SHAPES, app=APP, main=MAIN)
    yield opened
    opened.close()


def test_the_uses_of_the_file_come_first_and_then_those_of_the_files_that_import_it(project: Project):
    page, cursor = project.rename("shapes.py", "area", "surface")
    assert project.walk(page, cursor) == [
        "shapes.py: return 2 * surface(box)",
        "app.py: from shapes import surface",
        "app.py: return sum(map(surface, boxes))",
        "main.py: print(shapes.surface(None), area)",
    ]


def test_names_that_share_a_word_make_the_same_walk(project: Project):
    page, cursor = project.rename("shapes.py", "area", "box_area")
    assert [line.partition(":")[0] for line in project.walk(page, cursor)] == [
        *("shapes.py", "app.py", "app.py", "main.py")
    ]


def test_the_list_has_every_use_that_is_left_and_follows_the_walk(project: Project):
    page, cursor = project.rename("shapes.py", "area", "surface")
    answer = project.editor.call(wire.USES_LEFT, {})
    assert (project.plain(answer["old"]), project.plain(answer["new"])) == ("area", "surface")
    places = [(use["uri"].removeprefix(project.folder), use["range"]["start"]["line"]) for use in answer["uses"]]
    assert places == [("shapes.py", 5), ("app.py", 0), ("app.py", 4), ("main.py", 3)]
    for use in answer["uses"]:
        document = project.pages[use["uri"].removeprefix(project.folder)]
        start, end = (page_offset(document, use["range"][name]) for name in ("start", "end"))
        texts = project.plain(document.text[start:end]), project.plain(use["text"])
        assert (*texts, use["version"]) == ("area", "surface", document.version)
    project.walk(page, cursor)
    assert project.editor.call(wire.USES_LEFT, {})["uses"] == []


def test_a_rejected_edit_of_another_file_stays_away_and_the_next_file_follows(project: Project):
    page, cursor = project.rename("shapes.py", "area", "surface")
    (own,) = ask(page, cursor)
    page.edit(page_offset(page, own["range"]["start"]), page_offset(page, own["range"]["end"]), own["text"])
    (edit,) = ask(page, cursor)
    assert edit["textDocument"]["uri"].endswith("app.py") and edit["ghost"] is False
    project.editor.notify(wire.REJECTED, {"id": edit["id"], "reason": "rejected"})
    (other,) = ask(page, cursor)
    assert other["textDocument"]["uri"].endswith("main.py")


def test_an_undone_rename_offers_nothing_in_other_files(project: Project):
    page, cursor = project.rename("shapes.py", "area", "surface")
    page.edit(cursor - len(project.numbered("surface")), cursor, project.numbered("area"))
    assert ask(page, cursor) == []
    assert project.editor.call(wire.USES_LEFT, {})["uses"] == []


def test_a_client_of_copilots_protocol_gets_edits_of_its_own_document_only(project: Project):
    page, cursor = project.rename("shapes.py", "area", "surface")
    (own,) = ask(page, cursor, wire.COPILOT_INLINE_EDIT)
    page.edit(page_offset(page, own["range"]["start"]), page_offset(page, own["range"]["end"]), own["text"])
    assert ask(page, cursor, wire.COPILOT_INLINE_EDIT) == []


@pytest.mark.parametrize(
    ("settings", "capabilities"),
    [((), ABILITY), (("--set", "next_edit.across_files=true"), {})],
    ids=["setting is off", "client does not announce it"],
)
def test_without_the_setting_or_the_ability_there_is_the_list_alone(
    settings: tuple[str, ...], capabilities: dict[str, Any]
):
    with server(*settings, **capabilities) as editor:
        project = Project(editor, shapes=SHAPES, app=APP)
        page, cursor = project.rename("shapes.py", "area", "surface")
        assert project.walk(page, cursor) == ["shapes.py: return 2 * surface(box)"]
        assert len(editor.call(wire.USES_LEFT, {})["uses"]) == 2


def test_a_file_that_no_model_may_see_is_left_alone():
    with server(
        "--set", "next_edit.across_files=true", "--set", "completion.disabled_globs=app.py", **ABILITY
    ) as editor:
        project = Project(editor, shapes=SHAPES, app=APP)
        page, cursor = project.rename("shapes.py", "area", "surface")
        assert project.walk(page, cursor) == ["shapes.py: return 2 * surface(box)"]
        assert editor.call(wire.USES_LEFT, {})["uses"] == []
