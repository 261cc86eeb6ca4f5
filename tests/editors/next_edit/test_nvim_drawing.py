"""Drawing and keys of a next edit on Neovim's screen. A server inside Neovim answers, so each cell is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.editors.nvim_keys import VERSIONS
from support.editors.nvim_screen import Frame, Neovim

HERE = Path(__file__).resolve().parent
INIT = f"""
vim.o.swapfile, vim.o.shadafile = false, 'NONE'
vim.g.loaded_python3_provider = 0
for _, group in ipairs({{ 'SpeclspEditAdd', 'SpeclspEditDelete', 'SpeclspEditHint' }}) do
  vim.api.nvim_set_hl(0, group, {{ fg = '#808080' }})  -- not a link, so that the screen's cells tell the group's name
end
vim.opt.runtimepath:prepend('{HERE.parents[2] / "editors/nvim"}')
package.path = '{HERE.parent / "nvim_spec"}/?.lua;' .. package.path
_G.fake = require('fake')
"""
ALONE = "vim.cmd('silent! %bwipeout! | silent! set all& | messages clear | set noswapfile noruler laststatus=0')"
OPEN = """
local lines, edit = ...
vim.cmd.edit("a.py")
vim.bo.filetype = "python"
vim.bo.indentexpr, vim.bo.autoindent = "", false
vim.bo.tabstop, vim.bo.softtabstop, vim.bo.shiftwidth, vim.bo.expandtab = 8, 0, 8, false
vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)
fake.start()
fake.edit = { text = edit[1], range = { edit[2], edit[3], edit[4], edit[5] } }
"""
OTHERS_TEXT = """
local namespace = vim.api.nvim_create_namespace('other')
vim.api.nvim_buf_set_extmark(0, namespace, 5, 0, { virt_text = { { 'a long diagnostic message' } } })
"""
OTHERS_SIGNS = """
for _, row in ipairs(...) do
  vim.api.nvim_buf_set_extmark(0, vim.api.nvim_create_namespace('other'), row, 0, { sign_text = 'E' })
end
"""
ATTACHED = "pcall(vim.api.nvim_get_autocmds, { group = 'speclsp.' .. vim.api.nvim_get_current_buf() })"
APPLIED = "vim.api.nvim_buf_get_lines(0, 2, 3, false)[1]:find('breadth')"
COLUMNS, ROWS = 40, 12
AREA = "    return width * height"
LINES = ["one(aa)", "two()", AREA, "four()", "five()", "six()"]
EDIT = ("breadth", 2, 11, 2, 16)  # text, and the range: line, column, line, column
HINT, SHORT = "Edit at line 3 (Tab)", "line 3 (Tab)"


class Desk(Neovim):
    """A Neovim with the plugin and the server."""

    def open(self, lines: list[str], edit: tuple[str | int, ...] = EDIT, columns: int = COLUMNS) -> None:
        self.call("nvim_ui_try_resize", columns, ROWS)
        self.until("vim.o.columns == ...", "the size", columns)
        self.lua(OPEN, lines, edit)
        self.until(ATTACHED, "the plugin")
        self.lua("fake.status({ next_edit = true })")

    def offered(self, change: str = "1G$x") -> None:
        """Makes a change, and waits until the edit is shown."""
        self.keys(change)
        self.until("require('speclsp').statusline():find('edit at')", "the edit")


def started(program: Path, home: Path) -> Desk:
    (home / "init.lua").write_text(INIT)
    return Desk([str(program), "-u", str(home / "init.lua")], home, {"HOME": str(home)}, COLUMNS, ROWS)


@pytest.fixture(scope="module", params=VERSIONS)
def shared(
    request: pytest.FixtureRequest, installed: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    with started(installed(request.param), tmp_path_factory.mktemp("n")) as neovim:
        yield neovim


@pytest.fixture
def desk(shared: Desk) -> Desk:
    """A Neovim without a file, with default options."""
    shared.lua(ALONE)
    return shared


def meanings(frame: Frame, row: int, wanted: str) -> str:
    """The text of a row's cells that have this meaning."""
    return "".join(text for text, group in frame.rows[row] if frame.meaning.get(group) == wanted)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "edit", "row", "removed", "added"),
    [
        (AREA, EDIT, "    return width→breadth * height", "width", "breadth"),
        ("f(a)", (", b", 2, 3, 2, 3), "f(a, b)", "", ", b"),
        ("console.log(a)", ("logger.debug", 2, 0, 2, 11), "console.log→logger.debug(a)", "console.log", "logger.debug"),
        ("await f(a)", ("", 2, 0, 2, 6), "await f(a)", "await ", ""),
        ("name = 漢字", ("漢語", 2, 7, 2, 13), "name = 漢字→漢語", "漢字", "漢語"),
        ("f(old, old)", ("new, new", 2, 2, 2, 10), "f(old→new, old→new)", "oldold", "newnew"),
    ],
)
def test_an_arrow_stands_between_an_old_word_and_the_new_one(desk, line, edit, row, removed, added):
    desk.open([*LINES[:2], line, *LINES[3:]], edit)
    desk.offered()
    frame = desk.wait(lambda frame: frame.row(2) == row and meanings(frame, 2, "removed") == removed, row)
    assert frame.edit == ([added] if added else [])
    assert meanings(frame, 2, "hint") == "→" * row.count("→"), "the arrow is part of neither word"


