"""State of model residency: request activity, load attempts, out-of-memory recovery and the target being read."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from speclsp.engine.scheduling.loaded_model import LoadedModel, PendingTarget


@dataclass(slots=True)
class RequestActivity:
    """Requests as they matter for unloading."""

    idle_s: float  # unload after so long without a request; 0: never
    used_s: float  # the clock when a request last came or was under way
    requested: bool = False  # since the last `maintain`

    def left_s(self, now_s: float) -> float:
        """Time until the model is unloaded."""
        return self.used_s + self.idle_s - now_s if self.idle_s else float("inf")


@dataclass(slots=True)
class LoadAttempts:
    """Loads so far, as they decide whether another may be tried."""

    succeeded: bool = False  # at least once
    failed_s: float = float("-inf")  # the clock at the last failure

    def may_retry(self, now_s: float, wait_s: float) -> bool:
        """True when a load has succeeded before and `wait_s` has passed since the last failure."""
        return self.succeeded and now_s - self.failed_s >= wait_s


@dataclass(slots=True)
class OutOfMemoryRecovery:
    """Recovery after our own memory ran out in a request."""

    reported: bool = False  # since the last `maintain`
    step_due: bool = False  # memory ran out repeatedly: release a step
    calm_at_s: float = float("-inf")  # no step is restored before

    @property
    def recent(self) -> bool:
        """True from the first time until every step is restored."""
        return self.calm_at_s > float("-inf")


class TargetReading:
    """A thread that reads the target while the draft answers alone."""

    def __init__(self, pending: PendingTarget) -> None:
        self._pending: PendingTarget | None = pending
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._read, args=(pending,), name="reading", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> LoadedModel:
        """The whole model; once, in the engine's thread. Raises what the reading raised. Keeps no model alive."""
        pending, self._pending = self._pending, None
        error, self._error = self._error, None
        if error is not None:
            raise error
        assert pending is not None
        return pending.finish()

    def _read(self, pending: PendingTarget) -> None:
        try:
            pending.read()
        except Exception as error:
            self._error = error
