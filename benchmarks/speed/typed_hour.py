"""Requests of an hour of typing in three windows, sent without the pauses: the caches of an engine reach their bounds.

A window opens a module of the standard library, or returns to one, and types a few lines. Each request is the language
server's own. A part of them are prefills, wait for an idle engine, draw their tokens, or end when a newer key comes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import httpx

from benchmarks.speed.holes import MODULES, source
from speclsp.errors import EngineError
from speclsp.lsp.backend.infill_codec import infill_body, route
from speclsp.lsp.backend.types import FimRequest

WINDOWS = 3
REQUESTS = 900  # one every 4 s
OPENED_PLACES = 6  # to which a window returns
CONTEXT_LINES = (40, 60, 90, 150)  # before the cursor's line, and half as many after it: 300 to 1,900 tokens


@dataclass(frozen=True, slots=True)
class Place:
    """A line to type, in a module."""

    module: str
    lines: list[str]
    number: int
    context_lines: int

    def request(self, typed: str) -> FimRequest:
        """The request after some characters of the line."""
        above = self.lines[max(0, self.number - self.context_lines) : self.number]
        below = self.lines[self.number + 1 : self.number + 1 + self.context_lines // 2]
        extra = (("other.py", "".join(self.lines[:15])),) if self.context_lines % 4 else ()
        return FimRequest(
            prefix="".join(above), line_prefix=typed, suffix="".join(below), path=f"{self.module}.py", extra=extra,
            max_tokens=16, deadline_ms=2000, branches=2,
        )  # fmt: skip


def requests(window: int) -> Iterator[tuple[FimRequest, bool]]:
    """A window's requests, without end. True: the answer is cancelled after its first text."""
    dice, opened = random.Random(window), list[Place]()
    while True:
        if not opened or dice.random() < 0.5:
            module = dice.choice(MODULES)
            lines = source(module).splitlines(keepends=True)
            number = dice.randrange(len(lines) // 4, len(lines) - 4)
            opened = [*opened, Place(module, lines, number, dice.choice(CONTEXT_LINES))][-OPENED_PLACES:]
        place = dice.choice(opened)
        yield replace(place.request(""), max_tokens=0), False
        for number in range(place.number, place.number + dice.randrange(1, 4)):
            line, typed = place.lines[number].rstrip("\n"), 0
            while typed < len(line):
                typed += dice.randrange(1, 9)
                request = replace(place, number=number).request(line[:typed])
                if dice.random() < 0.1:
                    request = replace(request, temperature=0.8, max_tokens=64)
                yield request, dice.random() < 0.35
                if dice.random() < 0.2:
                    yield replace(request, idle=True), False


def type_for_an_hour(http: httpx.Client, count: int = REQUESTS) -> None:
    """Send `count` requests. Raises EngineError."""

    def send_all(window: int) -> None:
        for (request, is_cancelled), _ in zip(requests(window), range(count // WINDOWS), strict=False):
            body = infill_body(replace(request, session=f"window-{window}"))
            with http.stream("POST", route(request), json=body) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise EngineError(f"{route(request)} answered {answer.status_code}: {answer.read()[:300]!r}")
                for line in answer.iter_lines():
                    if is_cancelled and '"content"' in line:
                        break

    with ThreadPoolExecutor(WINDOWS) as windows:
        list(windows.map(send_all, range(WINDOWS)))