# ── sign ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "others", "signs"),
    [
        ("signcolumn=auto", [], [""]),
        ("signcolumn=auto", [4], ["»"]),  # the column is there for another sign
        ("signcolumn=auto", [2], ["E", "»"]),  # the line has a sign: one of the two is drawn
        ("signcolumn=auto:2", [2, 4], ["E"]),
        ("signcolumn=auto:1-2", [], ["»"]),
        ("signcolumn=yes", [], ["»"]),
        ("signcolumn=no", [4], [""]),
        ("signcolumn=number", [], [""]),
        ("number signcolumn=yes", [], ["»   3"]),
    ],
)
def test_the_sign_moves_no_text(desk, options, others, signs):
    desk.open(LINES)
    desk.lua(OTHERS_SIGNS, others)
    desk.lua("vim.cmd('set ' .. ...) vim.cmd.redraw()", options)
    column = desk.screen.row(1).index("two()")
    desk.offered()
    row = desk.wait(lambda frame: frame.edit, "the words").row(2)
    assert desk.screen.row(1).index("two()") == column
    assert row[: row.index("return")].strip() in signs


def test_the_edit_colours_the_number_of_its_line(desk):
    desk.open(LINES)
    desk.lua("vim.o.number = true; vim.api.nvim_set_hl(0, 'SpeclspEditSign', { fg = '#ff0000' })")
    desk.offered()
    frame = desk.wait(lambda frame: frame.edit, "the words")
    number, other = (row[2] for row in frame.rows[2:4])
    assert number[0] == "3" and other[0] == "4" and number[1] != other[1]


# ── hint ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_hint_stands_between_the_line_and_the_virtual_text_of_others(desk):
    desk.open(LINES)
    desk.lua(OTHERS_TEXT)
    desk.offered()
    desk.keys("G")
    desk.wait(lambda frame: frame.row(5) == f"six() {HINT} a long diagno", "the hint")


@pytest.mark.parametrize(
    ("columns", "last", "keys", "rows"),
    [
        (26, "six()", "", [f"six() {HINT}"]),
        (17, "six()", "", [f"six( {SHORT}"]),
        (12, "six()", "", ["six()     »3"]),
        (12, "six()six()", "$", ["»3 ()six()"]),
        (30, "x" * 30, "", ["x" * 9 + " " + HINT]),
        (30, "x" * 30, "$", [HINT + " " + "x" * 9]),
        (30, "x" * 70, "", ["x" * 9 + " " + HINT, "x" * 30, "x" * 10]),
        (30, "x" * 70, "55l", ["x" * 30, HINT + " " + "x" * 9, "x" * 10]),
        (30, "x" * 70, "$", ["x" * 30, "x" * 30, "x" * 10 + " " + SHORT]),
        (30, "漢" * 15, "", ["漢" * 4 + "  " + HINT]),
        (30, "漢" * 15, "$", [HINT + "  " + "漢" * 4]),
    ],
)
def test_the_hint_is_whole_and_beside_the_cursor(desk, columns, last, keys, rows):
    desk.open([*LINES[:5], last], columns=columns)
    desk.offered()
    desk.keys("G0" + keys)

    def shows(frame: Frame) -> bool:
        filled = [row for row in map(frame.row, range(ROWS)) if row not in ("", "~")]
        return filled[-len(rows) :] == rows

    frame = desk.wait(shows, str(rows))
    row, column = frame.cursor
    assert frame.meaning.get(frame.rows[row][column][1]) != "hint", "the cursor's cell has its own text"


@pytest.mark.parametrize(("keys", "part"), [("", "x" * 9 + " " + HINT), ("$", "x " + SHORT)])
def test_the_hint_is_in_view_where_a_long_line_is_scrolled_sideways(desk, keys, part):
    desk.open([*LINES[:5], "x" * 100], columns=30)
    desk.lua("vim.o.wrap = false")
    desk.offered()
    desk.keys("G0" + keys)
    desk.wait(lambda frame: part in frame.row(5), part)


def test_an_edit_beside_the_view_has_a_hint_and_tab_jumps_there_first(desk):
    desk.open([*LINES[:2], " " * 60 + "f(width)", *LINES[3:]], ("breadth", 2, 62, 2, 67), columns=30)
    desk.lua("vim.o.wrap = false")
    desk.offered()
    desk.wait(lambda frame: HINT in frame.row(frame.cursor[0]), HINT)
    desk.keys("<Tab>")
    desk.wait(lambda frame: "f(width→breadth)" in frame.row(2) and HINT not in frame.text, "the edit")
    assert desk.buffer()[2].strip() == "f(width)"
    desk.keys("<Tab>")
    desk.until(APPLIED, "the edit to be made")
