"""A real Neovim with our plugin, the real server behind lsp_tap.py, and a file to type into.

It holds the checks common to all tests: the screen shows the answers on the wire, and the invariants of every frame.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil

from support.editors.nvim_screen import PATIENCE_S, Frame, Neovim
from support.editors.wire_log import Answer, Conversation, plain

ROOT = Path(__file__).resolve().parents[3]
TAP = ROOT / "tests/support/editors/lsp_tap.py"
SPECLSP = Path(sys.executable).with_name("speclsp")
TABSTOP = 8
LOGGED_S = 10.0  # lsp_tap.py logs a message after it has forwarded it
LOAD_S = 240.0  # a first load prepares int8 weights
ERROR = r"\bE\d+:|stack traceback|Error (executing|detected|in )"  # in Neovim's messages

INIT = """
vim.o.swapfile, vim.o.shadafile, vim.o.ruler = false, 'NONE', false
vim.cmd('filetype indent off')
vim.g.loaded_python3_provider = 0  -- Neovim's ftplugin starts Python to look for its provider: 1 s
for _, group in ipairs({{
  'ComplHint', 'ComplHintMore', 'SpeclspSuggestion', 'SpeclspHint', 'SpeclspEditAdd', 'SpeclspEditHint'
}}) do
  vim.api.nvim_set_hl(0, group, {{ fg = '#808080' }})  -- not a link, so that the screen's cells tell the group's name
