"""Memory ladder of a loaded model: steps that release memory, the decision to take one, their restoration. No torch.

    full ─► small cache ─► short context ─► no draft ─► unloaded

The order is by what is missed least. Another program's need skips the short context, because that changes suggestions
and not only times. Restoring goes in the reverse order, whichever need released a step.

    another program's need                                  our own: a request ran out of memory
    free < keep               release one step              the first time: forget the cached prompts
    free >= keep + the step   restore it after WAIT_S       again within CALM_S: release one step
    otherwise                 hold                          none for CALM_S: restore one step

Releasing is immediate. A step is restored only where its memory is free beyond the reserve, so a release cannot trigger
a restore or the reverse. This module decides; device_memory.py measures, residency.py loads and unloads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from speclsp.engine.scheduling.device_errors import clear_references, is_device_failure, one_line
from speclsp.engine.scheduling.device_memory import DeviceMemory

FULL, SMALL_CACHE, SHORT_CONTEXT, NO_DRAFT = "full", "small cache", "short context", "no draft"
UNLOADED = "unloaded"  # the last step, for another program's sake
CHECK_S = 2.0  # between two checks of the free memory
WAIT_S = 30.0  # there must be room for so long before a step is restored
CALM_S = 60.0  # without running out of memory, before one step is restored

log = logging.getLogger("speclsp.engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStep:
    """One part of the model's memory that can be released and restored between completions, in the engine's thread."""

    name: str  # the engine's level after the release: SMALL_CACHE | SHORT_CONTEXT | NO_DRAFT
    release: Callable[[], None]
    restore: Callable[[], None]
    changes_text: bool = False  # it changes suggestions: only for our own need, and while no completion is under way


class Pressure(Enum):
    """The decision of one check."""

    RELEASE = "release"
    HOLD = "hold"
    RESTORE = "restore"


@dataclass(slots=True)
class MemoryPressure:
    """Hysteresis of other programs' need: the released steps and the time since there is room to restore the last one.

    Args:
        keep_mib: memory that stays free for other programs.
        steps: number of steps.
    """

    keep_mib: int
    steps: int
    released_mib: list[int] = field(default_factory=list)  # by each step, the first one first
    roomy_since_s: float | None = None  # since then there has been room to restore the last step

    @property
    def level(self) -> int:
        """Number of released steps."""
        return len(self.released_mib)

    def decide(self, now_s: float, free_mib: int) -> Pressure:
        """The decision for one check of the device's free memory."""
        if free_mib < self.keep_mib:
            self.roomy_since_s = None
            return Pressure.RELEASE if self.level < self.steps else Pressure.HOLD
        if not self.released_mib or free_mib < self.keep_mib + self.released_mib[-1]:
            self.roomy_since_s = None
            return Pressure.HOLD
        if self.roomy_since_s is None:
            self.roomy_since_s = now_s
        return Pressure.RESTORE if now_s - self.roomy_since_s >= WAIT_S else Pressure.HOLD

    def released(self, mib: int) -> None:
        """One more step was released and freed `mib`."""
        self.released_mib.append(max(0, mib))

    def restored(self) -> None:
        """The last step was restored."""
        self.released_mib.pop()
        self.roomy_since_s = None

    def restore_failed(self) -> None:
        """The last step could not be restored: wait for WAIT_S again."""
        self.roomy_since_s = None

    def calibrate(self, free_mib: int) -> None:
        """Lower the reserve after loading left `free_mib`: our own weights are not another program's need.

        Where less than `keep_mib` is left, only a further fall, by half, counts as another program's.
        """
        if free_mib < self.keep_mib:
            self.keep_mib = min(self.keep_mib, free_mib // 2)


@dataclass(slots=True)
class OutOfMemoryRecovery:
    """Our own need: recovery after memory ran out in a request."""

    reported: bool = False  # since the last `begin`
    step_due: bool = False  # memory ran out again within CALM_S: release a step
    calm_at_s: float = float("-inf")  # no step is restored before

    @property
    def recent(self) -> bool:
        """True from the first time until every step is restored."""
        return self.calm_at_s > float("-inf")

    def begin(self, now_s: float) -> None:
        """Decide after a report: the first time no step is due, again within CALM_S one is."""
        self.reported, self.step_due, self.calm_at_s = False, now_s < self.calm_at_s, now_s + CALM_S


class MemoryLadder:
    """The steps of the loaded model, and the names of the released ones, which outlive the model itself.

    Args:
        min_free_memory_mib: memory left to other programs; 0: none.
        memory_of: the memory of a device, by its name.
    """

    def __init__(self, min_free_memory_mib: int, memory_of: Callable[[str], DeviceMemory] = DeviceMemory) -> None:
        self.device = ""  # "": it takes none to speak of, or its free memory cannot be read
        self.device_memory = memory_of("cpu")
        self.pressure = MemoryPressure(min_free_memory_mib, steps=1)
        self.recovery = OutOfMemoryRecovery()
        self.released: list[str] = []  # the last one last
        self.reload_mib = 0  # loading again needs as much as unloading freed
        self.next_check_s = 0.0  # of the device's free memory
        self._memory_of = memory_of
        self._steps: dict[str, ReleaseStep] = {}  # by name
        self._names: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """Name of the last released step; FULL when nothing is released."""
        return next((name for name in reversed(self.released) if name != UNLOADED), FULL)

    @property
    def unloaded_for_others(self) -> bool:
        """True when the whole model was released for another program."""
        return self.released[-1:] == [UNLOADED]

    @property
    def yields_to_others(self) -> bool:
        """True when it takes memory that other programs may need, and is to leave some of it free."""
        return bool(self.device) and self.pressure.keep_mib > 0

    @property
    def device_name(self) -> str:
        """The device's memory in words."""
        return "main memory" if self.device == "cpu" else "the GPU's memory"

    def free_mib(self) -> int:
        """Memory that other programs could have now. Where it cannot be read, nothing is released for them."""
        try:
            return self.device_memory.free_mib()
        except Exception as error:  # a driver's, a system's
            log.error("cannot read the free amount of %s: %s", self.device_name, one_line(error))
            self.device = ""
            return 2**30

    def device_lost_message(self, error: BaseException) -> str:
        """The message for a device that no longer answers; "" when `error` does not mean that."""
        if not is_device_failure(error) or self.device_memory.works():
            return ""
        return (
            f"{self.device or 'the device'} no longer responds ({type(error).__name__}): the engine ends, "
            "and the next client starts another one."
        )

    # ── loading and unloading ────────────────────────────────────────────────────────────────────────────

    def attach(self, device: str, steps: Sequence[ReleaseStep]) -> None:
        """Take over a freshly loaded model and release again the steps that were released before."""
        self.device = device
        self.device_memory = self._memory_of(device or "cpu")
        self._steps = {step.name: step for step in steps}  # not always the same: a GPU may be fuller now
        self._names = tuple(self._steps)
        sizes = zip(self.released, self.pressure.released_mib, strict=True)
        kept = [(name, mib) for name, mib in sizes if name in self._steps]
        self.released, self.pressure.released_mib = [name for name, _ in kept], [mib for _, mib in kept]
        self.pressure.steps = len(self._steps) + 1
        for name in self.released:
            if name != NO_DRAFT:  # it was loaded without the draft
                self._steps[name].release()
        if self.yields_to_others:
            self.pressure.calibrate(self.free_mib())

    def detach(self) -> None:
        """Forget the steps of a model that is being unloaded; the names of the released ones stay."""
        self._steps = {}

    def freed_mib(self, action: Callable[[], None]) -> int:
        """Run `action`, return unused memory to the system, and measure the MiB that this freed."""
        before_mib = self.device_memory.held_mib()
        action()
        self.device_memory.trim()
        return max(0, before_mib - self.device_memory.held_mib())

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────

    def due_s(self, now_s: float) -> float:
        """Time until the next check of the free memory; infinite when none is needed."""
        return self.next_check_s - now_s if self.yields_to_others or self.released else float("inf")

    def decide(self, now_s: float) -> tuple[Pressure, int]:
        """The change that the free memory calls for, and that memory; without a reserve, every step is restored."""
        free_mib = self.free_mib() if self.yields_to_others else 0
        if self.yields_to_others:
            decision = self.pressure.decide(now_s, free_mib)
        else:
            decision = Pressure.RESTORE if self.released else Pressure.HOLD
        nothing_left = decision is Pressure.RELEASE and self.unloaded_for_others
        too_soon = decision is Pressure.RESTORE and now_s < self.recovery.calm_at_s
        return Pressure.HOLD if nothing_left or too_soon else decision, free_mib

    def next(self, for_others: bool) -> ReleaseStep | None:
        """The next step to release; None: the whole model."""
        remaining = [step for step in self._steps.values() if step.name not in self.released]
        return next((step for step in remaining if not (step.changes_text and for_others)), None)

    # ── release and restore ──────────────────────────────────────────────────────────────────────────────

    def release(self, step: ReleaseStep) -> int:
        """Release a step: the freed MiB. Raises what the step raises; it is then half released."""
        freed_mib = self.freed_mib(step.release)
        self.record_release(step.name, freed_mib)
        return freed_mib

    def record_release(self, name: str, mib: int) -> None:
        """A step was released and freed `mib`."""
        self.released.append(name)
        self.pressure.released(mib)

    def release_all(self, now_s: float) -> None:
        """Count every step as released after a load without room: the next load starts with the smallest memory."""
        self.recovery.calm_at_s = now_s + CALM_S
        for name in self._names:
            if name not in self.released:
                self.record_release(name, 0)

    def restore(self, now_s: float) -> bool:
        """Restore the last released step; False when that failed, and the step stays released."""
        step = self._steps[self.released[-1]]
        try:
            step.restore()
        except Exception as error:
            log.error("could not restore the released memory (%s): %s", step.name, one_line(error))
            clear_references(error)
            self.pressure.restore_failed()
            restored = False
        else:
            self.record_restore()
            restored = True
        self.device_memory.trim()  # the buffers of reading, and no collection walks over the new objects in mid-request
        if self.recovery.recent:
            self.recovery.calm_at_s = now_s + CALM_S if self.released else float("-inf")
        return restored

    def record_restore(self) -> None:
        """The last released step is restored."""
        self.released.pop()
        self.pressure.restored()

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────

    def degraded_message(self) -> str:
        """The reason that the model runs with less memory; "" when it does not."""
        if not self.released:
            return ""
        if self.recovery.recent:
            return f"memory ran out: {self.level}"
        return f"another program needs {self.device_name}: {self.level}"

    def pressure_message(self, free_mib: int) -> str:
        """The reason to release a step for other programs."""
        return (
            f"another program needs memory ({free_mib} MiB of {self.device_name} were free, the reserve is "
            f"{self.pressure.keep_mib})"
        )

    def restore_message(self, free_mib: int) -> str:
        """The reason to restore a step."""
        if not self.yields_to_others:
            return f"memory has not run out for {CALM_S:.0f} s"
        return f"memory is free again ({free_mib} MiB of {self.device_name} are free)"

    def unloaded_message(self, free_mib: int) -> str:
        """The reason that the model is unloaded for other programs, and the memory that it needs."""
        keep_mib = self.pressure.keep_mib
        if free_mib >= self.reload_mib + keep_mib:
            return (
                "unloaded for other programs; memory is free again, and the model reloads if it stays free for "
                f"{WAIT_S:.0f} s"
            )
        return (
            f"unloaded, because other programs need memory: {free_mib} MiB of {self.device_name} are free, the model "
            f"needs {self.reload_mib} and {keep_mib} stay free for others. Close other programs, set a "
            "smaller model (`speclsp models list`), or lower engine.min_free_memory_mib."
        )
