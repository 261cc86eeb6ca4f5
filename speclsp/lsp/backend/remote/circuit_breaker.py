"""Circuit breaker: stops requests to a failing server, for a time that doubles, or for as long as the server asks.

    closed      requests go through; FAILURES in a row, or one that every request would repeat, open it
    open        no request goes through until the time is up
    half-open   a probe of the server succeeded: the next failure opens it again, a success closes it

The times have jitter, so that a thousand editors do not return in the same second.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

FAILURES = 3
MIN_S, MAX_S = 0.5, 30.0
JITTER = 0.25  # share by which a wait is shorter or longer at most


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
    def wait_s(self) -> float:
        """Time for which it stays open."""
        return 0.0 if self._until is None else max(0.0, self._until - self._now())

    def record_failure(self, at_once: bool = False, wait_s: float | None = None) -> bool:
        """Count a failed request; whether the breaker is open now.

        `wait_s`: the server's Retry-After, a lower bound of the wait.
        """
        self._failures += 1
        if not at_once and wait_s is None and self._failures < FAILURES and not self._openings:
            return False
        mean_s = min(MAX_S, MIN_S * 2 ** min(self._openings, 20))
        self._openings += 1
        backoff_s = mean_s * self._draw(1 - JITTER, 1 + JITTER)
        requested_s = 0.0 if wait_s is None else wait_s + mean_s * self._draw(0, JITTER)
        self._until = self._now() + max(backoff_s, requested_s)
        return True

    def probe_succeeded(self) -> None:
        """The server answers a probe again."""
        self._until = None

    def record_success(self) -> None:
        self._failures = self._openings = 0
        self._until = None
