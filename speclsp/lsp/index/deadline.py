"""Point in time after which a search returns what it has. The clock is a parameter, so a test decides what is late."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time, in seconds of `clock`."""

    at_s: float
    clock: Callable[[], float] = perf_counter

    @classmethod
    def after_ms(cls, patience_ms: float, clock: Callable[[], float] = perf_counter) -> Deadline:
        """The deadline in `patience_ms` from now."""
        return cls(clock() + patience_ms / 1000, clock)

    def passed(self) -> bool:
        return self.clock() > self.at_s

    def left_s(self) -> float:
        return self.at_s - self.clock()


NEVER = Deadline(math.inf)
