"""Result types of loading a model: the completer, its memory-release steps and the part still to be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from speclsp.engine.api import Completer

NO_DRAFT = "no draft"

ReportProgress = Callable[[float, str], None]  # the fraction done (0 to 1) and the current action


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStep:
    """One part of the model's memory that can be released and restored between completions, in the engine's thread."""

    name: str  # the engine's level after the release: "small cache" | "short context" | "shorter context" | NO_DRAFT
    release: Callable[[], None]
    restore: Callable[[], None]
    between_rounds: bool = True  # it can be released while completions are under way
    for_others: bool = True  # False: only when our own memory runs out, because it changes suggestions, not only times


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


class Load(Protocol):
    """Makes the completer in the engine's thread and reports progress. `with_draft` false leaves the draft out."""

    def __call__(self, progress: ReportProgress, with_draft: bool = True, /) -> Completer | LoadedModel: ...
