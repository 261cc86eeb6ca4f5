"""Walk of the simulated person through a body, over a recording or over a live server, and the counts of it.

The screen follows the product. A shown suggestion stays while the keys agree with it, and no policy is asked again. A
hidden one is judged again at every key. What is left of a suggestion after a part of it was taken stays as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.person import NOTHING, Keyboard, accept, right_length, right_lines
from benchmarks.keystrokes.economy.recording import Recording

OPENERS, OPERATORS = ("(", "[", "{", "."), ("=", ",", ":", "+", "<", ">", "&", "|")
PAUSES, AFTER_ACCEPTING, EVERYWHERE = "at pauses", "after accepting", "everywhere"  # where further lines are there
Row = dict[str, Any]
Policy = Callable[[Sequence[Row], int], int]  # (rows of a body, position): characters of its candidate that are shown
Screen = Callable[[int, str], str]  # (position, the suggestion that still agrees, or ""): the suggestion that is shown


@dataclass(slots=True)
class Counts:
    """Counts of one body under one policy."""

    keys: int = 0  # that type the body without suggestions
    pressed: int = 0  # that were pressed
    characters: int = 0  # of the body
    stay: int = 0  # characters of suggestions that were taken; all of them stay
    shown: int = 0
    first_line_right: int = 0  # of the shown
    wrong: int = 0  # shown with a wrong first line
    wrong_but_used: int = 0  # of these, a part was worth taking
    rests: int = 0  # wrong rests that stood on after a part was taken; not counted as shown again
    pauses: int = 0
    pauses_shown: int = 0  # pauses at which a suggestion stood
    pauses_right: int = 0  # of these, with the right first line

    def add(self, other: Counts) -> None:
        """Add the counts of another body."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def walk(body: Body, screen_at: Screen, accepts: bool = True) -> Counts:
    """Type a body; without `accepts`, the person only looks."""
    keys, keyboard = body.keys, Keyboard.of(body.text)
    counts = Counts(keys=keyboard.keys, characters=len(body.text))
    position, screen = 0, ""
    while True:
        offset = keyboard.ends[position]
        meant = body.text[offset:]
        agreeing, screen = screen, screen_at(position, screen)
        taken = accept(screen, meant, keyboard, offset) if screen else NOTHING
        if screen and not (agreeing and screen.startswith(agreeing)):  # lines that join it make no other suggestion
            right = is_right(screen, meant)
            counts.shown += 1
            counts.first_line_right += right
            counts.wrong += not right
            counts.wrong_but_used += not right and taken is not NOTHING
        if is_pause(keys, position):
            counts.pauses += 1
            counts.pauses_shown += bool(screen)
            counts.pauses_right += is_right(screen, meant)
        if accepts and taken is not NOTHING:
            counts.pressed += taken.keys
            counts.stay += taken.characters
            position, screen = keyboard.position(offset + taken.characters), screen[taken.characters :]
            counts.rests += bool(screen) and not is_right(screen, body.text[keyboard.ends[position] :])
        elif position == keyboard.keys:
            return counts
        else:
            key = keys[position]
            counts.pressed += 1
            position += 1
            screen = screen[len(key) :] if right_length(screen, key) == len(key) else ""


def replay(recording: Recording, policy: Policy, accepts: bool = True) -> Counts:
    """Type a body over its recording, under a policy."""
    rows = recording.rows

    def screen_at(position: int, screen: str) -> str:
        return screen or rows[position]["text"][: policy(rows, position)]

    return walk(recording.body, screen_at, accepts)


def replay_joined(
    recording: Recording,
    longer: Recording,
    policy: Policy,
    longer_policy: Policy,
    ways: Collection[str],
    accepts: bool = True,
) -> Counts:
    """Type a body over two recordings: the lines of `longer` join the suggestion of `recording` that they continue.

    Args:
        policy: for `recording`, which is shown first; `longer_policy`: for `longer`.
        ways: where the lines are there: PAUSES, AFTER_ACCEPTING or EVERYWHERE.
    """
    keys, ends = recording.body.keys, Keyboard.of(recording.body.text).ends
    origin = before = 0  # the position at which the suggestion appeared, and the one seen before

    def screen_at(position: int, screen: str) -> str:
        nonlocal origin, before
        is_accepted, before = position > before + 1 and not screen, position
        if not screen:
            origin = position
            screen = recording.rows[position]["text"][: policy(recording.rows, position)]
        where = {EVERYWHERE}
        where |= {PAUSES} if is_pause(keys, position) else set()
        where |= {AFTER_ACCEPTING} if is_accepted else set()
        if not screen or where.isdisjoint(ways):
            return screen
        row = longer.rows[origin]
        joined: str = row["text"][: longer_policy(longer.rows, origin)][ends[position] - ends[origin] :]
        is_line = joined[len(screen) : len(screen) + 1] == "\n" and joined.startswith(screen)
        return joined if is_line and not recording.rows[origin].get("multiline") else screen

    return walk(recording.body, screen_at, accepts)


def is_right(suggestion: str, meant: str) -> bool:
    """True if the first line of a suggestion is the line that follows."""
    return bool(right_lines(suggestion, meant))


def is_pause(keys: Sequence[str], position: int) -> bool:
    """True where a person looks for a suggestion: at a line's start, and after a bracket, an operator or a dot."""
    key, before = keys[position - 1] if position else "", keys[position - 2] if position > 1 else ""
    return key.startswith("\n") or key in OPENERS or (key == " " and before in OPERATORS)
