"""Circuit breaker: stops requests to a failing server, for a time that doubles, or for as long as the server asks.

    closed      requests go through; FAILURES in a row, or one that every request would repeat, open it
    open        no request goes through until the pause is over
    half-open   after a pause: the next failure opens it again, a success closes it

The pauses have jitter, so that a thousand editors do not return in the same second.
"""

from __future__ import annotations

import random

FAILURES = 3
MIN_S, MAX_S = 0.5, 30.0
JITTER = 0.25  # share by which a pause is shorter or longer at most


class CircuitBreaker:
    """Counts failures and computes pauses."""

    def __init__(self) -> None:
        self._failures = 0  # in a row
        self._openings = 0  # since the last success

    def record_failure(self, at_once: bool = False, wait_s: float = 0.0) -> float:
        """Count a failed request; seconds for which nothing is sent, 0 while the breaker stays closed.

        `wait_s`: the server's Retry-After, a lower bound of the pause.
        """
        self._failures += 1
        if not at_once and not wait_s and self._failures < FAILURES and not self._openings:
            return 0.0
        mean_s = min(MAX_S, MIN_S * 2.0 ** min(self._openings, 20))
        self._openings += 1
        return max(mean_s * random.uniform(1 - JITTER, 1 + JITTER), wait_s)

    def record_success(self) -> None:
        self._failures = self._openings = 0
