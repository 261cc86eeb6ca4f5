"""Next edits in other open documents over the wire, after the rename of a name that they import."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from support.lsp.edited_document import ABILITY, FOLDER, EditPage, edit_server
from support.lsp.editor_client import Editor
from support.waiting import wait_until

from speclsp.lsp.next_edit import wire

SHAPES = "def area(box):\n    return box.width * box.height\n\n\ndef twice(box):\n    return 2 * area(box)\n"
APP = "from shapes import area\n\n\ndef total(boxes):\n    return sum(map(area, boxes))\n"
MAIN = "import shapes\n\n\nprint(shapes.area(None), area)\n"
NUMBERS = count()
OWN = "shapes.py: return 2 * surface(box)"


class Project:
    """Open documents in a folder of their own, by the names of their files; the first function has another name.

    The server remembers the edits of other tests: `area` and `surface` have a number of the project behind them.
    """

    def __init__(self, editor: Editor, new: str = "surface", shapes: str = SHAPES, app: str = APP) -> None:
        self.number = str(next(NUMBERS))
        self.pages = {
            name: EditPage(editor, self.numbered(text), f"case{self.number}/{name}")
            for name, text in (("shapes.py", shapes), ("app.py", app), ("main.py", MAIN))
        }
        self.page = self.pages["shapes.py"]
        self.cursor = self.page.replace(self.numbered("area"), self.numbered(new))

    def numbered(self, text: str) -> str:
        return re.sub(r"area|surface", rf"\g<0>{self.number}", text)

    def step(self) -> str:
        """Accept the next edit, where it stands; its changed line with its file, "" for no edit."""
        edit = self.page.offer(self.cursor)
        if edit is None:
            return ""
        name = edit["textDocument"]["uri"].removeprefix(f"{FOLDER}case{self.number}/")
        assert edit["ghost"] is False and edit["kind"] == "rename"
        self.page = self.pages[name]
        assert edit["textDocument"]["version"] == self.page.version
        self.cursor = self.page.accept(edit)
        line = self.page.text.splitlines()[edit["range"]["start"]["line"]]
        return re.sub(rf"(area|surface){self.number}", r"\1", f"{name}: {line.strip()}")

    def walk(self) -> list[str]:
        return list(iter(self.step, ""))


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    with edit_server(capabilities=ABILITY) as shared:
        yield shared
        assert shared.popups() == [] and shared.stray == b""


@pytest.mark.parametrize("new", ["surface", "box_area"])
def test_the_uses_of_the_file_come_first_and_then_those_of_the_files_that_import_it(editor: Editor, new: str):
    assert [line.replace("box_area", "surface") for line in Project(editor, new).walk()] == [
        OWN,
        "app.py: from shapes import surface",
        "app.py: return sum(map(surface, boxes))",
        "main.py: print(shapes.surface(None), area)",
    ]


def test_a_rename_goes_on_after_so_many_uses_that_the_edit_of_the_definition_is_forgotten(editor: Editor):
    more = "".join(f"\n\n\n\n\n\ndef use{n}(box):\n    return area(box) + {n}\n" for n in range(10))
    steps = Project(editor, shapes=SHAPES + more).walk()
    assert steps[-2:] == ["app.py: return sum(map(surface, boxes))", "main.py: print(shapes.surface(None), area)"]


def test_an_equal_line_about_another_type_is_left_alone(editor: Editor):
    reader = (
        "\nimpl Open for {} {{\n    fn is_open(&self) -> bool {{\n        if !self.pre.is_empty() {{}}\n    }}\n}}\n"
    )
    texts = {
        "lib.rs": "mod app;\nmod shapes;\n",
        "shapes.rs": "pub struct Cube {\n    pub pre: Name,\n}\n\npub struct Globe {\n    pub pre: Name,\n}\n",
        "app.rs": f"use crate::shapes::{{self, Cube, Globe}};\n{reader.format('Globe')}{reader.format('Cube')}",
    }
    pages = {name: EditPage(editor, text, f"crate/src/{name}") for name, text in texts.items()}
    edit = pages["shapes.rs"].offer(pages["shapes.rs"].replace("pre", "prefix", "pub struct Globe"))
    assert edit is not None and edit["textDocument"]["uri"] == pages["app.rs"].uri
    assert edit["range"]["start"]["line"] == 4
    assert pages["app.rs"].offer(pages["app.rs"].accept(edit)) is None


def test_a_rejected_edit_of_another_file_stays_away_and_the_next_file_follows(editor: Editor):
    project = Project(editor)
    assert project.step() == OWN
    edit = project.page.offer(project.cursor)
    assert edit is not None and edit["textDocument"]["uri"].endswith("app.py")
    project.page.reject(edit)
    assert project.step() == "main.py: print(shapes.surface(None), area)"


def test_an_undone_rename_offers_nothing_in_other_files(editor: Editor):
    project = Project(editor)
    project.page.edit(project.cursor - len(project.numbered("surface")), project.cursor, project.numbered("area"))
    assert project.walk() == []


def test_a_client_without_the_ability_gets_edits_of_its_own_document_only():
    with edit_server() as editor:
        assert Project(editor).walk() == [OWN]


def test_a_file_that_no_model_may_see_is_left_alone():
    with edit_server("--set", "completion.disabled_globs=app.py,main.py", capabilities=ABILITY) as editor:
        assert Project(editor).walk() == [OWN]


def test_uses_in_files_that_are_not_open_are_counted_and_listed_and_follow_once_opened(tmp_path: Path):
    files = {"app.py": APP, "main.py": MAIN, "hidden.py": APP, "locked.py": APP, "broken.py": f"{APP})"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "locked.py").chmod(0o444)
    root = {"workspaceFolders": [{"uri": tmp_path.as_uri(), "name": "project"}]}
    with edit_server("--set", "completion.disabled_globs=hidden.py", capabilities=ABILITY, **root) as editor:
        page = EditPage(editor, SHAPES, (tmp_path / "shapes.py").as_uri())
        page.replace("area", "surface")
        edit = page.offer(0)
        assert edit is not None, "uses in open files come first"
        answer = {"edits": [], "unopened": {"uses": 3, "files": 2}}
        cursor = page.accept(edit)
        wait_until(lambda: editor.call(wire.INLINE_EDIT, page.params(cursor)) == answer)
        assert page.outcome()["outcome"] == "unopened"
        uses = editor.call("speclsp/uses", {})["uses"]
        assert [(use["uri"].rpartition("/")[2], use["range"]["start"]["line"], use["line"]) for use in uses] == [
            ("app.py", 0, "from shapes import area"),
            ("app.py", 4, "return sum(map(area, boxes))"),
            ("main.py", 3, "print(shapes.area(None), area)"),
        ]
        main = EditPage(editor, MAIN, uses[2]["uri"])
        edit = main.offer(0)
        assert edit is not None and edit["range"] == uses[2]["range"]
        cursor = main.accept(edit)
        assert editor.call(wire.INLINE_EDIT, main.params(cursor)) == {"edits": [], "unopened": {"uses": 2, "files": 1}}
