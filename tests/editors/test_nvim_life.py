"""Neovim lifecycle: processes that die, a missing program, two editors at once.

Also everything that is not a key: commands, health, status line, Neovim's own client, the real model. Tests of
processes run in the newest Neovim only; tests of the plugin run in each supported version.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.editors.nvim_keys import ACCEPT, BANK, NEWEST, OURS, VERSIONS
from support.editors.nvim_screen import PATIENCE_S
from support.editors.nvim_session import SPECLSP, NvimSession
from support.soak import in_soak

from speclsp.cli.first_run import editors

STANDARD = "vim.opt.runtimepath:prepend(plugin)\nvim.lsp.config('speclsp', { cmd = cmd })\nvim.lsp.enable('speclsp')"
BUILTIN = "vim.opt.runtimepath:prepend(plugin)\nrequire('speclsp').setup({ cmd = cmd, ui = 'builtin' })"
NO_PLUGIN = """
vim.lsp.config('speclsp', { cmd = cmd, filetypes = { 'python' } })
vim.lsp.enable('speclsp')
vim.lsp.inline_completion.enable(true)
vim.keymap.set('i', '<Tab>', function()
  return vim.lsp.inline_completion.get() and '' or '<Tab>'
end, { expr = true })
"""
PLACE = "Goreturn self."


@pytest.fixture(params=NEWEST)
def program(request: pytest.FixtureRequest, installed: Callable[[str], Path]) -> Path:
    return installed(request.param)


@pytest.fixture
def newest(installed: Callable[[str], Path]) -> Path:
    return installed(VERSIONS[-1])


@pytest.fixture
def home(isolated: Path) -> Path:
    return isolated / "n"


def begin(seat: NvimSession) -> None:
    seat.open("bank.py", BANK)
    seat.ready()
    seat.keys(PLACE)
    seat.answered()
    assert seat.suggestion().ghost


def accept(seat: NvimSession) -> None:
    wanted = seat.accepted()
    seat.keys(ACCEPT)
    seat.becomes(wanted)


def gone(processes: list[psutil.Process]) -> None:
    assert processes
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert not alive


def test_an_engine_killed_while_a_suggestion_is_shown_is_replaced_silently(newest, home):
    with NvimSession(newest, home, OURS, "--model", "tiny") as seat:
        begin(seat)
        engine = seat.engine()
        engine.kill()
        seat.keys("ow<Esc>x")
        seat.until("vim.fn.mode() == 'n'", "editing to go on")
        seat.keys("o" + PLACE[2:])
        seat.until("vim.endswith(vim.api.nvim_get_current_line(), 'return self.')", "editing to go on")
        seat.wire.wait(
            lambda wire: wire.status.get("state") == "ready" and wire.status["engine_pid"] != engine.pid, "an engine"
        )
        seat.keys("x<BS>")
        seat.suggestion()
        assert seat.engine().is_running()
        accept(seat)


def test_a_killed_server_leaves_the_editor_working_and_restarts_by_command(program, home):
    with NvimSession(program, home, OURS, "--model", "tiny") as seat:
        begin(seat)
        seat.call("nvim_ui_try_resize", 80, 30)  # a message that is too long would wait for <Enter> and swallow a key
        family = seat.family()
        for process in seat.running("lsp"):
            process.kill()
        gone(family)
        seat.keys("balance<CR>pass<Esc>")
        seat.until("vim.endswith(vim.api.nvim_get_current_line(), 'pass')", "editing to go on")
        assert seat.buffer()[-2].endswith("return self.balance"), "no letter was lost"
        assert ":Speclsp restart" in seat.messages(), "the way back"
        seat.wait(lambda frame: not frame.ghost, "the suggestion to go")
        assert not re.search(r"\bE\d+:|stack traceback", seat.messages())
        answers = len(seat.wire.read().answers)
        seat.keys(":Speclsp restart<CR>")
        seat.until("#vim.lsp.get_clients({ name = 'speclsp', bufnr = 0 }) > 0", "a new client")
        seat.keys("o<C-U>        return self.")
        seat.wire.wait(lambda wire: len(wire.answers) > answers and wire.status.get("state") == "ready", "a new server")
        seat.keys("x<BS>")
        seat.suggestion()
        accept(seat)


@pytest.mark.parametrize("how", ["killed", *in_soak("quit")])
def test_all_processes_end_with_neovim(newest, home, how):
    with NvimSession(newest, home, OURS, "--model", "tiny") as seat:
        begin(seat)
        family, engine = seat.family(), seat.engine()
        assert len(family) >= 2, "tap and server"
        assert engine not in family, "other editors may use it: it does not die with one of them"
        if how == "quit":
            seat.keys("<Esc>:qall!<CR>")
        else:
            seat.process.kill()
        seat.process.wait(PATIENCE_S)
        gone([*family, engine])


def test_the_lines_that_setup_prints_start_the_server_as_they_are(newest, home, monkeypatch):
    monkeypatch.setenv("PATH", f"{newest.parent}:/usr/bin:/bin")
    (name, *lines), *_ = [text.splitlines() for text in editors.installed()]
    assert name == "Neovim, in init.lua:"
    home.mkdir()
    (home / "init.lua").write_text("\n".join(lines))
    report = "lua io.write(table.concat(assert(require('speclsp.client').command()), ' '))"
    command = [newest, "--headless", "-u", home / "init.lua", "-c", report, "-c", "qall!"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert (run.stdout, run.stderr) == (f"{SPECLSP} lsp", "")


def test_enabling_the_server_with_neovims_own_function_suffices(program, home):
    with NvimSession(program, home, STANDARD, "--model", "tiny") as seat:
        begin(seat)
        accept(seat)


@pytest.mark.parametrize("setup", [BUILTIN, NO_PLUGIN], ids=["ours", "without our plugin"])
def test_neovims_builtin_inline_completion_shows_and_accepts_suggestions(newest, home, setup):
    with NvimSession(newest, home, setup, "--model", "tiny", lawful=False) as seat:
        begin(seat)
        accept(seat)


def click(seat: NvimSession, text: str) -> None:
    """Clicks on the first place of the screen with this text."""
    shown = seat.screen.text.split("\n")
    row = next(number for number, line in enumerate(shown) if text in line)
    for action in ("press", "release"):
        seat.call("nvim_input_mouse", "left", action, "", 0, row, shown[row].index(text))


def test_two_clicks_from_the_status_line_choose_a_level_that_the_server_uses_at_once(program, home):
    with NvimSession(program, home, OURS, "--model", "tiny") as seat:
        begin(seat)
        seat.lua("vim.o.statusline = [[%@v:lua.require'speclsp'.eagerness@%{v:lua.require'speclsp'.statusline()}%X]]")
        seat.normal()
        seat.wait(lambda frame: "speclsp " in frame.text, "the status line")
        click(seat, "speclsp ")
        seat.wait(lambda frame: "medium (in use): " in frame.text, "the menu")
        click(seat, "low: ")
        seat.wire.wait(lambda wire: wire.status.get("eagerness") == "low", "the level")
        seat.keys("oname = (x) + y<Esc>F)ia")
        seat.nothing()
        seat.wire.wait(lambda wire: wire.status.get("last_reason") == "mid_line", "the reason of this level")


@pytest.mark.soak
@pytest.mark.real
def test_the_real_model_suggests_and_is_accepted(newest, home, coder_0_5b):
    with NvimSession(newest, home, OURS, "--model", "qwen2.5-coder-0.5b-instruct") as seat:
        seat.open("bank.py", BANK)
        seat.ready()
        seat.keys("Go<C-U><CR>    def deposit_all(self, amounts):<CR>    for amount in amounts:<CR>    ")
        seat.answered()
        assert seat.suggestion().ghost
        character = seat.screen.ghost[0][0]
        seat.keys(character)
        seat.suggestion()
        accept(seat)
        assert "deposit" in "\n".join(seat.buffer()[-3:])
