"""Whose round is next: the newest request's and, in between, that of whoever has waited longest.

    two      A B A B A B                 nobody is more than one round behind
    four     D A D B D C D A             the newest has every second round, the others share the rest

A new request has the very next round, unless its session has just had one, or others have stood back for two already.
So with k <= AT_ONCE sessions asking as fast as they can, nobody waits for more than 3 (k - 1) rounds, nor for more than
2 (k - 1) - 1 while nothing new is asked. Of more, the newest and the AT_ONCE - 1 that came first have rounds. All who
name no session count as one: an editor names its own, and a program that asks for many things at once does not. What
reads ahead of a request has a round only while nobody waits for an answer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

AT_ONCE = 8  # under way; the cache has as many slots (slots.MOST_SLOTS), and a further text would cost another its own


@dataclass(eq=False, slots=True)
class Entrant:
    """Someone who wants rounds."""

    who: Hashable  # a session asks for one thing at a time
    nameless: bool = False  # of no session
    ahead: bool = False  # only reads ahead
    begun: bool = False
    since: int = 0  # the round it has waited from: when it came, or had its last one
    rounds: int = 0  # had so far


Each = TypeVar("Each", bound=Entrant)


class RoundOrder(Generic[Each]):
    """Those who want rounds. It decides, and says nothing about what a round is."""

    def __init__(self) -> None:
        self.entrants: list[Each] = []  # the newest last
        self.round = 0
        self.last: Hashable = None  # whose the last round was
        self.in_focus = 0  # so many rounds in a row were the newest request's while others waited
        self.longest_wait = 0  # in rounds, so far
        self.nameless_since = 0  # the round after the last one that somebody of no session had

    def join(self, entrant: Each, since: int | None = None) -> None:
        """`entrant` is the newest from now on; `since`: what an older request of its session waited from."""
        entrant.since = self.round if since is None else since
        self.entrants.append(entrant)

    def next(self, begun_only: bool = False) -> Each | None:
        """Who should have the next round; with `begun_only` nobody new begins. None when nobody wants it."""
        wanting = [entrant for entrant in self.entrants if entrant.begun or not begun_only]
        answers = [entrant for entrant in wanting if not entrant.ahead]
        if not answers:
            return wanting[-1] if wanting else None
        newest, others = answers[-1], sorted(answers[:-1], key=lambda entrant: entrant.nameless)[: AT_ONCE - 1]
        chosen = newest
        if others:
            behind = min(others, key=lambda entrant: (self._since(entrant), entrant.who == self.last, entrant.since))
            stood_back = self.in_focus >= (1 if newest.rounds else 2)
            if newest.who == self.last or (stood_back and behind.who != self.last):
                chosen = behind
        reading = (entrant for entrant in wanting if entrant.ahead and entrant.begun and entrant.who == chosen.who)
        return next(reading, chosen)  # what was read ahead for it is finished first

    def _since(self, entrant: Each) -> int:
        """From when it has waited, where all who name no session count as one."""
        return max(entrant.since, self.nameless_since) if entrant.nameless else entrant.since

    def serve(self, entrant: Each) -> int:
        """`entrant` has the next round; how many rounds of others it has waited."""
        answers = [other.who for other in self.entrants if not other.ahead]
        contested = any(who != entrant.who for who in answers)
        self.in_focus = self.in_focus + 1 if contested and entrant.who == answers[-1] else 0
        waited = self.round - entrant.since
        self.longest_wait = max(self.longest_wait, 0 if entrant.ahead else waited)
        self.round += 1
        self.last = entrant.who
        for same in self.entrants:
            if same.who == entrant.who:
                same.since = self.round
        if entrant.nameless:
            self.nameless_since = self.round
        entrant.begun = True
        entrant.rounds += 1
        return waited
