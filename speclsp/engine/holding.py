"""What of the pair is in memory, and why: loading, all of it, asleep, or short of memory. No torch here.

    loading ─► ok ◄─► asleep (nothing was asked for a while)
        └─► error (why)

Everything that touches a model happens in the engine's one thread (turns.py), which calls `tend` between rounds and
sleeps no longer than `due_s`; the rest of the process reads the plain attributes.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable

from speclsp.engine.seam import Completer
from speclsp.errors import SpeclspError

Load = Callable[[Callable[[float, str], None]], Completer]

log = logging.getLogger("speclsp.engine")


class Holding:
    """The completer, as long as there is one."""

    def __init__(self, load: Load, pair: str = "") -> None:
        """`load` is called in the engine's thread, with what to tell its progress to. `pair`: until it is known."""
        self.pair = pair
        self.state = "loading"  # "loading" | "ok" | "asleep" | "error"
        self.progress = 0.0  # while loading
        self.message = "starting"  # one line: what is being done, or why there will be no completer
        self.draft_only = False  # while loading: `completer` is the draft alone
        self.completer: Completer | None = None
        self.settled = threading.Event()  # there is a completer, or an error
        self.on_change: Callable[[], None] = lambda: None  # told from the engine's thread
        self._load = load

    def tend(self) -> None:
        """Do what is due; called in the engine's thread, before its first request and between rounds."""
        if self.state == "loading":
            self._fetch()

    def due_s(self) -> float | None:
        """How long until something may be due; None when only a request can bring something."""
        return None

    def asked(self) -> None:
        """A request has come, from any thread."""

    def _fetch(self) -> None:
        try:
            completer = self._load(self._tell)
        except Exception as error:  # whatever it is, /health says it: the process stays to be asked
            self.state, self.message = "error", one_line(error)
            log.error("could not load %s: %s", self.pair or "the model", self.message)
        else:
            gc.collect()
            gc.freeze()  # what loading left stays for good: collecting must not walk over it in mid-request
            self.pair, self.completer, self.state, self.message = completer.pair, completer, "ok", ""
        self.settled.set()
        self.on_change()

    def _tell(self, fraction: float, message: str) -> None:
        self.progress, self.message = min(1.0, max(0.0, fraction)), message
        self.on_change()


def one_line(error: BaseException) -> str:
    """What went wrong, for a person: our own errors speak for themselves, others are named."""
    text = " ".join(str(error).split())
    return text if isinstance(error, SpeclspError) else f"{type(error).__name__}: {text[:300]}"
