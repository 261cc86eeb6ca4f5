"""Errors for users: each message says what is wrong, the value, and the fix.

A class that is not in this file is defined where it is raised. The message is one line, fit for a terminal, a status
bar or a log; no traceback is ever shown for one of these.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path

MAX_MESSAGE = 1000  # characters of a message from another process; ours are shorter, so their fix is never cut


class SpeclspError(Exception):
    """Something a person can act on; `str(error)` says how."""


class ConfigError(SpeclspError):
    """A setting that is unknown, or whose value is not one it can have."""

    def __init__(self, key: str, value: object, wanted: str) -> None:
        super().__init__(f"{key} = {value!r} is not valid: expected {wanted}.")
        self.key = key


class UnknownModel(SpeclspError):
    """A model was named that has no card."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        near = nearest(name, known)
        hint = f"did you mean {near!r}? " if near else ""
        super().__init__(f"unknown model {name!r}: {hint}`speclsp models list` shows all.")


class WeightsError(SpeclspError):
    """Weights are missing, altered, or cannot be fetched."""


class TokenizerMismatch(SpeclspError):
    """Draft and target would not mean the same text by the same token."""


class OutOfMemory(SpeclspError):
    """The chosen models do not fit on the device.

    `smaller`: a model that fits; "" when none does. `limit_fix`: of process_resources.Memory.
    """

    def __init__(
        self, model: str, need_mib: int, free_mib: int, device: str, smaller: str, limit_fix: str = ""
    ) -> None:
        fix = memory_fix(smaller, limit_fix)
        super().__init__(
            f"{model} needs {need_mib} MiB and {device} has {free_mib} MiB free. {fix[0].upper()}{fix[1:]}"
        )


def memory_fix(smaller: str, limit_fix: str = "") -> str:
    """The sentence with the ways out of a lack of memory, for `OutOfMemory`'s arguments."""
    second = f', or set model = "{smaller}"' if smaller else "; no smaller model fits now"
    return f"{limit_fix or 'close other programs'}{second} (`speclsp models list` shows all)."


class InputError(SpeclspError):
    """A file, position or request that cannot be completed."""


class InvalidLogits(SpeclspError):
    """The logits of a position have no finite maximum: no token can be chosen from them."""

    def __init__(self, position: int, highest: float) -> None:
        """`position`: of the token, counted from the prompt's start; `highest`: NaN, or an infinity."""
        super().__init__(
            f"the highest logit for token {position} is {highest}, so no token was chosen: the weights are damaged, "
            "or their number format overflows. `speclsp models verify` checks them, and `speclsp models pull` repairs "
            "them; otherwise set another engine.quantization."
        )


class EngineError(SpeclspError):
    """The engine did not start, or went away."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None when none is close."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)), None)


def shortened(text: str, most_characters: int) -> str:
    """`text` in one line, at most that long: cut between two words, and an ellipsis marks the cut."""
    line = " ".join(text.split())
    if len(line) <= most_characters:
        return line
    head = line[: most_characters - 2]
    word = head.rfind(" ")
    return f"{(head[:word] if word > most_characters // 2 else head).rstrip()} …"


def error_site(error: BaseException) -> str:
    """The type of an unexpected error and the line that raised it, for a log: "KeyError at scheduler.py:120".

    The error's message is left out, because it may quote a user's source text.
    """
    frames = traceback.extract_tb(error.__traceback__)
    site = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__ + site
