"""One line of `speclsp doctor`, the guard that makes a failed line of an exception, and the check of `remote.url`."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from speclsp.config import Config
from speclsp.errors import MAX_MESSAGE, SpeclspError, error_site, shortened, variable_words

OK, WARN, TODO, FAIL = "ok", "warn", "todo", "fail"
SLOW_MS = 1500  # a completion slower than this comes too late for most typists


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
        if is_from_psutil(error):
            summary = f"this system gives no such figure ({broken(error)})"
            yield DoctorCheck(name, WARN, summary, "no action: the other lines do not depend on this one")
        else:
            yield DoctorCheck(name, FAIL, broken(error), fix_of(error))


def is_from_psutil(error: Exception) -> bool:
    """True for an exception that psutil raised: an error of the system, or an answer that it did not expect."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "psutil" in Path(frames[-1].filename).parts


def broken(error: Exception) -> str:
    """An unexpected exception in one line: its type, its message, and the line that raised it."""
    return f"{error_site(error)}: {shortened(str(error), MAX_MESSAGE)}".rstrip(": ")


def fix_of(error: Exception) -> str:
    """The way out of an unexpected exception."""
    if isinstance(error, ImportError):
        return "install speclsp again"
    if isinstance(error, MemoryError):
        return "close other programs"
    assignment = variable_words("SPECLSP_TRACEBACK", "1")
    return f"correct what the message names; `speclsp doctor` with {assignment} shows the line that failed"


def remote(config: Config) -> DoctorCheck:
    """Check the server at remote.url: its type, and its time for a few tokens."""
    import asyncio

    from speclsp.lsp.backend.blocking import without_retry
    from speclsp.lsp.backend.remote.remote import RemoteBackend
    from speclsp.lsp.backend.types import FimRequest, Status

    ask = FimRequest(path="add.py", prefix="def add(a, b):\n", line_prefix="    return ", suffix="\n", max_tokens=8)

    async def complete_once() -> DoctorCheck:
        changed = asyncio.Event()
        server = RemoteBackend(config, lambda status: changed.set(), config.remote.url)
        server.start()
        try:
            while server.status.state == "starting":
                await changed.wait()
                changed.clear()
            status: Status = server.status
            facts: dict[str, object] = {"server": server.server.kind, "style": server.server.style}
            if status.state == "ready":
                began_s, text = time.monotonic(), ""
                first_ms = 0.0
                async for piece in server.stream(replace(ask, deadline_ms=config.completion.timeout_ms)):
                    first_ms = first_ms or (time.monotonic() - began_s) * 1000
                    text += piece.text
                took_ms = round((time.monotonic() - began_s) * 1000)
                facts |= {"model": status.target, "first_ms": round(first_ms), "whole_ms": took_ms}
                kind = server.server.kind or "a server of unknown kind"
                summary = f"{kind} at {status.remote}, {status.target}, by {server.server.style}: {text!r}"
                slow = took_ms > SLOW_MS
                fix = "choose a smaller model or a nearer server" if slow else ""
                summary += f", first text after {round(first_ms)} ms, complete after {took_ms} ms"
                return DoctorCheck("remote", WARN if slow else OK, summary, fix, facts=facts)
            summary = without_retry(status.message)
            return DoctorCheck("remote", FAIL, summary, "follow the message", facts=facts)
        except SpeclspError as error:
            summary = without_retry(server.status.message) or str(error)
            return DoctorCheck("remote", FAIL, summary, "follow the message")
        finally:
            await server.close()

    return asyncio.run(complete_once())
