"""Pictures of suggestions in real editors, with the real 0.5B model in real time.

    python -m benchmarks record [PICTURE ...]

Types the story of recording/story.py at a human rate into VS Code (in a browser) and Neovim. Every suggestion is the
model's own, and every frame has its true time. Record on a quiet machine: other programs delay the suggestions.
`neovim-next-edit` shows the rename of a parameter that next edits finish; it needs no model. `neovim-sidekick` and
`neovim-copilot-lsp` show a next edit in sidekick.nvim and copilot-lsp; they need a checkout, which SPECLSP_SIDEKICK_DIR
or SPECLSP_COPILOT_LSP_DIR names.

Needs the editors (`python tests/support/editors/install.py --all`), the extension (`make vsix`) and the model
(`speclsp models pull`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.editor.recording import frames
from benchmarks.results_file import CHECKOUT
from speclsp.errors import InputError

DOCS = CHECKOUT / "docs/images"
EXTENSION = CHECKOUT / "editors/vscode/images"
PLUGIN = CHECKOUT / "editors/nvim/images"
PICTURES = {  # name -> file
    "demo": DOCS / "demo.gif",
    "suggestion": EXTENSION / "suggestion.png",
    "suggestion-light": EXTENSION / "suggestion-light.png",
    "partial": EXTENSION / "partial.png",
    "status": EXTENSION / "status.png",
    "first-run": EXTENSION / "first-run.png",
    "neovim": PLUGIN / "suggestion.gif",
    "neovim-next-edit": PLUGIN / "next-edit.gif",
    "neovim-sidekick": DOCS / "sidekick.png",
    "neovim-copilot-lsp": DOCS / "copilot-lsp.png",
    "neovim-dark": PLUGIN / "suggestion-dark.png",
    "neovim-light": PLUGIN / "suggestion-light.png",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks record`."""
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"of {', '.join(PICTURES)}; default: all")


def main(options: argparse.Namespace) -> int:
    """Record the named pictures, and print their sizes."""
    names = options.pictures or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        raise InputError(f"no picture is called {unknown[0]!r}: there are {', '.join(PICTURES)}.")
    in_neovim = [name for name in names if name.startswith("neovim")]
    if in_neovim:
        record_neovim(in_neovim)
    if in_vscode := [name for name in names if name not in in_neovim]:
        record_vscode(in_vscode)
    return 0


def record_neovim(names: list[str]) -> None:
    from support.editors.copilot_plugins import COPILOT_LSP, SIDEKICK

    from benchmarks.editor.recording import neovim

    plugins = {"neovim-sidekick": SIDEKICK, "neovim-copilot-lsp": COPILOT_LSP}
    for name in names:
        if name == "neovim":
            record_one(name, neovim.record)
        elif name == "neovim-next-edit":
            record_one(name, neovim.record_next_edits)
        elif name in plugins:
            record_one(name, partial(neovim.still_of_plugin, plugin=plugins[name]))
        else:
            background = name.removeprefix("neovim-")
            record_one(name, partial(neovim.still, background=background))


def record_vscode(names: list[str]) -> None:
    from benchmarks.editor.recording import vscode

    with vscode.studio() as studio:
        for name in names:
            if name == "demo":
                record_one(name, partial(vscode.record, studio))
            else:
                record_one(name, partial(vscode.still, studio, name=name))


def record_one(name: str, record: Callable[[Path], None]) -> None:
    """Record one picture and print its size, its duration and the machine's load."""
    path = PICTURES[name]
    before = os.getloadavg()[0]
    record(path)
    duration = f", {frames.seconds(path):.1f} s" if path.suffix == ".gif" else ""
    print(f"{path.relative_to(CHECKOUT)}: {path.stat().st_size // 1000} kB{duration}; load {before:.1f}", flush=True)
