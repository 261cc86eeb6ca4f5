"""Conformance with clients of Copilot's next edits: a Lua client in a real Neovim, one case a test.

copilot_clients.lua does what sidekick.nvim and copilot-lsp do with an answer. Neither plugin is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.editors.nvim_keys import NEWEST

CLIENT = Path(__file__).parent / "copilot_clients.lua"
CASES = re.findall(r'^cases\["(.+)"\] = function', CLIENT.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NEWEST)
def test_a_client_of_copilots_next_edits_is_served(name: str, case: str, installed: Callable[[str], Path]):
    command = [installed(name), "--clean", "--headless", "-l", CLIENT, sys.executable, case]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=380)
    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]


def test_there_is_a_case_for_each_thing_that_the_plugins_do():
    assert len(CASES) == 5 and {case.partition(":")[0] for case in CASES} >= {"sidekick", "copilot-lsp"}
