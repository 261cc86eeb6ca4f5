"""Lines that join a first line on Neovim's screen, with the real server and an engine that writes a text on.

The first line is shown at once, and no frame after it lacks it. Tab takes what is shown at that moment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.editors.nvim_keys import NEWEST
from support.editors.nvim_screen import Neovim
from support.lsp import scripted_engine

ROOT = Path(__file__).resolve().parents[2]
BODY = "def f(items):\n    total = 0\n    count = 1\n    total += count\n    return total\n\n\nother = 1\n"
TYPED, FIRST = BODY[: BODY.index(" = 0")], [" = 0"]
JOINED = [*FIRST, "    count = 1", "    total += count", "    return total"]
ROUND_S = 0.01  # of a token of the engine: the further lines take half a second
INIT = """
vim.o.swapfile, vim.o.shadafile, vim.o.ruler = false, 'NONE', false
vim.cmd('filetype indent off')
vim.g.loaded_python3_provider = 0
vim.api.nvim_set_hl(0, 'SpeclspSuggestion', {{ fg = '#808080' }})
vim.opt.runtimepath:prepend('{plugin}')
require('speclsp').setup({{ cmd = {{ {command} }} }})
"""


@contextmanager
def editor(executable: Path, home: Path, start_s: float = 0.0) -> Iterator[Neovim]:
    """Neovim on a file with the text left of the suggestion. The engine is ready `start_s` after its start."""
    (home / "script.json").write_text(json.dumps({"document": BODY, "round_s": ROUND_S, "start_s": start_s}))
    options = ["--set", "context.index_workspace=false", "--set", "next_edit.enabled=false"]
    words = [sys.executable, scripted_engine.__file__, home / "script.json", "lsp", *options]
    command = ", ".join(f"'{word}'" for word in words)
    (home / "init.lua").write_text(INIT.format(plugin=ROOT / "editors/nvim", command=command))
    (home / "a.py").write_text(TYPED)
    environment = {"HOME": str(home), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    arguments = [str(executable), "-u", str(home / "init.lua"), str(home / "a.py")]
    with Neovim(arguments, home, environment, columns=60, lines=20) as neovim:
        neovim.until("#vim.lsp.get_clients({ bufnr = 0 }) == 1", "the server")
        yield neovim


@pytest.fixture(params=NEWEST)  # a new server for each test: it caches what has joined
def neovim(request: pytest.FixtureRequest, installed: Callable[[str], Path], tmp_path: Path) -> Iterator[Neovim]:
    with editor(installed(request.param), tmp_path) as neovim:
        yield neovim


def first_shown(neovim: Neovim) -> int:
    """Types up to the place of the suggestion; returns the number of the frame that shows its first line."""
    neovim.keys("<C-\\><C-N>")
    neovim.until("vim.api.nvim_get_mode().mode == 'n'", "normal mode")
    neovim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, false, ...)", TYPED[:-1].split("\n"))
    neovim.lua("vim.api.nvim_win_set_cursor(0, { 2, 7 })")
    since = neovim.keys("A" + TYPED[-1])
    neovim.wait(lambda frame: frame.ghost == FIRST, "the first line", since)
    return next(number for number in range(since, len(neovim.frames)) if neovim.frames[number].ghost == FIRST)


def test_further_lines_join_the_first_one_without_a_frame_between_and_tab_takes_all(neovim: Neovim) -> None:
    shown = first_shown(neovim)
    neovim.wait(lambda frame: frame.ghost == JOINED, "the further lines", shown)
    assert {tuple(frame.ghost) for frame in neovim.frames[shown:]} == {tuple(FIRST), tuple(JOINED)}
    neovim.keys("<Tab>")
    neovim.until("vim.deep_equal(vim.api.nvim_buf_get_lines(0, 0, -1, false), ...)", "all", BODY.split("\n")[:5])


@pytest.mark.parametrize("version", NEWEST)
def test_a_key_typed_while_the_model_starts_gets_its_suggestion_when_it_is_ready(
    installed: Callable[[str], Path], tmp_path: Path, version: str
) -> None:
    with editor(installed(version), tmp_path, start_s=1.0) as neovim:
        number = first_shown(neovim)
        assert neovim.frames[number].mode == "insert"
