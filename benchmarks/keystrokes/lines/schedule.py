"""Key schedule of a body: texts, times and kinds of its keys. Everything follows from the seed and the body."""

from __future__ import annotations

import math
import random

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.replay_editor import Key

SEED = 38
LINE_START, AFTER_REST, NEW_PLACE = "line start", "after rest", "new place"  # kinds of Enter
BLANK_LINE, MID_LINE = "blank line", "mid-line"  # Enter with a blank line behind it, and every other key
KINDS = (LINE_START, AFTER_REST, NEW_PLACE, BLANK_LINE, MID_LINE)
INTERVAL_MS, INTERVAL_SPREAD = 140, 0.35  # between keys: log-normal, by median and sigma
FASTEST_MS, SLOWEST_MS = 67, 500  # between keys
MAX_PAUSE_MS = 8000
PAUSE_MS, PAUSE_SPREAD = 700, 0.5  # before the first key of a line
REST_MS = 3000
RESTS = 0.2  # share of the line starts with a rest before Enter
MAX_LINES, MAX_TYPING_MS = 12, 46_000  # of a body; it ends with a whole line


def keys_of(body: Body, seed: int = SEED) -> list[Key]:
    """The keys that type a body's first lines at the end of `body.above`. Nothing else is changed."""
    dice = random.Random(f"{seed}-{body.id}")
    keys: list[Key] = []
    cursor, spent_ms, lines, whole = len(body.above), 0, 0, 0
    texts = body.keys
    for at, text in enumerate(texts):
        is_enter, is_first_of_line = text[0] == "\n", at > 0 and texts[at - 1][0] == "\n"
        interval_ms = min(max(dice.lognormvariate(math.log(INTERVAL_MS), INTERVAL_SPREAD), FASTEST_MS), SLOWEST_MS)
        pause_ms = min(dice.lognormvariate(math.log(PAUSE_MS), PAUSE_SPREAD), MAX_PAUSE_MS)
        rests = dice.random() < RESTS
        kind, wait_ms = MID_LINE, pause_ms if is_first_of_line else interval_ms
        if is_enter and at == 0:
            kind, wait_ms = NEW_PLACE, float(REST_MS)
        elif is_enter and at + 1 < len(texts) and texts[at + 1][0] == "\n":
            kind, wait_ms = BLANK_LINE, interval_ms
        elif is_enter and is_first_of_line:
            kind, wait_ms = LINE_START, interval_ms
        elif is_enter:
            kind, wait_ms = (AFTER_REST, float(REST_MS)) if rests else (LINE_START, interval_ms)
        if is_enter:
            lines, whole = lines + 1, len(keys)
        spent_ms += round(wait_ms)
        if lines > MAX_LINES or spent_ms > MAX_TYPING_MS:
            return keys[:whole]
        keys.append(Key(round(wait_ms), kind, cursor, cursor, text, cursor + len(text)))
        cursor += len(text)
    return keys
