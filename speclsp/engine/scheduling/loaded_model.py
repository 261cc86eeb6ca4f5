"""Result types of loading a model: the completer, and the target that is read in another thread meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from speclsp.engine.api import Completer
from speclsp.engine.scheduling.memory_ladder import ReleaseStep

ReportProgress = Callable[[float, str], None]  # the fraction done (0 to 1) and the current action


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTarget:
    """The target model that is still to be read while the draft answers alone."""

    read: Callable[[], None]  # in a thread of its own
    finish: Callable[[], LoadedModel]  # afterwards, in the engine's thread


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A completer and the facts about the memory it takes."""

    completer: Completer
    device: str = ""  # whose memory it takes: "cpu" or torch's name of a GPU; "": next to none
    steps: tuple[ReleaseStep, ...] = ()  # in the order of release; after the last one the whole model is unloaded
    clear_caches: Callable[[], None] = lambda: None  # forget every prompt that was read, and release its memory
    reason: str = ""  # of "auto" for this model, in sentences; "" for a model chosen by name
    note: str = ""  # for the user while the model runs: why an adapter is not used
    adapter: Mapping[str, object] = field(default_factory=dict)  # the target's, for /health; empty: none
    pending_target: PendingTarget | None = None  # set: `completer` is the draft alone


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


class Load(Protocol):
    """Makes the completer in the engine's thread and reports progress. `with_draft` false leaves the draft out."""

    def __call__(self, progress: ReportProgress, with_draft: bool = True, /) -> Completer | LoadedModel: ...
