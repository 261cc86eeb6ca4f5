"""State machine of model residency: loading, ok (loaded), asleep (unloaded), error. No torch.

    loading ─► ok ─► asleep     no request for idle_s
       │       ▲ ▲      │       memory ran out in two requests within CALM_S
       │       │ └──────┤       the file of the weights was altered
       ▼       │        ▼
     error     └───── error     the next request loads again, RETRY_S after a failure

A model is unloaded only while no completion is under way. While it is loaded again, requests wait for it.

Everything that touches a model happens in the engine's one thread (scheduler.py). It calls `maintain` before the first
request, between rounds, and when `next_due_s` has passed. The rest of the process reads the plain attributes and
`refusal`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from speclsp.engine.api import Completer
from speclsp.engine.scheduling.device_errors import clear_references, one_line, ran_out_of_memory
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.loaded_model import Load, LoadedModel

RETRY_S = 10.0  # after a reload that failed, until the next is tried
CALM_S = 60.0  # memory that runs out twice within this time unloads the model

log = logging.getLogger("speclsp.engine")


class Residency:
    """Loads, unloads and reloads the completer."""

    def __init__(
        self,
        load: Load,
        model: str = "",
        *,
        idle_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        memory_of: Callable[[str], DeviceMemory] = DeviceMemory,
    ) -> None:
        """`model`: its name until it is loaded. `idle_s`: unload after so long without a request; 0: never.

        `memory_of`: a device's, by its name.
        """
        self.model = model
        self.state = "loading"  # "loading", only the first time | "ok" | "asleep" | "error"
        self.progress = 0.0  # while loading
        self.message = "starting"  # one line: the current action, or why the completer is missing
        self.reason = ""  # see LoadedModel
        self.adapter: Mapping[str, object] = {}  # see LoadedModel
        self.completer: Completer | None = None
        self.ready_event = threading.Event()  # there is a completer, or an error
        self.on_change: Callable[[], None] = lambda: None  # called in the engine's thread
        self.on_idle: Callable[[], None] = lambda: None  # called after an unload because no request came
        self.on_device_lost: Callable[[str], None] = lambda why: None  # called when the device no longer answers
        self.memory = memory_of("cpu")  # of the device that has the model
        self._memory_of = memory_of
        self._load, self._clock, self._idle_s = load, clock, idle_s
        self._used_s = clock()  # when a request last came or was under way
        self._failed_s = self._ran_out_s = float("-inf")  # on the clock, at the last of each
        self._ran_out = False  # since the last `maintain`
        self._ran_out_again = False  # within CALM_S: the model is to be unloaded
        self._altered = False  # its weights are no longer those that were loaded: the model is to be unloaded
        self._requested = self._loaded_before = False  # a request since the last `maintain`; a load that succeeded
        self._clear_caches: Callable[[], None] = lambda: None  # see LoadedModel
        self._before_unload: Callable[[], None] = lambda: None  # see LoadedModel

    # ── for the rest of the process ──────────────────────────────────────────────────────────────────────

    def refusal(self) -> str:
        """The reason that a request cannot be queued now; "" when it can, and is served or fails in its turn."""
        if self.state == "loading":
            return f"the model is loading ({self.progress:.0%}, {self.message}): retry when /health reports ok."
        if self.state in ("error", "asleep") and not self._may_retry:
            return self.message
        return ""

    def note_request(self) -> None:
        """A request was submitted, from any thread."""
        self._used_s, self._requested = self._clock(), True

    def report_out_of_memory(self) -> None:
        """A request has run out of memory: the next `maintain` releases some."""
        self._ran_out = True

    def report_altered_weights(self) -> None:
        """A request found the weights altered: the model is unloaded, and the next request loads it again."""
        self._altered = True

    # ── for the engine's thread ──────────────────────────────────────────────────────────────────────────

    def maintain(self, busy: bool = False) -> None:
        """Make the changes that are due. `busy`: a completion is under way and its model must stay."""
        requested, self._requested = self._requested, False
        if busy:
            self._used_s = self._clock()
        try:
            if self._ran_out:
                self._recover_memory()
            if self.state == "loading":
                self._load_model()
            elif self.state == "ok":
                if not busy:
                    self._unload_if_due()
            elif requested and self._may_retry:
                self._reload()
        except Exception as error:  # a device can fail here too; without this thread no request would be answered
            self._fail(error, "keep")

    def close(self) -> None:
        """Let the model keep what it learned, before it is unloaded or the process ends."""
        self._before_unload()

    def next_due_s(self) -> float | None:
        """Time until a change may be due; None when only a request can bring one."""
        if self.state == "loading":
            return 0.0
        return max(0.0, self._idle_left_s()) if self.state == "ok" and self._idle_s else None

    def _idle_left_s(self) -> float:
        """Time until the model is unloaded because no request came."""
        return self._used_s + self._idle_s - self._clock() if self._idle_s else float("inf")

    # ── loading ──────────────────────────────────────────────────────────────────────────────────────────

    def _load_model(self) -> None:
        """Load the model, or note why that failed: the process stays, and /health reports the error."""
        try:
            result = self._load(self._report_progress)
            self._attach(result if isinstance(result, LoadedModel) else LoadedModel(completer=result))
        except Exception as error:
            self._fail(error, "load")

    def _attach(self, loaded: LoadedModel) -> None:
        """Use a loaded model."""
        self.model, self.completer, self._clear_caches = loaded.completer.model, loaded.completer, loaded.clear_caches
        self._before_unload = loaded.before_unload
        self.reason, self.adapter = loaded.reason, loaded.adapter
        if loaded.note:
            log.warning("%s", loaded.note)
        self.memory = self._memory_of(loaded.device or "cpu")
        self.memory.trim()  # malloc keeps the buffers of reading
        self._used_s = self._clock()
        self._loaded_before = True
        self._set_state("ok", loaded.note)
        self.ready_event.set()

    def _fail(self, error: Exception, action: str) -> None:
        """Unload everything after a failed `action`. After out of memory the next request may find more."""
        out_of_memory = self._loaded_before and ran_out_of_memory(error)
        self._detach()
        self._failed_s = self._clock()
        clear_references(error)  # a traceback would keep the loaded tensors in memory
        log.error("could not %s %s: %s", action, self.model or "the model", one_line(error))
        with suppress(Exception):  # a failed device cannot take anything back
            self.memory.trim()
        self._set_state("asleep" if out_of_memory else "error", one_line(error))
        self.ready_event.set()
        if self._loaded_before and (why := self.memory.lost_message(error)):
            self.on_device_lost(why)

    def _report_progress(self, fraction: float, message: str) -> None:
        self.progress = min(1.0, max(0.0, fraction))
        self.message = f"waking up: {message}" if self._loaded_before else message
        self.on_change()

    def _set_state(self, state: str, message: str) -> None:
        self.state, self.message = state, message
        self.on_change()

    # ── unloading and reloading ──────────────────────────────────────────────────────────────────────────

    def _unload_if_due(self) -> None:
        """Unload the model if its weights were altered, memory ran out again, or no request came."""
        idle = self._idle_left_s() <= 0
        why = "memory ran out again" if self._ran_out_again else ""
        why = "the file of the weights was altered" if self._altered else why
        if not why and idle:
            why = f"no request for {self._idle_s / 60:g} min"
        if not why:
            return
        self.close()
        self._detach()
        self.memory.trim()
        log.warning("%s: unloaded", why)
        self._set_state("asleep", f"{why}; the next request loads the model again")
        if idle:
            self.on_idle()

    def _detach(self) -> None:
        """Drop every reference to the model."""
        self.completer, self._clear_caches, self._before_unload = None, lambda: None, lambda: None
        self._ran_out_again, self._altered, self._ran_out_s = False, False, float("-inf")

    @property
    def _may_retry(self) -> bool:
        """True when a load has succeeded before and the last failure is long enough ago."""
        return self._loaded_before and self._clock() - self._failed_s >= RETRY_S

    def _reload(self) -> None:
        """Load again for a request."""
        self._set_state("asleep", "waking up")
        self._load_model()

    def _recover_memory(self) -> None:
        """Memory ran out in a request: clear the caches, and unload soon if the last time is less than CALM_S ago."""
        self._ran_out = False
        self._ran_out_again = self._ran_out_again or self._clock() - self._ran_out_s < CALM_S
        self._ran_out_s = self._clock()
        self._clear_caches()
        self.memory.trim()
        log.warning("memory ran out in a request: the caches are cleared")
