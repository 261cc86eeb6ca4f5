"""Suggestions before closing brackets on Neovim's screen: the brackets are drawn after the last suggested line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.editors import item_server
from support.editors.nvim_keys import VERSIONS
from support.editors.nvim_screen import Neovim

PLUGIN = Path(__file__).resolve().parents[2] / "editors/nvim"
INIT = """
vim.o.swapfile, vim.o.shadafile, vim.o.ruler, vim.o.cursorline = false, 'NONE', false, true
vim.cmd('filetype indent off')
vim.api.nvim_set_hl(0, 'SpeclspSuggestion', {{ fg = '#808080' }})  -- not a link, so that cells tell the group's name
vim.opt.runtimepath:prepend('{plugin}')
require('speclsp').setup({{ cmd = {{ '{python}', '{server}', '{items}', 'lsp' }} }})
"""


@pytest.fixture(scope="module", params=VERSIONS)
def neovim(
    request: pytest.FixtureRequest, installed: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Neovim]:
    home = tmp_path_factory.mktemp("n")
    (home / "items.json").write_text("{}")
    init = INIT.format(plugin=PLUGIN, python=sys.executable, server=item_server.__file__, items=home / "items.json")
    (home / "init.lua").write_text(init)
    (home / "a.js").write_text("")
    command = [str(installed(request.param)), "-u", str(home / "init.lua"), str(home / "a.js")]
    with Neovim(command, home, {"HOME": str(home)}, columns=80, lines=20) as neovim:
        neovim.until("#vim.lsp.get_clients({ bufnr = 0 }) == 1", "the server")
        yield neovim


@pytest.mark.parametrize("name", item_server.CLOSERS)
def test_closers_are_drawn_after_the_suggestion_and_stay_after_accepting(neovim: Neovim, name: str) -> None:
    marked, text, over = item_server.CLOSERS[name]
    left, _, right = marked.partition(item_server.CURSOR)
    accepted = ["// first", *(left + text + right.removeprefix(over)).split("\n"), "// last"]
    open_line(neovim, marked, {"text": text, "over": over})
    drawn = lambda frame: frame.ghost and [frame.row(row) for row in range(len(accepted))] == accepted  # noqa: E731
    frame = neovim.wait(drawn, "the suggestion")
    is_block = "\n" in text
    suggested = Counter("".join(frame.ghost).replace(" ", ""))
    assert suggested == Counter("".join(text.split())) - Counter("" if is_block else over), "only new text looks new"
    moved = frame.rows[1][len(left) : len(left) + len(right)] if is_block else ()
    assert len({group for _, group in moved}) <= 1, "a moved bracket leaves matchparen's highlight behind"
    neovim.keys("<Tab>")
    neovim.until("vim.deep_equal(vim.api.nvim_buf_get_lines(0, 0, -1, false), ...)", "the accepted text", accepted)


@pytest.mark.parametrize(
    ("marked", "text"), [("        ‸", "    else:"), ("        el‸", "    else:"), ("        ‸", "}")]
)
def test_a_line_with_less_indentation_is_drawn_where_it_will_stand(neovim: Neovim, marked: str, text: str) -> None:
    typed = marked.removesuffix(item_server.CURSOR)
    open_line(neovim, marked, {"text": text, "left": typed})
    frame = neovim.wait(lambda frame: frame.ghost and frame.row(1) == text, "the line")
    assert "".join(frame.ghost).strip() == text.strip().removeprefix(typed.strip()), "the typed code looks typed"
    neovim.keys("<Tab>")
    neovim.until("vim.api.nvim_get_current_line() == ...", "the accepted line", text)


def open_line(neovim: Neovim, marked: str, item: dict[str, str]) -> None:
    """Types in the line `marked`, between two others, where `item` is suggested."""
    item_server.script(Path(neovim.lua("return vim.env.HOME"), "items.json"), {marked: item})
    left, _, right = marked.partition(item_server.CURSOR)
    neovim.keys("<C-\\><C-N>")
    neovim.until("vim.api.nvim_get_mode().mode == 'n'", "normal mode")
    neovim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, ...)", ["// first", left + right, "// last"])
    neovim.lua("vim.api.nvim_win_set_cursor(0, { 2, ... })", len(left))
    neovim.keys("i" if right else "A")
