"""When to leave a server alone: after failures, for a time that doubles, or for as long as it asks.

    closed      requests go through; FAILURES of them in a row, or one that no request could survive, open it
    open        none goes through until the time is up
    half-open   the server has been looked at and seems well: the next failure opens it again, a success closes it

The times are drawn around their mean, so that a thousand editors do not come back in the same second.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

FAILURES = 3
SHORTEST_S, LONGEST_S = 0.5, 30.0
JITTER = 0.25  # a wait is up to so much shorter or longer


class CircuitBreaker:
    """Counts failures; `now` is a clock in seconds."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._now, self._draw = now, draw
        self._failures = 0  # in a row
        self._openings = 0  # since the last success
        self._until: float | None = None

    @property
    def state(self) -> str:
        """ "closed" | "open" | "half-open"."""
        if self._until is not None:
            return "open"
        return "half-open" if self._openings else "closed"

    @property
    def wait_s(self) -> float:
        """How long it stays open."""
        return 0.0 if self._until is None else max(0.0, self._until - self._now())

    def failed(self, at_once: bool = False, wait_s: float | None = None) -> bool:
        """A request has failed; whether it is open now. `wait_s`: what the server asks for: no less is waited."""
        self._failures += 1
        if not at_once and wait_s is None and self._failures < FAILURES and not self._openings:
            return False
        mean_s = min(LONGEST_S, SHORTEST_S * 2 ** min(self._openings, 20))
        self._openings += 1
        drawn_s = mean_s * self._draw(1 - JITTER, 1 + JITTER)
        asked_s = 0.0 if wait_s is None else wait_s + mean_s * self._draw(0, JITTER)
        self._until = self._now() + max(drawn_s, asked_s)
        return True

    def looked_well(self) -> None:
        """The server was looked at, and answers."""
        self._until = None

    def succeeded(self) -> None:
        """A request was answered."""
        self._failures = self._openings = 0
        self._until = None
