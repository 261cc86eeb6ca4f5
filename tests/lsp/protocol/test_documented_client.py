"""The client of docs/lsp-client.md gets a suggestion from the real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.lsp.editor_client import echoed
from support.markdown_pages import code_block
from support.waiting import PATIENCE_S


@pytest.mark.slow
def test_the_client_prints_the_document_with_a_suggestion(isolated: Path):
    code = code_block("lsp-client.md")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 25
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "speclsp" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('model = "echo"\n\n[engine]\nshutdown_delay_seconds = 0\n', encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=isolated,
        env=os.environ | {"PATH": path},
        timeout=PATIENCE_S,
        check=True,
    )
    text = "def add(first, second):\n    return "
    assert done.stdout == text + echoed(text, "") + "\n"
