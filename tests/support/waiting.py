"""Polling for a condition with a generous bound: `becomes_true` returns a bool, `wait_until` fails the test."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 180.0  # the bound only stops a wait for something that never happens; machines may be busy
POLL_S = 0.005


def becomes_true(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    """Poll until `condition()` is true; False after `timeout_s`."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(POLL_S)
    return True


def wait_until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Poll until `condition()` is true; fail after `timeout_s`."""
    assert becomes_true(condition, timeout_s), f"not true after {timeout_s:.0f} s"
