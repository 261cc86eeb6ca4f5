"""One line of `speclsp doctor`, and the guard that makes a failed line of an exception."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from speclsp.errors import MAX_MESSAGE, SpeclspError, error_site, shortened

OK, WARN, TODO, FAIL = "ok", "warn", "todo", "fail"
SLOW_MS = 1500  # a completion slower than this comes too late for most typists
Words = ParamSpec("Words")


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One line of the report."""

    name: str
    status: str
    found: str
    fix: str = ""


def guarded(name: str, check: Callable[Words, DoctorCheck], *words: Words.args, **named: Words.kwargs) -> DoctorCheck:
    """The result of `check`; an exception becomes a failed line, so that the other checks run too."""
    try:
        return check(*words, **named)
    except SpeclspError as error:
        return DoctorCheck(name, FAIL, str(error), "follow the message")
    except Exception as error:
        if os.environ.get("SPECLSP_TRACEBACK"):
            raise
        site = f"{error_site(error)}: {shortened(str(error), MAX_MESSAGE)}".rstrip(": ")
        hint = "`speclsp doctor` with the variable SPECLSP_TRACEBACK=1 shows the line that failed"
        fix = "install speclsp again" if isinstance(error, ImportError) else f"correct what the message names; {hint}"
        return DoctorCheck(name, FAIL, site, fix)
