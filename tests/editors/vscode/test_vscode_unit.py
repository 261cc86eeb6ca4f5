"""The VS Code extension's own tests: locating speclsp, messages sent, status bar texts.

They are written in TypeScript, beside the extension, and run by Node's own test runner; here `make test` runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATIENCE_S = 600  # including the download of the build tools


def test_the_extensions_own_tests_pass(installed: Callable[[str], Path]):
    node = installed("node")
    environment = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str, folder: Path) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("make", "-s", "vsix", f"NODE_BIN={node}", folder=ROOT)
    output = run("npm", "test", folder=ROOT / "editors/vscode")
    assert re.search(r"^. pass [1-9]", output, re.MULTILINE) and re.search(r"^. fail 0$", output, re.MULTILINE), output