end
local plugin, cmd = '{plugin}', {{ {cmd} }}
{setup}
"""

RECORDS = """(function()
  local buf = vim.api.nvim_get_current_buf()
  local client = require('speclsp.client').get(buf)
  local here = { textDocument = vim.lsp.util.make_text_document_params(buf), position = { line = 0, character = 0 } }
  local answer = client and client:request_sync('textDocument/copilotInlineEdit', here, 60000, buf)
  return answer and client:request_sync('speclsp/explain', vim.empty_dict(), 60000, buf).result.next_edit ~= nil
end)()"""


class NvimSession(Neovim):
    """Neovim with its own home and `setup` in its init.lua: there `cmd` is the server, `plugin` our plugin."""

    def __init__(
        self, program: Path, home: Path, setup: str, *arguments: str, path: str | None = None, lawful: bool = True
    ) -> None:
        """`arguments` are the server's; `path` replaces PATH. Not `lawful`: Neovim's own client draws, and leaves a
        stale suggestion on the screen until the next answer."""
        self.lawful = lawful
        home.mkdir(exist_ok=True)
        self.home, self.wire = home, Conversation(home / "wire.jsonl")
        leaves = ("--set", "engine.shutdown_delay_seconds=0")  # the engine ends with its last editor
        patient = ("--set", "completion.timeout_ms=60000")  # the text must not depend on the machine's speed
        words = [sys.executable, TAP, self.wire.log, SPECLSP, "lsp", *leaves, *patient, *arguments]
        cmd = ", ".join(f"'{word}'" for word in words)
        (home / "init.lua").write_text(INIT.format(plugin=ROOT / "editors/nvim", cmd=cmd, setup=setup))
        weights = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        private = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "STATE", "DATA")}
        private |= {"HOME": str(home), "XDG_CACHE_HOME": weights, "PATH": path or os.environ["PATH"]}
        super().__init__([str(program), "-u", str(home / "init.lua")], home, private)
        self._checked = 0

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            if error[0] is None:
                self.check()
        finally:
            super().__exit__(*error)

    def engine(self) -> psutil.Process:
        """The engine process, shared by all editors of this user."""
        return psutil.Process(self.wire.read().status["engine_pid"])

    def ready(self) -> None:
        self.wire.wait(lambda wire: wire.status.get("state") == "ready", "the model to be loaded", LOAD_S)

    def records(self) -> None:
        """Waits until the server records edits, from which next edits are learned."""
        self.until(RECORDS, "the server to record edits")

    def open(self, name: str, text: str) -> None:
        """Opens a file with this text instead of all open ones."""
        self.check()
        (self.home / name).write_bytes(text.encode())
        self.normal()
        self.lua("vim.cmd('silent! wincmd o | silent! tabonly | silent %bwipeout! | messages clear | echo')")
        self.lua("vim.cmd.edit(...)", str(self.home / name))
        self._checked = len(self.frames)

    def answered(self) -> Answer:
        """Waits for the answer to a request about the present text."""
        self._settle("the text is asked about, and answered", lambda answer: answer.document == self.text())
        return self.answer()

    def suggestion(self) -> Frame:
        """Waits until the screen shows the server's answer to the newest request."""
        self._settle(
            "the screen shows the newest answer",
            lambda answer: any(agrees(self.screen, answer, number) for number in each(answer)),
        )
        return self.screen

    def nothing(self) -> Frame:
        """Waits until the newest request has an empty answer and the screen shows no suggestion."""
        self._settle("the screen shows nothing", lambda answer: not answer.texts and not self.screen.ghost)
        return self.screen

    def answer(self) -> Answer:
        """The newest answer."""
        return self.wire.read().answers[-1]

    def accepted(self, number: int = 0) -> list[str]:
        """The buffer after accepting the whole newest answer."""
        return self.answer().documents[number].removesuffix("\n").split("\n")

    def text(self) -> str:
        """The buffer as the server should hold it."""
        return "".join(f"{line}\n" for line in self.buffer())

    def becomes(self, lines: list[str]) -> Frame:
        """Waits until the buffer has these lines, the screen shows them, and the server holds them."""
        end = time.monotonic() + PATIENCE_S
        while not (self.buffer() == lines and shows(self.screen, lines) and self.in_step()):
            if time.monotonic() > end:
                raise AssertionError(f"expected {lines}, found {self.buffer()}; the screen:\n{self.screen.text}")
            time.sleep(0.01)
        return self.screen

    def normal(self) -> None:
        """Leaves insert mode and any other mode."""
        since = self.keys("<C-\\><C-N>")
        self.until("vim.api.nvim_get_mode().mode == 'n'", "normal mode")
        self.wait(lambda frame: frame.mode == "normal", "normal mode on the screen", since)

    def in_step(self) -> bool:
        """True if the server holds the buffer's text."""
        server_text = self.wire.read().texts.get(self.lua("return vim.uri_from_bufnr(0)"), "")
        return plain(server_text) == self.text()

    def check(self) -> None:
        """The invariants: no frame shows a suggestion that disagrees with the text, and there is no error message."""
        since, self._checked = self._checked, len(self.frames)
        for frame in self.frames[since : self._checked] if self.lawful else []:
            if frame.ghost and frame.cursor[0] < len(frame.rows) - 1:  # not while Neovim writes a message
                assert frame.mode == "insert", f"a suggestion in {frame.mode} mode:\n{frame.text}"
                end = time.monotonic() + LOGGED_S
                while not any(
                    agrees(frame, answer, number) for answer in self.wire.read().answers for number in each(answer)
                ):
                    problem = f"no answer suggests {frame.ghost} after {frame.left!r}:\n{frame.text}"
                    assert time.monotonic() < end, problem
                    time.sleep(0.01)
        if self.process.poll() is None:
            assert not re.search(ERROR, self.messages()), self.messages()

    def _settle(self, what: str, condition: Callable[[Answer], bool]) -> None:
        """Waits until no request is open, the server holds the text, and the newest answer fulfils the condition."""
        end = time.monotonic() + PATIENCE_S
        while True:
            wire = self.wire.read()
            if wire.answers and not wire.waiting and self.in_step() and condition(wire.answers[-1]):
                return
            if time.monotonic() > end:
                newest = wire.answers[-1] if wire.answers else "none"
                raise AssertionError(f"waited until {what}; the answer: {newest}; the screen:\n{self.screen.text}")
            time.sleep(0.01)


def each(answer: Answer) -> range:
    return range(len(answer.texts))


def shows(frame: Frame, lines: list[str]) -> bool:
    """True if the screen has these lines in this order."""
    rows = iter([frame.own(number) for number in range(len(frame.rows))])
    return all(line.expandtabs(TABSTOP).rstrip() in rows for line in lines)


def agrees(frame: Frame, answer: Answer, number: int) -> bool:
    """True if the screen shows the lines after accepting this answer, or the last of them."""
    *most, last = answer.lines(number)
    expected = [line.expandtabs(TABSTOP).rstrip() for line in [*most, last + answer.after]]
    while expected and not expected[-1]:
        expected.pop()
    shown = frame.promised
    return bool(shown) and expected[-len(shown) :] == shown
