"""Engines of the model echo that fail on request: killed, hung or slow at start, at loading or at a completion.

The engine is the real one, as an editor starts it. The fault comes from a `sitecustomize` that every Python process
under the test imports, and that acts only where a file requests it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SITE = """
import sys
from pathlib import Path

if Path(__file__).with_name("hasty").exists():
    from speclsp.lsp.backend import liveness
    liveness.SILENCE_S, liveness.PROBE_S = 2.0, 3.0
    if "engine" in sys.orig_argv:
        from speclsp.engine.http import leases
        leases.COMMENT_S = 0.5

if "engine" in sys.orig_argv:
    import ctypes, os, signal, time

    KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows ends a process at once by any signal

    def strike(place):
        try:
            fault = Path(__file__).with_name(place).read_text()
        except FileNotFoundError:
            return
        if fault == "killed":
            os.kill(os.getpid(), KILL)
        elif fault == "hung":
            ctypes.PyDLL(None).sleep(600)  # with the lock of the interpreter: no thread of it runs
        elif fault == "slow":
            time.sleep(600)
        elif fault == "late":
            time.sleep(0.5)
        elif fault == "killed late":
            time.sleep(0.5)
            os.kill(os.getpid(), KILL)

    def after(what, place):
        def first(*given, **named):
            strike(place)
            return what(*given, **named)
        return first

    Path(__file__).with_name(f"started.{os.getpid()}").touch()
    strike("start")
    from speclsp.engine.decoding.echo import EchoCompleter
    EchoCompleter.__init__ = after(EchoCompleter.__init__, "load")
    EchoCompleter.complete = after(EchoCompleter.complete, "question")
"""


def processes_of(runtime: str) -> list[int]:
    """All live processes that were started with this XDG_RUNTIME_DIR."""
    mine, pids = f"XDG_RUNTIME_DIR={runtime}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if mine in (entry / "environ").read_bytes().split(b"\0") and state not in "ZX":
                pids.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in pids if pid != os.getpid()]


class Trouble:
    """Faults of the engine, by place: `at("question", "killed")`."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = root / "site"
        self.folder.mkdir()
        (self.folder / "sitecustomize.py").write_text(SITE)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")])))

    def at(self, place: str, fault: str) -> None:
        """Sets a fault at the "start", "load" or "question": the engine is "killed", "hung", "slow", "late"..."""
        (self.folder / place).write_text(fault)

    def starts(self) -> int:
        """The number of engines started since the last `over`."""
        return len(list(self.folder.glob("started.*")))

    def hasten(self) -> None:
        """A silent engine is suspected after 2 s and abandoned after 3 more, and heartbeats are more frequent.

        Call it before the first start.
        """
        (self.folder / "hasty").touch()

    def over(self) -> None:
        """Removes all faults and resets the count of starts."""
        for path in [*map(self.folder.joinpath, ("start", "load", "question")), *self.folder.glob("started.*")]:
            path.unlink(missing_ok=True)
