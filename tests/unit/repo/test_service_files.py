"""The files for service managers start a valid command line."""

from __future__ import annotations

import configparser
import plistlib
import shlex
from pathlib import Path

from speclsp.cli import command_line, commands, entry

SERVICE = Path(__file__).parents[3] / "docs" / "service"


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
