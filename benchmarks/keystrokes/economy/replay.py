"""Walk of a simulated person through a body, over a recording, and the counts of it.

The screen follows the product. A shown suggestion stays while the keys agree with it, and no policy is asked again. A
hidden one is judged again at every key. What is left of a suggestion after a part of it was taken stays as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.clock import ACCEPTED_MS, PAUSE_MS, waits_ms
from benchmarks.keystrokes.economy.person import NOTHING, Keyboard, Person, accept, right_length, right_lines
from benchmarks.keystrokes.economy.recording import Recording

Row = dict[str, Any]
Policy = Callable[[Sequence[Row], int], int]  # characters of the candidate at a position that are shown


class Screen(NamedTuple):
    """The suggestion at a position, and the time until it is there."""

    text: str
    ready_ms: float = 0.0


ScreenAt = Callable[[int, str], Screen]  # (position, the suggestion that still agrees, or ""): what is shown


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
    pauses: int = 0
    pauses_shown: int = 0  # pauses at which a suggestion stood
    pauses_right: int = 0  # of these, with the right first line
    pauses_hidden: int = 0  # pauses at which a candidate with the right first line was hidden


def walk(body: Body, screen_at: ScreenAt, person: Person, candidates: Sequence[str] = ()) -> Counts:
    """Type a body.

    Args:
        candidates: of each position, to count the right ones that are hidden; () if they are not known.
    """
    keys, keyboard, waits = body.keys, Keyboard.of(body.text), waits_ms(body)
    counts = Counts(keys=keyboard.keys, characters=len(body.text))
    position, screen, accepted = 0, "", False
    while True:
        offset = keyboard.ends[position]
        meant = body.text[offset:]
        wait_ms = max(waits[position], ACCEPTED_MS) if accepted else waits[position]
        agreeing, (screen, ready_ms) = screen, screen_at(position, screen)
        if ready_ms > wait_ms:
            screen = ""  # the next key comes first
        is_right = bool(right_lines(screen, meant))
        if screen and not (agreeing and screen.startswith(agreeing)):  # lines that join it make no other suggestion
            counts.shown += 1
            counts.first_line_right += is_right
            counts.wrong += not is_right
        is_pause = wait_ms >= PAUSE_MS and position < keyboard.keys
        if is_pause:
            counts.pauses += 1
            counts.pauses_shown += bool(screen)
            counts.pauses_right += is_right
            counts.pauses_hidden += not screen and bool(candidates) and bool(right_lines(candidates[position], meant))
        looks = is_pause or not person.at_pauses
        taken = accept(screen, meant, keyboard, offset, person) if screen and looks else NOTHING
        if taken is not NOTHING:
            counts.pressed += taken.keys
            counts.stay += taken.characters
            position, screen = keyboard.position(offset + taken.characters), screen[taken.characters :]
            accepted = True
        elif position == keyboard.keys:
            return counts
        else:
            key = keys[position]
            counts.pressed += 1
            position += 1
            screen = screen[len(key) :] if right_length(screen, key) == len(key) else ""
            accepted = False


def replay(recording: Recording, policy: Policy, person: Person, speed: float = 0.0) -> Counts:
    """Type a body over its recording, under a policy.

    Args:
        speed: of the machine, as a multiple of the one that recorded; 0: every suggestion is there at once.
    """
    rows = recording.rows
    ready_ms = ready_times_ms(recording, speed) if speed else [0.0] * len(rows)

    def screen_at(position: int, screen: str) -> Screen:
        if screen:
            return Screen(screen)
        return Screen(rows[position]["text"][: policy(rows, position)], ready_ms[position])

    return walk(recording.body, screen_at, person, [row["text"] for row in rows])


def ready_times_ms(recording: Recording, speed: float) -> list[float]:
    """The time until each candidate is there, from its key on.

    A candidate that the keys agree with has its time from the key at which it began.
    """
    waits, times = waits_ms(recording.body), []
    left_ms = 0.0
    for row, wait_ms in zip(recording.rows, waits, strict=True):
        if not row.get("typed"):
            left_ms = row["ms"] / speed
        times.append(left_ms)
        left_ms = max(0.0, left_ms - wait_ms)
    return times
