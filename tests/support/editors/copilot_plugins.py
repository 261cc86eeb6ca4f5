"""sidekick.nvim and copilot-lsp in a real Neovim: their place, and their functions for a test."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.editors.nvim_session import NvimSession

REQUEST, COMMAND = "textDocument/copilotInlineEdit", "workspace/executeCommand"
COPILOT = ("--copilot",)
NOTICES = """
_G.notices = {}
vim.notify = function(text) table.insert(_G.notices, text) end
vim.o.signcolumn = 'no'
"""
CLIENT = "vim.lsp.get_clients({ bufnr = 0 })[1]"
RECORDS = f"""(function()
  local client = {CLIENT}
  if not client or not client.initialized then return false end
  local params = vim.lsp.util.make_position_params(0, 'utf-16')
  params.textDocument.version = vim.lsp.util.buf_versions[vim.api.nvim_get_current_buf()]
  client:request_sync('{REQUEST}', params, 60000, 0)
  return client:request_sync('speclsp/explain', vim.empty_dict(), 60000, 0).result.next_edit ~= nil
end)()"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin, and its own functions as Lua expressions."""

    name: str
    variable: str  # of the environment: the plugin's git checkout
    setup: str  # in init.lua, with `cmd` as the server
    request: str
    pending: str  # the edit to apply, as {range, text}; nil for none
    apply: str
    executes: bool  # the edit's command, after it is applied
    silent_in: tuple[str, ...] = ()  # versions of Neovim in which the plugin shows no edit of any server

    def directory(self) -> Path | None:
        """The checkout; None without the variable."""
        where = os.environ.get(self.variable)
        return Path(where) if where else None

    def state(self) -> tuple[str, str]:
        """(commit, changed files) of the checkout."""
        return self._git("rev-parse", "HEAD"), self._git("status", "--porcelain")

    def _git(self, *words: str) -> str:
        command = ["git", "-C", str(self.directory()), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def init(self) -> str:
        """The lines of init.lua."""
        return f"vim.opt.runtimepath:prepend('{self.directory()}')\n{self.setup}"


SIDEKICK = Plugin(
    name="sidekick.nvim",
    variable="SPECLSP_SIDEKICK_DIR",
    setup="""
vim.lsp.config('speclsp_copilot', { cmd = cmd, root_markers = { '.git' } })
vim.lsp.enable('speclsp_copilot')
require('sidekick').setup({
  nes = { enabled = true },
  ui = { icons = { nes = '→ ' } }, -- its own icon needs a patched font
})
""",
    request="require('sidekick.nes').update()",
    pending="require('sidekick.nes').get(vim.api.nvim_get_current_buf())[1]",
    apply="require('sidekick.nes').apply()",
    executes=True,
    silent_in=("nvim-0.11",),  # it compares an answer's request_id, which Neovim hands to no handler before 0.12
)
COPILOT_LSP = Plugin(
    name="copilot-lsp",
    variable="SPECLSP_COPILOT_LSP_DIR",
    setup="""
vim.lsp.config('copilot_ls', { cmd = cmd })
vim.lsp.enable('copilot_ls')
""",
    request="require('copilot-lsp.nes').request_nes('copilot_ls')",
    pending="vim.b.nes_state",
    apply="require('copilot-lsp.nes').apply_pending_nes()",
    executes=False,
)


class PluginSession(NvimSession):
    """A Neovim in which one plugin is the only client of `speclsp lsp --copilot`."""

    def __init__(self, program: Path, home: Path, plugin: Plugin) -> None:
        self.plugin = plugin
        super().__init__(program, home, plugin.init() + NOTICES, *COPILOT)

    def edits(self, name: str, lines: list[str]) -> None:
        """Opens a file, and waits until the server learns from changes to it."""
        self.open(name, "".join(line + "\n" for line in lines))
        self.until(RECORDS, "the server to record edits")

    def change(self, first: int, count: int, lines: list[str]) -> None:
        """Replaces `count` lines from `first` (from 0), as one edit, with the cursor there."""
        self.lua("vim.api.nvim_win_set_cursor(0, { ... , 0 })", first + 1)
        self.lua(
            "local first, count, lines = ... vim.api.nvim_buf_set_lines(0, first, first + count, true, lines)",
            first,
            count,
            lines,
        )

    def request(self) -> None:
        """Requests an edit as the plugin does, beside the requests of its autocommands."""
        self.lua(self.plugin.request)

    def pending(self) -> dict[str, Any] | None:
        """The edit that the plugin would apply."""
        edit = self.lua(f"local edit = {self.plugin.pending} return edit and {{ edit.range, edit.text, edit.command }}")
        return dict(zip(("range", "text", "command"), edit, strict=True)) if edit else None

    def offered(self) -> dict[str, Any]:
        """Requests an edit until the plugin has one."""
        self.request()
        self.until(f"{self.plugin.pending} ~= nil", "an edit in the plugin")
        edit = self.pending()
        assert edit is not None
        return edit

    def apply(self) -> None:
        """Applies the pending edit as the plugin does."""
        assert self.lua(f"return {self.plugin.apply}") is True

    def replies(self, method: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """(params, response) of each request of a method that has its response."""
        self.wire.read()
        sent = [entry["message"] for entry in self.wire.messages if entry["to"] == "server"]
        back = [entry["message"] for entry in self.wire.messages if entry["to"] == "editor"]
        responses = {message["id"]: message for message in back if "id" in message and "method" not in message}
        requests = [message for message in sent if message.get("method") == method and message.get("id") in responses]
        return [(request["params"], responses[request["id"]]) for request in requests]

    def all_answered(self, method: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """`replies`, once each request of the method has one."""
        self.wire.wait(lambda wire: len(self.replies(method)) == len(wire.sent(method)), f"all replies to {method}")
        return self.replies(method)

    def undisturbed(self) -> None:
        """The user saw no notification and no error, and no request failed."""
        self.check()
        assert self.lua("return _G.notices") == []
        shown = [entry["message"] for entry in self.wire.read().messages if entry["to"] == "editor"]
        assert not [message for message in shown if message.get("method") == "window/showMessage"]
        assert not [response for _, response in self.all_answered(REQUEST) if "error" in response]
