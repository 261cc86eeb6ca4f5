"""Fixtures for editor tests: installed editors, a shared engine; the summary lists covered editors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.editors import install

COVERED = pytest.StashKey[dict[str, str]]()  # name: version
NOT_COVERED = pytest.StashKey[dict[str, str]]()  # name: reason


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COVERED], config.stash[NOT_COVERED] = {}, {}


@pytest.fixture(scope="session")
def installed(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """`installed(name)` is the path that install.py prints for it; a test without its editor is skipped."""
    config = request.config
    everywhere = config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    with pytest.MonkeyPatch.context() as patch:
        everywhere.use_users_cache(patch)
        folder = install.editors_dir()

    def find(name: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(install, "editors_dir", lambda: folder)
            path, reason = install.place(name), install.why_not(name)
        if reason:
            config.stash[NOT_COVERED][name] = reason
            pytest.skip(f"NOT COVERED: {name}: {reason}")
        if name not in config.stash[COVERED]:
            config.stash[COVERED][name] = version(path) or install.RECIPES[name].version
        return path

    return find


def version(program: Path) -> str:
    """The version that a program prints; "" for a folder and for a script of another program."""
    if not program.is_file() or program.suffix:
        return ""
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    return output.partition("\n")[0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """An xdist worker hands its lists to the controller, which prints the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["editors"] = [session.config.stash[COVERED], session.config.stash[NOT_COVERED]]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Merges the lists of a finished xdist worker."""
    for stash_key, names in zip(
        (COVERED, NOT_COVERED), getattr(node, "workeroutput", {}).get("editors", ()), strict=False
    ):
        node.config.stash[stash_key].update(names)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    covered, missing = config.stash.get(COVERED, {}), config.stash.get(NOT_COVERED, {})
    if not covered and not missing:
        return
    terminalreporter.section("editors")
    for name, installed_version in covered.items():
        terminalreporter.write_line(f"covered      {name:<12} {installed_version}", green=True)
    for name, reason in missing.items():
        terminalreporter.write_line(f"NOT COVERED  {name:<12} {reason}", red=True, bold=True)
