"""Editors on this machine, and the lines that connect each to the language server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from speclsp.process_resources.programs import find_program

PLUGIN = "editors/nvim"
NVIM = """\
vim.opt.runtimepath:prepend("{plugin}")
require("speclsp").setup({{}})"""
VSCODE = "{program} --install-extension speclsp.vsix   # `make vsix` in a checkout builds it"
HELIX = """\
[language-server.speclsp]
command = "speclsp"
args = ["lsp", "--set", "{menu}=true"]

[[language]]
name = "python"
language-servers = ["pylsp", "speclsp"]"""
EMACS = """\
(with-eval-after-load 'lsp-mode
  (lsp-register-client
   (make-lsp-client :new-connection (lsp-stdio-connection '("speclsp" "lsp"))
                    :activation-fn (lambda (_file _mode) t)
                    :add-on? t
                    :server-id 'speclsp)))"""
ZED = "speclsp engine --port 8012   # an OpenAI-compatible server for edit_predictions; not tested here"
MENU = "completion.show_in_menu"

HELIX_FILE = r"%AppData%\helix\languages.toml" if sys.platform == "win32" else "~/.config/helix/languages.toml"

KNOWN = (  # program, name, file of the lines, lines
    ("nvim", "Neovim", "init.lua", NVIM),
    ("code", "VS Code", "a terminal", VSCODE),
    ("codium", "VSCodium", "a terminal", VSCODE),
    ("hx", "Helix", HELIX_FILE, HELIX),
    ("emacs", "Emacs with lsp-mode 10", "init.el", EMACS),
    ("zed", "Zed", "a terminal", ZED),
)


def installed() -> Iterator[str]:
    """For each editor on PATH: its name, the file for the lines, and the lines."""
    for program, name, place, lines in KNOWN:
        if find_program(program):
            text = lines.format(program=program, plugin=nvim_plugin(), menu=MENU)
            yield f"{name}, in {place}:\n" + "\n".join(f"    {line}" for line in text.splitlines())


def nvim_plugin() -> str:
    """The plugin's directory: in this checkout, or a placeholder. With slashes: a backslash escapes in Lua."""
    directory = Path(__file__).resolve().parents[3] / PLUGIN
    return directory.as_posix() if directory.is_dir() else f"/path/to/speclsp/{PLUGIN}"
