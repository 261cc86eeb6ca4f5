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
ENDED = "require('speclsp.next_edit').place() == nil and vim.tbl_isempty(fake.open)"
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

    def accepted(self) -> None:
        """Accepts the edit, which has no follower, and waits for the end of the walk."""
        self.lua("fake.edit = nil")
        self.keys("<Tab>")
        self.until(APPLIED, "the edit to be made")
        self.until(ENDED, "the end of the walk")

    def state(self) -> tuple[list[str], list[int], str]:
        """Text, cursor and mode after all keys."""
        self.call("nvim_eval", "1")  # not an API-fast call: the main loop answers it in turn
        return self.buffer(), self.call("nvim_win_get_cursor", 0), self.call("nvim_get_mode")["mode"]


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


@pytest.fixture(params=VERSIONS)
def fresh(request: pytest.FixtureRequest, installed: Callable[[str], Path], tmp_path: Path) -> Iterator[Desk]:
    """A new Neovim, for mappings of the user's own."""
    with started(installed(request.param), tmp_path) as neovim:
        neovim.lua(ALONE)
        yield neovim


def meanings(frame: Frame, row: int, wanted: str) -> str:
    """The text of a row's cells that have this meaning."""
    return "".join(text for text, group in frame.rows[row] if frame.meaning.get(group) == wanted)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "edit", "row", "removed", "added"),
    [
        (AREA, EDIT, "    return width→breadth * height", "width", "breadth"),
        ("f(a)", (", b", 2, 3, 2, 3), "f(a, b)", "", ", b"),
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
        ("signcolumn=auto:2", [2], ["E"]),
        ("signcolumn=auto:2", [2, 4], ["E"]),
        ("signcolumn=auto:1-2", [], ["»"]),
        ("signcolumn=yes", [], ["»"]),
        ("signcolumn=no", [4], [""]),
        ("signcolumn=number", [], [""]),
        ("number signcolumn=auto", [], ["3"]),
        ("number signcolumn=number", [], ["3"]),
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
        (25, "six()", "", [f"six() {SHORT}"]),
        (18, "six()", "", [f"six() {SHORT}"]),
        (17, "six()", "", [f"six( {SHORT}"]),
        (12, "six()", "", ["six()     »3"]),
        (12, "six()six()", "$", ["»3 ()six()"]),
        (30, "x" * 30, "", ["x" * 9 + " " + HINT]),
        (30, "x" * 30, "$", [HINT + " " + "x" * 9]),
        (30, "x" * 70, "", ["x" * 9 + " " + HINT, "x" * 30, "x" * 10]),
        (30, "x" * 70, "35l", ["x" * 30, "x" * 9 + " " + HINT, "x" * 10]),
        (30, "x" * 70, "55l", ["x" * 30, HINT + " " + "x" * 9, "x" * 10]),
        (30, "x" * 70, "$", ["x" * 30, "x" * 30, "x" * 10 + " " + SHORT]),
        (30, "x" * 65, "$", ["x" * 30, "x" * 30, f"xxxxx {HINT}"]),
        (30, "漢" * 15, "", ["漢" * 4 + "  " + HINT]),
        (31, "漢" * 15, "", ["漢" * 5 + " " + HINT]),
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


# ── one Tab too many ──────────────────────────────────────────────────────────────────────────────────────────────────

NORMAL = {
    "": "",
    "global": "vim.keymap.set('n', '<Tab>', 'iT<Esc>')",
    "buffer": "vim.keymap.set('n', '<Tab>', function() return 'iT<Esc>' end, { buffer = true, expr = true })",
    "ctrl-i": "vim.keymap.set('n', '<C-I>', 'iT<Esc>', { buffer = true })",
    "remap": "vim.keymap.set('n', '<Plug>(t)', 'iT<Esc>') vim.keymap.set('n', '<Tab>', '<Plug>(t)', { remap = true })",
}
INSERT = {
    "": "",
    "expandtab": "vim.bo.expandtab, vim.bo.shiftwidth, vim.bo.softtabstop = true, 4, 4",
    "global": "vim.keymap.set('i', '<Tab>', 'T')",
    "buffer": "vim.keymap.set('i', '<Tab>', function() vim.api.nvim_put({ 'T' }, 'c', false, true) end, { buffer=0 })",
    "itself": "vim.keymap.set('i', '<Tab>', function() return vim.g.never and 'T' or '<Tab>' end, { expr = true })",
}


def in_neovim_alone(neovim: Desk, setup: str, text: list[str], keys: str) -> tuple[list[str], list[int], str]:
    """The state after keys in a buffer that the plugin does not know."""
    neovim.lua("vim.cmd.stopinsert() vim.cmd('enew!') vim.bo.indentexpr = ''")
    neovim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, ...)", text)
    neovim.lua(setup)
    neovim.until("vim.api.nvim_get_mode().mode == 'n'", "normal mode")
    neovim.keys(keys)
    return neovim.state()


def walked(fresh: Desk, keys: str) -> None:
    """Accepts the last edit; "done" is shown without a limit of time."""
    fresh.offered(keys)
    fresh.lua("vim.uv.new_timer = function() return { start = function() end, stop = function() end } end")
    fresh.accepted()
    fresh.wait(lambda frame: "done" in frame.row(2), "the end of the walk")


@pytest.mark.parametrize("mapping", NORMAL)
def test_one_tab_too_many_in_normal_mode_is_swallowed_and_the_next_do_what_they_did_before(fresh, mapping):
    fresh.open(LINES)
    fresh.lua(NORMAL[mapping])
    walked(fresh, "1G$x")
    fresh.keys("<Tab><Tab><Tab>")
    text = ["one(aa", LINES[1], AREA.replace("width", "breadth"), *LINES[3:]]
    assert fresh.state() == in_neovim_alone(fresh, NORMAL[mapping], text, "3G19|<Tab><Tab>")


@pytest.mark.parametrize("mapping", INSERT)
def test_one_tab_too_many_in_insert_mode_is_swallowed_and_the_next_do_what_they_did_before(fresh, mapping):
    fresh.open(LINES)
    fresh.lua(INSERT[mapping])
    walked(fresh, "1GAx")
    fresh.keys("<Tab><Tab><Tab>")
    text = ["one(aa)x", LINES[1], AREA.replace("width", "breadth"), *LINES[3:]]
    assert fresh.state() == in_neovim_alone(fresh, INSERT[mapping], text, "3G19|i<Tab><Tab>")
