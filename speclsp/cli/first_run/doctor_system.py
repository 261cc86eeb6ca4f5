"""Checks of `speclsp doctor` on the programs around this one: `speclsp` on PATH, and Copilot's language server."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from speclsp.cli.first_run.doctor_check import OK, WARN, DoctorCheck
from speclsp.process_resources.programs import find_program

COPILOT_SERVER = "copilot-language-server"


def program(which: Callable[[str], str | None] = find_program, scripts: str = "") -> DoctorCheck:
    """Check that the command can be typed. On Windows pip installs it into a directory that PATH may lack.

    `scripts`: that directory; "" for this interpreter's.
    """
    if path := which("speclsp"):
        return DoctorCheck("program", OK, path)
    directory = scripts or sysconfig.get_path("scripts")
    fix = f"add {directory} to PATH, or write `py -m speclsp` in place of `speclsp`"
    return DoctorCheck("program", WARN, "`speclsp` is not on PATH", fix)


def copilot_servers() -> Iterator[DoctorCheck]:
    """Warn about a running Copilot language server: both would show next edits in the same buffer."""
    import psutil

    running = (process.info for process in psutil.process_iter(["pid", "name", "cmdline"]))
    process = next(filter(is_copilot, running), None)
    if process is not None:
        yield DoctorCheck(
            "next edit",
            WARN,
            f"{COPILOT_SERVER} runs too (process {process['pid']}): both show next edits in one buffer",
            "turn off one of them: `speclsp config set next_edit.enabled false`, or the Copilot client",
        )


def is_copilot(process: dict[str, object]) -> bool:
    """True for the `info` of a process whose name, program or script is Copilot's server."""
    command = process["cmdline"]
    words = [process["name"] or "", *(command[:3] if isinstance(command, list) else [])]
    return any(Path(str(word)).name.startswith(COPILOT_SERVER) for word in words)
