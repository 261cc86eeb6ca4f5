"""Memory-pressure hysteresis: decides when to release memory for other programs and when to restore it.

    free < keep                                    release one step; the next check may release another
    free >= keep + the step's size, for WAIT_S     restore one step
    otherwise                                      hold

Releasing is immediate, restoring takes WAIT_S. A step is restored only where its memory is free beyond the reserve, so
a release cannot trigger a restore or the reverse. This module only decides: device_memory.py measures, residency.py
acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

CHECK_S = 2.0  # between two checks of the free memory
WAIT_S = 30.0  # there must be room for so long before a step is restored


class Pressure(Enum):
    """The decision of one check."""

    RELEASE = "release"
    HOLD = "hold"
    RESTORE = "restore"


@dataclass(slots=True)
class MemoryPressure:
    """The release level and the time since there is room to restore the last step. Level 0: nothing is released.

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
