"""What loading hands over: a completer, what of it can be given back, and what is still to be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from speclsp.engine.api import Completer

NO_DRAFT = "no draft"

Tell = Callable[[float, str], None]  # progress: the fraction done, what is being done


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStep:
    """Something that can be given back, and taken again between completions; in the engine's thread."""

    name: str  # how the engine is then: "small cache" | "short context" | "shorter context" | NO_DRAFT
    give: Callable[[], None]
    take: Callable[[], None]
    between_rounds: bool = True  # whether it can be given while completions are under way
    for_others: bool = True  # or only when our own memory runs out: it costs what is suggested, and not only time


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What is still missing while the draft answers alone."""

    read: Callable[[], None]  # in a thread of its own
    finish: Callable[[], LoadedModel]  # then, in the engine's thread


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A completer with what there is to know about the memory it takes."""

    completer: Completer
    device: str = ""  # whose memory: "cpu" or torch's name; "": it takes none to speak of
    steps: tuple[ReleaseStep, ...] = ()  # what can be given back, the least missed first; after them all of it
    empty: Callable[[], None] = lambda: None  # forget every text that was read, and give back what that takes
    rest: Rest | None = None  # `completer` is the draft alone


class Load(Protocol):
    """Makes the completer, in the engine's thread, telling its progress; without the draft where that is not wanted."""

    def __call__(self, progress: Tell, with_draft: bool = True, /) -> Completer | LoadedModel: ...
