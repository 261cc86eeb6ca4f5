"""Fair round-robin order of requests: rounds alternate between the newest request and the longest-waiting one.

    two      A B A B A B                 nobody is more than one round behind
    four     D A D B D C D A             the newest has every second round, the others share the rest

A new request gets the very next round, unless its session has just had one, or others have already waited for two
rounds of newest requests. With k <= MAX_ACTIVE sessions that submit as fast as they can, nobody waits for more than
3 (k - 1) rounds, nor for more than 2 (k - 1) - 1 while no new request comes. With more sessions, the newest and the
MAX_ACTIVE - 1 oldest have rounds. All requests without a session count as one session: an editor names its own, and a
program that submits many requests at once does not. A prefill-only request has a round only while nobody waits for an
answer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_ACTIVE = 8  # requests; the KV cache has as many slots (kv_cache.MAX_SLOTS), and a further text would evict one


@dataclass(eq=False, slots=True)
class Entrant:
    """A request that wants rounds."""

    session: Hashable  # a session has one current request
    anonymous: bool = False  # its request names no session
    prefill_only: bool = False  # it only reads a prompt ahead of a request
    started: bool = False
    since: int = 0  # the round from which it has waited: its arrival, or its last round
    rounds: int = 0  # so far


AnyEntrant = TypeVar("AnyEntrant", bound=Entrant)


class RoundOrder(Generic[AnyEntrant]):
    """The requests that want rounds, and the decision whose round is next. It does not run rounds."""

    def __init__(self) -> None:
        self.entrants: list[AnyEntrant] = []  # the newest last
        self.round = 0
        self.last_session: Hashable = None  # of the last round
        self.newest_in_a_row = 0  # consecutive rounds of the newest request while others waited
        self.anonymous_since = 0  # the round after the last one of a request without a session

    def join(self, entrant: AnyEntrant, since: int | None = None) -> None:
        """Add `entrant` as the newest. `since`: the round from which an older request of its session has waited."""
        entrant.since = self.round if since is None else since
        self.entrants.append(entrant)

    def next(self) -> AnyEntrant | None:
        """The entrant of the next round, or None."""
        answers = [entrant for entrant in self.entrants if not entrant.prefill_only]
        if not answers:
            return self.entrants[-1] if self.entrants else None
        newest = answers[-1]
        others = sorted(answers[:-1], key=lambda entrant: entrant.anonymous)[: MAX_ACTIVE - 1]
        chosen = newest
        if others:
            behind = min(
                others,
                key=lambda entrant: (self._since(entrant), entrant.session == self.last_session, entrant.since),
            )
            others_waited = self.newest_in_a_row >= (1 if newest.rounds else 2)
            if newest.rounds and self._since(newest) < self._since(behind):
                others_waited = False  # it became the newest when a newer one ended, and has waited longest
            if newest.session == self.last_session or (others_waited and behind.session != self.last_session):
                chosen = behind
        prefills = (
            entrant
            for entrant in self.entrants
            if entrant.prefill_only and entrant.started and entrant.session == chosen.session
        )
        return next(prefills, chosen)  # a prefill that was started for this session is finished first

    def _since(self, entrant: AnyEntrant) -> int:
        """The round from which it has waited; all requests without a session count as one."""
        return max(entrant.since, self.anonymous_since) if entrant.anonymous else entrant.since

    def serve(self, entrant: AnyEntrant) -> None:
        """Record that `entrant` has the next round."""
        answers = [other.session for other in self.entrants if not other.prefill_only]
        contested = any(session != entrant.session for session in answers)
        is_newest = contested and entrant.session == answers[-1]
        self.newest_in_a_row = self.newest_in_a_row + 1 if is_newest else 0
        self.round += 1
        self.last_session = entrant.session
        for other in self.entrants:
            if other.session == entrant.session:
                other.since = self.round
        if entrant.anonymous:
            self.anonymous_since = self.round
        entrant.started = True
        entrant.rounds += 1
