"""The typed story: keys at a human rate, pauses to read, and the file in which they are typed.

A story contains keys only. All other text in the pictures comes from the model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, Protocol

import psutil

from speclsp.errors import InputError

PAIR = "qwen2.5-coder-0.5b-instruct"
FILE = "inventory.py"
INVENTORY = """from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price_cents: int
    count: int


def find(items: list[Item], name: str) -> Item | None:
    for item in items:
        if item.name == name:
            return item
    return None


def total_value(items: list[Item]) -> int:
    return sum(item.price_cents * item.count for item in items)


"""
KEY_S = (0.07, 0.17)  # between two keys: 100 words a minute on average
PATIENCE_S = 20.0  # for one suggestion
QUIET_PERCENT, QUIET_S, QUIET_PATIENCE_S = 20.0, 3, 600  # of all cores' time, before a recording starts
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Step:
    """One action of the person."""

    action: Literal["type", "press", "read", "pause"]
    text: str = ""  # the characters to type, or the name of the key: "Tab", "Enter", "Outdent"
    seconds: float = 0.0  # `read`: after the suggestion is on the screen


WARM_UP = (Step("type", "LIMIT"), Step("pause", seconds=1.0))  # the first request of a new engine is slow
METHODS = """from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price_cents: int
    count: int = 0


class Inventory:
    def __init__(self) -> None:
        self.items: dict[str, Item] = {}

    def add(self, item: Item) -> None:
        self.items[item.name] = item

    def total_count(self) -> int:
        return sum(item.count for item in self.items.values())

"""
DEMO = (  # at the end of METHODS: two methods, each accepted in two suggestions
    Step("pause", seconds=0.2),
    Step("type", "    def find"),
    Step("read", seconds=0.7),
    Step("press", "Tab"),
    Step("pause", seconds=0.3),
    Step("press", "Enter"),
    Step("read", seconds=0.7),
    Step("press", "Tab"),
    Step("pause", seconds=0.2),
    Step("press", "Enter"),
    Step("press", "Outdent"),
    Step("press", "Enter"),
    Step("press", "Outdent"),  # an editor may indent the line by itself
    Step("type", "    def remove"),
    Step("read", seconds=0.7),
    Step("press", "Tab"),
    Step("press", "Enter"),
    Step("read", seconds=1.0),
    Step("press", "Tab"),
    Step("pause", seconds=1.0),
)
SIGNATURE = "def restock(items: list[Item], name: str, count: int) -> None:\n"

RENAMED_FIELD = """from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price_cents: int
    count: int


def total_value(items: list[Item]) -> int:
    return sum(item.price_cents * item.count for item in items)


def is_available(item: Item) -> bool:
    return item.count > 0


def restock(item: Item, more: int) -> None:
    item.count += more


def sold_out(items: list[Item]) -> list[str]:
    return [item.name for item in items if item.count == 0]
"""


def word_changed(old: str, new: str) -> tuple[Step, ...]:
    """The steps of a person in Neovim who changes the next such word."""
    return (
        Step("pause", seconds=0.4),
        Step("type", f"/{old}"),
        Step("press", "Enter"),
        Step("pause", seconds=0.2),
        Step("type", f"cw{new}"),
        Step("press", "Esc"),
    )


RENAME_TWICE = (  # by hand in Neovim
    *word_changed("count", "quantity"),
    Step("pause", seconds=0.3),
    Step("type", "n"),
    Step("pause", seconds=0.3),
    Step("type", "."),
)
RENAMED_PARAMETER = '''MAX_SIDE = 2.4
WOOD_PRICE, GLASS_PRICE = 12.5, 38.0


def frame_price(width: float, height: float) -> float:
    """The price of a picture frame with its glass.

    width: of the picture, in metres
    """
    length = 2 * (width + height)
    if width > MAX_SIDE or height > MAX_SIDE:
        raise ValueError(f"no frame is {width} m wide")

    glass = width * height * GLASS_PRICE
    return length * WOOD_PRICE + glass


def label(text: str, width: int) -> str:
    return text.center(width, "-")
'''
WALK = (Step("read", seconds=0.75), Step("press", "Tab"), Step("pause", seconds=0.35))
RENAME = (  # once, by hand in Neovim; then Tab jumps to the first place and accepts it and four more
    *word_changed("width", "breadth"),
    *WALK * 6,
    Step("pause", seconds=1.4),
)


class Hand(Protocol):
    """The keyboard and the eyes of a person at one editor."""

    def type(self, character: str) -> None: ...

    def press(self, key: str) -> None: ...

    def suggested(self) -> bool:
        """True while the screen shows a suggestion."""

    def sleep(self, seconds: float) -> None: ...


def typed(text: str) -> tuple[Step, ...]:
    """A story of one text, up to the suggestion after it."""
    return Step("type", text), Step("read", seconds=1.0)


def play(hand: Hand, story: tuple[Step, ...], seed: int = 1) -> None:
    """Perform the steps. Raises InputError when a suggestion does not come."""
    rhythm = random.Random(seed)
    for number, step in enumerate(story):
        if step.action == "type":
            for character in step.text:
                hand.type(character)
                hand.sleep(rhythm.uniform(*KEY_S))
        elif step.action == "press":
            hand.press(step.text)
            hand.sleep(rhythm.uniform(*KEY_S))
        elif step.action == "read":
            wait_for_suggestion(hand, number)
            hand.sleep(step.seconds)
        else:
            hand.sleep(step.seconds)


def wait_for_suggestion(hand: Hand, number: int) -> None:
    for _ in range(round(PATIENCE_S / POLL_S)):
        if hand.suggested():
            return
        hand.sleep(POLL_S)
    raise InputError(f"step {number} of the story had no suggestion within {PATIENCE_S:.0f} s. Change its text.")


def wait_until_quiet(hand: Hand) -> None:
    """Wait until other programs leave the processor idle, so that they do not delay a suggestion."""
    psutil.cpu_percent()
    quiet_s = 0
    for _ in range(QUIET_PATIENCE_S):
        hand.sleep(1.0)
        busy = psutil.cpu_percent() > QUIET_PERCENT
        quiet_s = 0 if busy else quiet_s + 1
        if quiet_s == QUIET_S:
            return
    raise InputError(
        f"the processor was busy for {QUIET_PATIENCE_S // 60} minutes. Close other programs, then record again."
    )
