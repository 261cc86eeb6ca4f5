"""The plugin's own Lua specs: each types into a separate Neovim, against a server inside that Neovim."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SPECS = Path(__file__).parent / "nvim_spec/run.lua"


@pytest.mark.timeout(900)  # a minute on an idle machine
@pytest.mark.parametrize("name", ["nvim-0.11", "nvim-0.12"])
def test_every_lua_spec_of_the_plugin_passes(name: str, installed: Callable[[str], Path]) -> None:
    command = [installed(name), "--clean", "--headless", "-l", SPECS]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=850)
    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]
