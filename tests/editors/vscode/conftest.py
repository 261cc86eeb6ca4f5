"""VS Code for the tests of this folder: one code-server with our extension, and one browser."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from support.editors import vscode_screen

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="package")
def studio_with(
    installed: Callable[[str], Path],
) -> Iterator[Callable[..., AbstractContextManager[vscode_screen.Studio]]]:
    """`with studio_with(NAME=value) as studio`: VS Code with our freshly built extension, in a browser."""
    programs = {name: installed(name) for name in ("node", "code-server", "chromium")}
    subprocess.run(["make", "-s", "vsix", f"NODE_BIN={programs['node']}"], cwd=ROOT, check=True, timeout=250)
    with vscode_screen.browsing(programs["chromium"]) as browser:
        yield partial(vscode_screen.running, programs, ROOT / "build/speclsp.vsix", browser)


@pytest.fixture(scope="package")
def only_studio(
    studio_with: Callable[..., AbstractContextManager[vscode_screen.Studio]],
) -> Iterator[vscode_screen.Studio]:
    """The VS Code of all files."""
    with studio_with() as studio:
        yield studio


@pytest.fixture(scope="module")
def studio(only_studio: vscode_screen.Studio) -> Iterator[vscode_screen.Studio]:
    """The VS Code of all files, with default settings before and after each file."""
    yield only_studio
    only_studio.server.settings()
