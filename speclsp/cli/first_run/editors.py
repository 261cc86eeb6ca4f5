"""Editors on this machine, and the lines that connect each to the language server."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from speclsp.process_resources.programs import find_program

PACKAGE = Path(__file__).resolve().parents[2]
PLUGIN = PACKAGE / "nvim" if (PACKAGE / "nvim").is_dir() else PACKAGE.parent / "editors/nvim"
NVIM = """\
vim.opt.runtimepath:prepend("{plugin}")
require("speclsp").setup({{{cmd}}})"""
VSCODE = "{program} --install-extension speclsp.vsix   # `make vsix` in a checkout builds it"
HELIX = """\
[language-server.speclsp]
command = "{server}"
args = ["lsp", "--set", "{menu}=true"]

[[language]]
name = "python"
language-servers = ["pylsp", "speclsp"]"""
MENU = "completion.show_in_menu"

HELIX_FILE = r"%AppData%\helix\languages.toml" if sys.platform == "win32" else "~/.config/helix/languages.toml"

KNOWN = (  # program, name, file of the lines, lines
    ("nvim", "Neovim", "init.lua", NVIM),
    ("code", "VS Code", "a terminal", VSCODE),
    ("codium", "VSCodium", "a terminal", VSCODE),
    ("hx", "Helix", HELIX_FILE, HELIX),
)


def installed() -> Iterator[str]:
    """For each editor on PATH: its name, the file for the lines, and the lines."""
    is_on_path = find_program("speclsp") is not None
    server = "speclsp" if is_on_path else (Path(sysconfig.get_path("scripts")) / "speclsp").as_posix()
    values = {"server": server, "cmd": "" if is_on_path else f' cmd = {{ "{server}", "lsp" }} ', "menu": MENU}
    for program, name, place, lines in KNOWN:
        if find_program(program):
            text = lines.format(program=program, plugin=PLUGIN.as_posix(), **values)
            yield f"{name}, in {place}:\n" + "\n".join(f"    {line}" for line in text.splitlines())
