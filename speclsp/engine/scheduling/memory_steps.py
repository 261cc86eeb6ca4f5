"""Degradation steps of a loaded model: the device's memory, the released steps, and their restoration. No torch here.

The steps have an order, the least missed first. Another program's need releases only steps that cost nothing but time;
our own need may release all of them. Restoring goes in the reverse order, whichever need released a step.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

from speclsp.engine.scheduling.device_errors import clear_references, is_device_failure, one_line
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.loaded_model import NO_DRAFT, LoadedModel, ReleaseStep
from speclsp.engine.scheduling.memory_pressure import WAIT_S, MemoryPressure, Pressure

UNLOADED = "unloaded"  # the last step, for another program's sake

log = logging.getLogger("speclsp.engine")


class MemorySteps:
    """The steps of the loaded model, and the names of the released ones, which outlive the model itself.

    Args:
        min_free_memory_mib: memory left to other programs; 0: none.
        memory_of: the memory of a device, by its name.
    """

    def __init__(self, min_free_memory_mib: int, memory_of: Callable[[str], DeviceMemory] = DeviceMemory) -> None:
        self.device = ""  # "": it takes none to speak of, or its free memory cannot be read
        self.device_memory = memory_of("cpu")
        self.pressure = MemoryPressure(min_free_memory_mib, steps=1)
        self.steps: dict[str, ReleaseStep] = {}  # by name
        self.released: list[str] = []  # the last one last
        self.reload_mib = 0  # loading again needs as much as unloading freed
        self._memory_of = memory_of
        self._names: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """Name of the last released step; "full" when nothing is released."""
        return next((name for name in reversed(self.released) if name != UNLOADED), "full")

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

    def attach(self, loaded: LoadedModel) -> None:
        """Take over a freshly loaded model and release again the steps that were released before."""
        self.device = loaded.device
        self.device_memory = self._memory_of(loaded.device or "cpu")
        self.steps = {step.name: step for step in loaded.steps}  # not always the same: a GPU may be fuller now
        self._names = tuple(self.steps)
        sizes = zip(self.released, self.pressure.released_mib, strict=True)
        kept = [(name, mib) for name, mib in sizes if name in self.steps]
        self.released, self.pressure.released_mib = [name for name, _ in kept], [mib for _, mib in kept]
        self.pressure.steps = len(self.steps) + 1
        for name in self.released:
            if name != NO_DRAFT:  # it was loaded without the draft
                self.steps[name].release()
        freeze_garbage_collection()
        if self.yields_to_others:
            self.pressure.calibrate(self.free_mib())

    def detach(self) -> None:
        """Forget the steps of a model that is being unloaded; the names of the released ones stay."""
        self.steps = {}

    def freed_mib(self, action: Callable[[], None]) -> int:
        """Run `action`, return unused memory to the system, and measure the MiB that this freed."""
        before_mib = self.device_memory.held_mib()
        action()
        self.device_memory.trim()
        return max(0, before_mib - self.device_memory.held_mib())

    # ── release and restore ──────────────────────────────────────────────────────────────────────────────

    def next(self, for_others: bool) -> ReleaseStep | None:
        """The next step to release; None: the whole model."""
        remaining = [step for step in self.steps.values() if step.name not in self.released]
        return next((step for step in remaining if step.for_others or not for_others), None)

    def record_release(self, name: str, mib: int) -> None:
        """A step was released and freed `mib`."""
        self.released.append(name)
        self.pressure.released(mib)

    def release_all(self) -> None:
        """Count every step as released: the next load starts with the smallest memory."""
        for name in self._names:
            if name not in self.released:
                self.record_release(name, 0)

    def decide(self, now_s: float, free_mib: int) -> Pressure:
        """The change that the free memory calls for; without a reserve for others, it restores every step."""
        if self.yields_to_others:
            return self.pressure.decide(now_s, free_mib)
        return Pressure.RESTORE if self.released else Pressure.HOLD

    def try_restore(self) -> bool:
        """Restore the last released step; False when that failed, and the step stays released."""
        step = self.steps[self.released[-1]]
        try:
            step.restore()
        except Exception as error:
            log.error("could not restore the released memory (%s): %s", step.name, one_line(error))
            clear_references(error)
            self.device_memory.trim()
            self.pressure.restore_failed()
            return False
        self.record_restore()
        freeze_garbage_collection()
        return True

    def record_restore(self) -> None:
        """The last released step is restored."""
        self.released.pop()
        self.pressure.restored()

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────

    def degraded_message(self, own_need: bool) -> str:
        """The reason that the model runs with less memory; "" when it does not. `own_need`: our own memory ran out."""
        if not self.released:
            return ""
        if own_need:
            return f"memory ran out: {self.level}"
        return f"another program needs {self.device_name}: {self.level}"

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


def freeze_garbage_collection() -> None:
    """Exempt the long-lived objects of a load from collection, which must not walk over them in mid-request."""
    gc.collect()
    gc.freeze()
