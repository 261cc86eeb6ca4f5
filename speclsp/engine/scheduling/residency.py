"""State machine of model residency: loading, ok, asleep (unloaded), error; degraded under memory pressure. No torch.

    loading ─────────────► ok ◄───────────► asleep (no request for idle_s: the next request loads again)
       │  └► draft alone ─►│ ▲
       │          │        │ └ full ◄► small cache ◄► no draft ◄► asleep (another program needs the memory: requests
       └────┬─────┘        │                                              are refused until there is room again)
            └► error (why) ◄ a reload that failed: the next request after RETRY_S tries again

The ladder (memory_ladder.py) decides which step is released or restored. When our own memory runs out in a request, a
short context comes before no draft. After the last step the whole model is unloaded, and the next request loads it
again at that level.

When loading the target takes long, the draft is loaded first and answers alone. The target is read beside it in another
thread and takes over between two completions.

Everything that touches a model happens in the engine's one thread (scheduler.py). It calls `maintain` before the first
request, between rounds, and when `next_due_s` has passed. While a completion is under way, `maintain` mostly observes;
a change that needs idle models sets `quiesce_requested`, and no further completion starts. The rest of the process
reads the plain attributes and `refusal`.
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
from speclsp.engine.scheduling.loaded_model import Load, LoadedModel, TargetReading
from speclsp.engine.scheduling.memory_ladder import CHECK_S, NO_DRAFT, UNLOADED, MemoryLadder, Pressure

RETRY_S = 10.0  # after a reload that failed, until the next is tried
NO_ROOM_RETRY_S = 1.0  # the same where there was no room: there may be some at any moment
PAUSE_S = 5.0  # without a request: a moment to load the draft again
QUIESCE_S = 2.0  # for completions to end by themselves when a change needs idle models
POLL_S = 0.05  # between checks of whether the target has been read

log = logging.getLogger("speclsp.engine")


class Residency:
    """Loads, degrades, unloads and reloads the completer."""

    def __init__(
        self,
        load: Load,
        model: str = "",
        *,
        idle_s: float = 0.0,
        min_free_memory_mib: int = 0,
        clock: Callable[[], float] = time.monotonic,
        memory_of: Callable[[str], DeviceMemory] = DeviceMemory,
    ) -> None:
        """`model`: its name until it is loaded. `idle_s`: unload after so long without a request; 0: never.

        `min_free_memory_mib`: the device's memory left to other programs; 0: none.
        """
        self.model = model
        self.state = "loading"  # "loading" | "ok" | "asleep" | "error"
        self.progress = 0.0  # while loading
        self.message = "starting"  # one line: the current action, or why the completer is missing or degraded
        self.reason = self._note = ""  # see LoadedModel
        self.draft_only = False  # while loading: `completer` is the draft alone
        self.adapter: Mapping[str, object] = {}  # see LoadedModel
        self.completer: Completer | None = None
        self.ready_event = threading.Event()  # there is a completer, or an error
        self.on_change: Callable[[], None] = lambda: None  # called in the engine's thread, or the one that reads
        self.on_idle: Callable[[], None] = lambda: None  # called after an unload because no request came
        self.on_device_lost: Callable[[str], None] = lambda why: None  # called when the device no longer answers
        self.quiesce_requested = False  # a change is due that needs idle models
        self.ladder = MemoryLadder(min_free_memory_mib, memory_of)
        self._quiesce_since_s, self._failed_s = float("inf"), float("-inf")  # on the clock, at the last of each
        self._load, self._clock, self._idle_s = load, clock, idle_s
        self._used_s = clock()  # when a request last came or was under way
        self._requested = self._loaded_before = False  # a request since the last `maintain`; a load that succeeded
        self._target_reading: TargetReading | None = None
        self._clear_caches: Callable[[], None] = lambda: None  # see LoadedModel

    # ── for the rest of the process ──────────────────────────────────────────────────────────────────────

    @property
    def memory(self) -> str:
        """Release level: "full" | "small cache" | "short context" | "no draft"."""
        return self.ladder.level

    def refusal(self) -> str:
        """The reason that a request cannot be queued now; "" when it can, and is served or fails in its turn."""
        if self.state == "loading" and self.completer is None and not self._loaded_before:
            return f"the model is loading ({self.progress:.0%}, {self.message}): retry when /health reports ok."
        if self.state in ("error", "asleep") and not self._may_retry:
            return self.message
        return ""

    def note_request(self) -> None:
        """A request was submitted, from any thread."""
        self._used_s, self._requested = self._clock(), True

    def report_out_of_memory(self) -> None:
        """A request has run out of memory: the next `maintain` releases some."""
        self.ladder.recovery.reported = True

    @property
    def force_quiesce(self) -> bool:
        """True when the completions under way have had their time to end and must be cancelled."""
        return self.quiesce_requested and self._clock() - self._quiesce_since_s >= QUIESCE_S

    # ── for the engine's thread ──────────────────────────────────────────────────────────────────────────

    def maintain(self, busy: bool = False) -> None:
        """Make the changes that are due. `busy`: a completion is under way and its models must stay."""
        requested, self._requested = self._requested, False
        if busy:
            self._used_s = self._clock()
        else:
            self.quiesce_requested = False
        try:
            if self.ladder.recovery.reported or self.ladder.recovery.step_due:
                self._recover_memory(busy)
            if self._target_reading is not None:
                self._take_over_target(self._target_reading, busy)
            elif self.state == "loading":
                self._load_model()
            elif self.state == "ok":
                if not busy and self._idle_left_s() <= 0:
                    self._unload()
                    why = f"no request for {self._idle_s / 60:g} min"
                    log.warning("%s: unloaded, %d MiB released", why, self.ladder.reload_mib)
                    self._set_state("asleep", f"{why}; the next request loads the model again")
                    self.on_idle()
                else:
                    self._check_pressure(busy)
            elif self._unloaded_for_others:
                self._check_pressure(busy)
                if requested and self._unloaded_for_others:
                    self._set_state("asleep", self.ladder.unloaded_message(self.ladder.free_mib()))
            elif requested:
                self._wake()
        except Exception as error:  # a device can fail here too; without this thread no request would be answered
            self._fail(error, "keep")

    def request_quiesce(self) -> None:
        """A change needs idle models: completions under way may end within QUIESCE_S, and no other begins."""
        if not self.quiesce_requested:
            self.quiesce_requested, self._quiesce_since_s = True, self._clock()

    def next_due_s(self) -> float | None:
        """Time until a change may be due; None when only a request can bring one."""
        if self._target_reading is not None:
            return POLL_S
        if self.state == "loading":
            return 0.0
        if self.state == "error" or (self.state == "asleep" and not self._unloaded_for_others):
            return None
        due_s = self.ladder.due_s(self._clock())
        if self.state == "ok":
            due_s = min(due_s, self._idle_left_s())
        return None if due_s == float("inf") else max(0.0, due_s)

    def _idle_left_s(self) -> float:
        """Time until the model is unloaded because no request came."""
        return self._used_s + self._idle_s - self._clock() if self._idle_s else float("inf")

    # ── loading ──────────────────────────────────────────────────────────────────────────────────────────

    def _load_model(self, with_draft: bool = True) -> None:
        """Load the whole model, or only the draft, which answers alone while the target is read."""
        try:
            result = self._load(self._report_progress) if with_draft else self._load(self._report_progress, False)
            loaded = result if isinstance(result, LoadedModel) else LoadedModel(completer=result)
            self.reason = loaded.reason
            if loaded.pending_target is None:
                self._attach(loaded)
                return
            self.model, self.completer, self.draft_only = loaded.completer.model, loaded.completer, True
            self._clear_caches = loaded.clear_caches
            self._target_reading = TargetReading(loaded.pending_target)
        except Exception as error:  # the process stays, and /health reports the error
            self._fail(error)
            return
        self.ready_event.set()
        self.on_change()

    def _take_over_target(self, reading: TargetReading, busy: bool) -> None:
        """Replace the draft alone by the whole model, once the target has been read and no completion is under way."""
        if reading.running:
            return
        if busy:
            self.request_quiesce()
            return
        self._target_reading = None
        try:
            self._attach(reading.finish())
        except Exception as error:
            self._fail(error)

    def _attach(self, loaded: LoadedModel) -> None:
        """Use a loaded model: all of it, or all but the steps that are released."""
        self.model, self.completer, self.draft_only = loaded.completer.model, loaded.completer, False
        self._clear_caches, self._note, self.adapter = loaded.clear_caches, loaded.note, loaded.adapter
        if loaded.note:
            log.warning("%s", loaded.note)
        self.ladder.attach(loaded.device, loaded.steps)
        self.ladder.device_memory.trim()  # malloc keeps the buffers of reading: 600 MiB for the 1.5B and its draft
        self._used_s = self._clock()
        self.ladder.next_check_s = self._used_s + CHECK_S
        self._loaded_before = True
        self._set_ok()
        self.ready_event.set()

    def _fail(self, error: Exception, action: str = "load") -> None:
        """Unload everything after a failed `action`. After out of memory the next request may load a smaller model."""
        out_of_memory = self._loaded_before and ran_out_of_memory(error)
        self._detach()
        self.draft_only, self._failed_s = False, self._clock()
        clear_references(error)  # a traceback would keep the loaded tensors in memory
        log.error("could not %s %s: %s", action, self.model or "the model", one_line(error))
        self._target_reading = None
        with suppress(Exception):  # a failed device cannot take anything back
            self.ladder.device_memory.trim()
        if out_of_memory:
            self.ladder.release_all(self._failed_s)
        self._set_state("asleep" if out_of_memory else "error", one_line(error))
        self.ready_event.set()
        if self._loaded_before and (why := self.ladder.device_lost_message(error)):
            self.on_device_lost(why)

    def _report_progress(self, fraction: float, message: str) -> None:
        self.progress = min(1.0, max(0.0, fraction))
        self.message = f"waking up: {message}" if self._loaded_before else message
        self.on_change()

    def _set_state(self, state: str, message: str) -> None:
        self.state, self.message = state, message
        self.on_change()

    def _set_ok(self) -> None:
        self._set_state("ok", self.ladder.degraded_message() or self._note)

    # ── unloading when idle, and waking up ───────────────────────────────────────────────────────────────

    def _unload(self) -> None:
        """Release the whole model, and note its size as what a reload needs."""
        self.ladder.reload_mib = self.ladder.freed_mib(self._detach)

    def _detach(self) -> None:
        """Drop every reference to the models."""
        self.completer, self._clear_caches = None, lambda: None
        self.ladder.detach()

    def _wake(self) -> None:
        """Load again for a request, if other programs leave enough room."""
        if not self._may_retry:
            return
        if self.ladder.yields_to_others:
            free_mib = self.ladder.free_mib()
            if free_mib < self.ladder.reload_mib + self.ladder.pressure.keep_mib:
                self._set_state("asleep", self.ladder.unloaded_message(free_mib))
                return
        self._reload()

    @property
    def _may_retry(self) -> bool:
        """True when a load has succeeded before and the last failure is long enough ago."""
        wait_s = NO_ROOM_RETRY_S if self.state == "asleep" else RETRY_S
        return self._loaded_before and self._clock() - self._failed_s >= wait_s

    def _reload(self) -> None:
        self.progress = 0.0
        self._set_state("loading", "waking up")
        self._load_model(with_draft=NO_DRAFT not in self.ladder.released)

    # ── releasing and restoring one step ─────────────────────────────────────────────────────────────────

    def _release_step(self, why: str, for_others: bool) -> None:
        """Release the next step or the whole model; `why` begins the line of the log."""
        ladder, step = self.ladder, self.ladder.next(for_others)
        if step is None:
            self._unload()
            if for_others:
                ladder.record_release(UNLOADED, ladder.reload_mib)
            name, freed_mib = UNLOADED, ladder.reload_mib
        else:
            try:
                name, freed_mib = step.name, ladder.release(step)
            except Exception as error:  # half released: the rest may not be able to complete
                self._fail(error, f"release memory ({step.name}) of")
                return
        log.warning("%s: %s, %d MiB released", why, name, freed_mib)
        if self.completer is not None:
            self._set_ok()
        elif for_others:
            self._set_state("asleep", ladder.unloaded_message(ladder.free_mib()))
        else:
            self._set_state("asleep", "memory ran out; the next request loads the model again")

    def _recover_memory(self, busy: bool) -> None:
        """Our own memory ran out: clear the caches; if that was not enough last time, release a step when possible."""
        recovery = self.ladder.recovery
        if recovery.reported:
            recovery.begin(self._clock())
            freed_mib = self.ladder.freed_mib(self._clear_caches)
            log.warning("memory ran out in a request: the caches are cleared, %d MiB released", freed_mib)
        if self.state != "ok" or not recovery.step_due:
            recovery.step_due = False  # the draft alone has no steps
            return
        step = self.ladder.next(for_others=False)
        if busy and (step is None or step.changes_text):
            self.request_quiesce()
            return
        recovery.step_due = False
        self._release_step("memory ran out again", for_others=False)

    # ── memory pressure by other programs ────────────────────────────────────────────────────────────────

    @property
    def _unloaded_for_others(self) -> bool:
        """True when the model is unloaded because another program needs the memory."""
        return self.state == "asleep" and self.ladder.unloaded_for_others

    def _check_pressure(self, busy: bool) -> None:
        """Check the device's free memory every CHECK_S; release or restore one step when no completion is under way."""
        if self.ladder.due_s(self._clock()) > 0:
            return
        decision, free_mib = self.ladder.decide(self._clock())
        if decision is not Pressure.HOLD and busy:
            self.request_quiesce()  # the check without a completion decides
            return
        if decision is Pressure.RELEASE:  # the next check shows whether it was enough
            self._release_step(self.ladder.pressure_message(free_mib), for_others=True)
        elif decision is Pressure.RESTORE:
            self._restore(free_mib)
        self.ladder.next_check_s = self._clock() + CHECK_S

    def _restore(self, free_mib: int) -> None:
        """Restore one step, or reload a model that was unloaded for other programs."""
        why = self.ladder.restore_message(free_mib)
        if self._unloaded_for_others:
            self.ladder.record_restore()
            if self._idle_left_s() <= 0:
                log.warning("%s: the next request loads the model", why)
                self._set_state("asleep", f"{why}; the next request loads the model again")
            else:
                log.warning("%s: loading", why)
                self._reload()
            return
        if self.ladder.level == NO_DRAFT and self._clock() - self._used_s < PAUSE_S:
            return  # reading the draft model takes seconds, in which a request would wait: not while the user types
        if self.ladder.restore(self._clock()):
            log.warning("%s: back to %s", why, self.memory)
            self._set_ok()
