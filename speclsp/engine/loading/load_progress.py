"""Progress of loading: shares of the whole, and the steps of fetching weights in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Progress = Callable[[float, str], None]  # fraction done 0..1, description of the step


def share(progress: Progress, start: float, end: float) -> Progress:
    """A Progress that maps 0..1 to `start`..`end` of another."""
    return lambda fraction, message: progress(start + (end - start) * fraction, message)


STAGES = {"fetch": "fetching", "check": "checking", "convert": "converting"}


def weights_progress(progress: Progress, start: float, end: float) -> Callable[[Any], None]:
    """Report fetching, checking and converting as `start`..`end` of the whole, with sizes in MB."""

    def report(step: Any) -> None:
        done = step.done_bytes / step.total_bytes if step.total_bytes else 0.0
        sizes = f": {step.done_bytes // 10**6} of {step.total_bytes // 10**6} MB" if step.total_bytes else ""
        progress(start + (end - start) * min(done, 1.0), f"{STAGES.get(step.stage, step.stage)} {step.detail}{sizes}")

    return report
