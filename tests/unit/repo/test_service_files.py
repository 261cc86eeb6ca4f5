"""Files that service managers and continuous integration run: their commands exist and parse."""

from __future__ import annotations

import configparser
import json
import plistlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # transformers brings it
from packaging.requirements import Requirement

from speclsp.cli import command_line, commands, entry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
SERVICE = ROOT / "docs" / "service"
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))


def check_serves(words: list[str]) -> None:
    assert words[0].endswith("/.local/bin/speclsp")
    options = entry.parser().parse_args(words[1:])
    assert options.run is commands.run_engine
    assert options.action is None


def test_systemds_unit_runs_in_the_foreground_and_is_not_restarted_after_a_user_error():
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(SERVICE / "speclsp-engine.service")
    service = unit["Service"]
    check_serves(shlex.split(service["ExecStart"]))
    assert service["Type"] == "exec"
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", str(command_line.USER_ERROR))
    for harmful in ("MemoryDenyWriteExecute", "PrivateDevices", "PrivateTmp", "ProtectHome"):
        assert harmful not in service, "CUDA, the socket or the weights need it"


def test_launchds_agent_runs_in_the_foreground_and_restarts_only_after_a_crash():
    agent = plistlib.loads((SERVICE / "org.speclsp.engine.plist").read_bytes())
    shell, flag, script = agent["ProgramArguments"]
    assert (shell, flag) == ("/bin/sh", "-c")
    command = script.rpartition("exec ")[2].partition(" 2>>")[0]
    check_serves(shlex.split(command))
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["RunAtLoad"]


# ── the workflow ─────────────────────────────────────────────────────────────────────────────────────────────────────


def steps() -> Iterator[dict[str, Any]]:
    """The steps of all jobs of the workflow."""
    for job in WORKFLOW["jobs"].values():
        yield from job["steps"]


def steps_of(program: str) -> list[tuple[list[str], str]]:
    """(words after the program's, working directory) of each step that runs `program`."""
    lines = [(shlex.split(step["run"]), step.get("working-directory", ".")) for step in steps() if "run" in step]
    first = program.split()
    return [(words[len(first) :], folder) for words, folder in lines if words[: len(first)] == first]


def test_the_workflow_covers_the_three_systems_that_no_test_has_run_on():
    jobs = WORKFLOW["jobs"].values()
    systems = [system for job in jobs for system in job.get("strategy", {}).get("matrix", {}).get("os", [])]
    systems += [job["runs-on"] for job in jobs if "${{" not in job["runs-on"]]
    assert sorted(systems) == ["macos-latest", "ubuntu-24.04-arm", "windows-latest"]
    assert WORKFLOW["permissions"] == {"contents": "read"}
    actions = [step["uses"] for step in steps() if "uses" in step]
    assert actions and all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions)


def test_the_workflow_runs_only_what_the_repository_offers():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {word for words, _ in steps_of("make") for word in words} <= set(targets)
    for words, _ in steps_of("python -m pytest"):
        paths = [word for word in words if not word.startswith("-")]
        assert paths and all((ROOT / path).is_dir() for path in paths)
    for words, _ in steps_of("speclsp"):
        options = entry.parser().parse_args(words)
        assert options.run is not None
        assert all((ROOT / word.partition(":")[0]).exists() for word in words if word.startswith("examples/"))
    (install,) = (words for words, _ in steps_of("python -m pip install"))
    assert (ROOT / install[install.index("-c") + 1]).is_file()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert Requirement(f"speclsp{install[-1].removeprefix('.')}").extras <= set(extras)
    scripts = json.loads((ROOT / "editors/vscode/package.json").read_text("utf-8"))["scripts"]
    for words, folder in steps_of("npm"):
        assert (ROOT / folder / "package-lock.json").is_file()
        assert words[0] in {"ci", *scripts}
    known = ("make", "python -m", "speclsp", "npm", "git config")
    assert all(step["run"].startswith(known) for step in steps() if "run" in step)
