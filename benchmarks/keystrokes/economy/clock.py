"""Clock of the simulated person: the wait before each key of a body, and the places where the person pauses.

Intervals are log-normal. Their medians are assumed, not fitted to people: the first key of a line comes after a pause,
and so does a key behind an opening bracket, an operator or a dot. Everything follows from the seed and the body.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from benchmarks.keystrokes.economy.bodies import SEED, Body

PAUSE_MS = 300.0  # a person reads a suggestion that is shown for at least this long
LINE_MS, ARGUMENT_MS, KEY_MS = (700, 0.5), (300, 0.5), (140, 0.35)  # medians and sigmas of log-normal intervals
ACCEPTED_MS = 700.0  # after an acceptance, which is always followed by a pause
OPENERS, OPERATORS = ("(", "[", "{", "."), ("=", ",", ":", "+", "<", ">", "&", "|")


def waits_ms(body: Body) -> list[float]:
    """The wait at each position of a body: before its first key, and after each key. 0 behind the last one."""
    dice = random.Random(f"{SEED}-{body.id}")
    keys = body.keys
    waits = []
    for position in range(len(keys)):
        median_ms, spread = interval_of(keys, position)
        waits.append(dice.lognormvariate(math.log(median_ms), spread))
    return [*waits, 0.0]


def interval_of(keys: Sequence[str], position: int) -> tuple[int, float]:
    """The median and the sigma of the wait at a position, by the keys before it."""
    key, before = keys[position - 1] if position else "", keys[position - 2] if position > 1 else ""
    if key.startswith("\n"):
        return LINE_MS
    return ARGUMENT_MS if key in OPENERS or (key == " " and before in OPERATORS) else KEY_MS
