"""One line of `speclsp doctor`, and the guard that turns an exception in a check into a failed line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from speclsp.errors import MAX_MESSAGE, SpeclspError, error_site, shortened

OK, WARN, TODO, FAIL = "ok", "warn", "todo", "fail"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One line of the report."""

    name: str
    status: str
    found: str
    fix: str = ""
    facts: dict[str, object] = field(default_factory=dict)


def guarded(name: str, run: Callable[[], DoctorCheck | Iterable[DoctorCheck]]) -> Iterator[DoctorCheck]:
    """The lines of `run`; an exception becomes a failed line, so that the checks after it run too."""
    try:
        lines = run()
        yield from [lines] if isinstance(lines, DoctorCheck) else lines
    except SpeclspError as error:
        yield DoctorCheck(name, FAIL, str(error), "follow the message")
    except Exception as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        yield DoctorCheck(name, FAIL, broken(error), fix_of(error))


def broken(error: Exception) -> str:
    """An unexpected exception in one line: its type, its message, and the line that raised it."""
    return f"{error_site(error)}: {shortened(str(error), MAX_MESSAGE)}".rstrip(": ")


def fix_of(error: Exception) -> str:
    """The way out of an unexpected exception."""
    if isinstance(error, ImportError):
        return "install speclsp again"
    if isinstance(error, MemoryError):
        return "close other programs"
    return "correct what the message names; `SPECLSP_TRACEBACK=1 speclsp doctor` shows the line that failed"
