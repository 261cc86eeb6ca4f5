"""Next edits on Neovim's screen: the real server learns a rename from two changes, and the user walks on with Tab."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.editors.nvim_keys import VERSIONS
from support.editors.nvim_session import NvimSession

from speclsp.lsp.next_edit import wire

SETUP = """
vim.opt.runtimepath:prepend(plugin)
vim.keymap.set('n', '<Esc>', '<Cmd>let g:escaped = get(g:, "escaped", 0) + 1<CR>')
require('speclsp').setup({ cmd = cmd })
"""
WITHOUT_ENGINE = ("--set", "completion.enabled=false")
REQUEST = wire.INLINE_EDIT


def code(name: str) -> str:
    """A function with six uses of a name."""
    uses = f"    print({name})\n    log({name}, 1)\n    return {name}\n"
    return f"def work(values):\n    {name} = 0\n    for value in values:\n        {name} += value\n{uses}"


def renamed(text: str, name: str, new: str, times: int) -> list[str]:
    """The lines after the first `times` uses are renamed."""
    return re.sub(rf"\b{name}\b", new, text, count=times).splitlines()


@pytest.fixture(scope="module", params=VERSIONS)
def chair(
    request: pytest.FixtureRequest,
    installed: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[NvimSession]:
    program = installed(request.param)
    with NvimSession(program, tmp_path_factory.mktemp("n"), SETUP, *WITHOUT_ENGINE) as seat:
        seat.open("first.py", code("first"))
        seat.records()
        yield seat


@pytest.fixture
def seat(chair: NvimSession) -> Iterator[NvimSession]:
    """Each test uses a file and names of its own: the server remembers the edits of the others."""
    yield chair
    chair.normal()
    chair.check()


def rename_two(seat: NvimSession, name: str, new: str, text: str) -> None:
    """Opens a file that the server knows, as it learns from changes only; renames its first two uses of a name."""
    seat.open(f"{name}.py", text)
    seat.until(
        "pcall(vim.api.nvim_get_autocmds, { group = 'speclsp.' .. vim.api.nvim_get_current_buf() })", "the plugin"
    )
    seat.keys(f"2G^cw{new}<Esc>4G^cw{new}<Esc>")
    seat.becomes(renamed(text, name, new, 2))


def offered(seat: NvimSession, line: int) -> None:
    """Waits until an edit at this line is shown."""
    seat.until("require('speclsp').statusline() == ...", f"an edit at line {line}", f"speclsp edit at {line}")


def asked_in_vain(seat: NvimSession) -> None:
    """Waits until the server has no edit for the present text, and none is drawn."""
    version = seat.lua("return vim.b.changedtick")

    def answered(wire: Any) -> bool:
        messages = [entry["message"] for entry in wire.messages]
        ours = [message for message in messages if message.get("method") == REQUEST][-1:]
        ids = [message["id"] for message in ours if message["params"]["textDocument"].get("version") == version]
        return any(message.get("id") in ids and message.get("result") == {"edits": []} for message in messages)

    seat.wire.wait(answered, "an empty answer about the present text")
    assert seat.screen.edit == []


def test_a_rename_is_walked_through_with_tab_and_each_step_is_undone_alone(seat):
    text = code("result")
    rename_two(seat, "result", "amount", text)
    for times, line in ((3, 5), (4, 6), (5, 7)):
        offered(seat, line)
        frame = seat.wait(lambda frame, line=line: frame.edit, "the inline diff")
        assert frame.edit == ["amount"]
        assert "result→amount" in frame.row(line - 1), frame.text
        seat.keys("<Tab>")
        seat.becomes(renamed(text, "result", "amount", times))
    asked_in_vain(seat)
    assert len(seat.wire.sent("workspace/executeCommand")) == 3
    for times in (4, 3, 2):
        seat.keys("u")
        seat.becomes(renamed(text, "result", "amount", times))


def test_undo_and_redo_as_fast_as_keys_come_leave_no_edit_behind(seat):
    text = code("amount_of")
    rename_two(seat, "amount_of", "sum_of", text)
    offered(seat, 5)
    seat.keys("<Tab><Tab>" + "uuu<C-R><C-R>" * 6 + "u" * 12)
    seat.becomes(text.splitlines())
    asked_in_vain(seat)
    assert seat.lua("return vim.fn.maparg('<Tab>', 'n')") == ""
