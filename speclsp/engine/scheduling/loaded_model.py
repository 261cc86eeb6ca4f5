"""Result types of loading a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from speclsp.engine.api import Completer

ReportProgress = Callable[[float, str], None]  # the fraction done (0 to 1) and the current action


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A completer and the facts about the memory it takes."""

    completer: Completer
    device: str = ""  # whose memory it takes: "cpu" or torch's name of a GPU; "": next to none
    clear_caches: Callable[[], None] = lambda: None  # forget every prompt that was read, and release its memory
    before_unload: Callable[[], None] = lambda: None  # keep what was learned
    reason: str = ""  # of "auto" for this model, in sentences; "" for a model chosen by name
    note: str = ""  # for the user while the model runs: why an adapter is not used
    adapter: Mapping[str, object] = field(default_factory=dict)  # the target's, for /health; empty: none


Load = Callable[[ReportProgress], Completer | LoadedModel]  # makes the completer, in the engine's thread
