"""A rename that goes on in other open files, in a real VS Code: hint, jump and acceptance.

The server's own producer makes the edits, without a model. Each test has a folder, a window and a server of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.editors.code_server import until
from support.editors.vscode_screen import Studio, Window

from speclsp.lsp.protocol.initialize_answer import ACCEPT_COMMAND

SHAPES = "def area(box):\n    return box.width * box.height\n\n\ndef twice(box):\n    return 2 * area(box)\n"
APP = "from shapes import area\n\n\ndef total(boxes):\n    return sum(map(area, boxes))\n"
MAIN = "import shapes\n\nprint(shapes.area(None))\n"
FILES = {"app.py": APP, "main.py": MAIN, "shapes.py": SHAPES}
IN_APP, IN_MAIN = "→ Edit in app.py, line 1 (Tab)", "→ Edit in main.py, line 3 (Tab)"
NEW = "→ surface"
ACTIVE = ".editor-group-container.active .tab.active[data-resource-name='{}']"


@pytest.fixture
def window(studio: Studio, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A window with the three files in tabs, shapes.py in front."""
    studio.server.settings(studio.server.ours | {"speclsp.completion.enabled": False})
    with studio.window(studio.folder()) as window:
        window.says("completion.enabled is off")
        for name, text in FILES.items():
            window.show(name, text)
        yield window
        window.shot(request.node.name.removeprefix("test_")[:80])


def rename_area(window: Window) -> None:
    """Give the function of shapes.py another name, by the keyboard; its use in that file is offered."""
    window.press("Control+Home", *["ArrowRight"] * len("def "), "Control+Shift+ArrowRight")
    window.type("surface", 10)
    hint = "def surface(box):", "→ Edit at line 6 (Tab)"
    window.draws([hint, ("    return 2 * area(box)", NEW)], [("    return 2 * area(box)", "area")])


def rename_all_of_shapes(window: Window) -> None:
    """Rename and accept the use in shapes.py; the first file that imports the function is announced."""
    rename_area(window)
    window.press("Tab", "Tab")
    window.draws([("    return 2 * surface(box)", IN_APP)], [])


def is_in(window: Window, name: str) -> None:
    window.page.wait_for_selector(ACTIVE.format(name))


def reports(window: Window, command: str) -> int:
    """The number of reports of one answer of the user's."""
    return [params["command"] for params in window.sent("workspace/executeCommand")].count(command)


def test_tab_walks_through_the_files_that_import_a_renamed_function(window: Window) -> None:
    rename_all_of_shapes(window)
    window.shot("across-files-hint")
    window.press("Tab")
    is_in(window, "app.py")
    window.draws([("from shapes import area", NEW)], [("from shapes import area", "area")])
    window.press("Tab")
    call = "    return sum(map(area, boxes))"
    window.draws([("from shapes import surface", "→ Edit at line 5 (Tab)"), (call, NEW)], [(call, "area")])
    window.press("Tab")
    window.draws([(call, NEW)], [(call, "area")])
    window.press("Tab")
    window.draws([(call.replace("area", "surface"), IN_MAIN)], [])
    assert window.screen().document == APP.replace("area", "surface").split("\n")
    window.press("Tab")
    is_in(window, "main.py")
    window.draws([("print(shapes.area(None))", NEW)], [("print(shapes.area(None))", "area")])
    window.press("Tab")
    window.sees(lambda screen: screen.document == MAIN.replace("area", "surface").split("\n"), "the last edit is made")
    window.draws([], [])
    until(lambda: reports(window, ACCEPT_COMMAND) == 4, "the server knows every acceptance")
    window.press("Tab")  # one Tab too many is swallowed while "done" is shown
    window.press("Tab")
    made = MAIN.split("\n")[2].replace("area", "surface")
    window.sees(lambda screen: screen.document[2] != made, "the next Tab inserts blanks")
    assert window.screen().document[2].replace(" ", "") == made


def test_a_file_that_changed_since_the_hint_is_shown_without_a_stale_edit(window: Window) -> None:
    rename_all_of_shapes(window)
    (window.folder / "app.py").write_bytes(f"# first\n{APP}".encode())
    changed = (window.folder / "app.py").as_uri()
    until(lambda: changed in [params["textDocument"]["uri"] for params in window.sent("textDocument/didChange")], "it")
    window.press("Tab")
    is_in(window, "app.py")
    window.sees(lambda screen: screen.document[0] == "# first", "the file as it is now")
    window.draws([], [])
    assert reports(window, ACCEPT_COMMAND) == 1


def test_tab_goes_to_the_group_of_editors_that_has_the_file(window: Window) -> None:
    window.page.click(".tab[data-resource-name='app.py']")
    is_in(window, "app.py")
    window.command("Move Editor into Next Group")
    until(lambda: window.page.locator(".editor-group-container").count() == 2, "two groups")
    window.page.click(".tab[data-resource-name='shapes.py']")
    is_in(window, "shapes.py")
    rename_all_of_shapes(window)
    window.press("Tab")
    is_in(window, "app.py")
    window.draws([("from shapes import area", NEW)], [("from shapes import area", "area")])
    assert window.page.locator(".tab[data-resource-name='app.py']").count() == 1
    window.press("Tab")
    window.sees(lambda screen: screen.document[0] == "from shapes import surface", "Tab accepts it there")


def test_tabs_that_were_restored_and_never_shown_take_part(window: Window) -> None:
    window.page.wait_for_timeout(8000)  # VS Code writes the state of its window every few seconds
    window.open()
    window.says("completion.enabled is off")
    is_in(window, "shapes.py")
    window.focus()
    rename_all_of_shapes(window)


def test_uses_in_files_that_are_not_open_are_counted_and_listed_and_the_rename_goes_on_there(window: Window) -> None:
    window.command("View: Close Other Editors in Group")
    until(lambda: window.page.locator(".tab").count() == 1, "one tab")
    rename_area(window)
    window.press("Tab", "Tab")
    counted = "done: 1 edit; 3 uses in 2 files that are not open (speclsp: List Uses)"
    window.draws([("    return 2 * surface(box)", counted)], [])
    window.shot("uses-counted")
    window.command("speclsp: List Uses")
    window.page.locator(".reference-zone-widget .monaco-list-row", has_text="import area").dblclick()
    is_in(window, "app.py")
    window.draws([("from shapes import area", NEW)], [("from shapes import area", "area")])
