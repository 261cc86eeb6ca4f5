"""Judge of a tuned draft head: decoding with the head before tuning, or with none, and after it, at held-out places.

    place ─► the product's decoding, n-grams and head, before and after in turns ─► tokens per millisecond ─► verdict

A round counts as long as the median round with the same drafter and number of guesses, of both heads: their passes are
the same work. So the load of the machine cannot decide. The interval is a paired bootstrap over the places.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from speclsp.cli import measure as rounds
from speclsp.engine.api import Piece, Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.policy import MeasuredPolicy
from speclsp.engine.model.int8.draft_head import DraftHead
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.errors import EngineError

MAX_PLACES, MIN_PLACES = 64, 8
MIN_GAIN = 1.02  # of tokens per millisecond; below it a head is not worth its file
RESAMPLES = 2000


BEFORE, AFTER = 0, 2  # positions of the tokens in Rates
Rates = tuple[float, float, float, float]  # tokens and ms before, tokens and ms after
JudgedHead = tuple[DraftHead | None, MeasuredPolicy]  # None: n-grams alone; the policy learns from place to place


@dataclass(frozen=True, slots=True)
class JudgedPlace:
    """The rounds at one place, before tuning and after it."""

    path: str
    before: Sequence[Piece]
    after: Sequence[Piece]


@dataclass(slots=True)
class Judgement:
    """Figures over all places."""

    places: list[JudgedPlace] = field(default_factory=list)

    def rates(self) -> list[Rates]:
        """The rates of each place."""
        pieces = [piece for place in self.places for piece in (*place.before, *place.after)]
        usual_ms = rounds.usual_ms(pieces, lambda piece: (piece.source, piece.drafted))

        def cost(side: Sequence[Piece]) -> tuple[int, float]:
            return sum(len(p.tokens) for p in side), sum(usual_ms[p.source, p.drafted] for p in side)

        return [(*cost(place.before), *cost(place.after)) for place in self.places]

    def gain(self) -> float:
        """Tokens per millisecond after tuning over those before."""
        return ratio(self.rates())

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the gain: places drawn with replacement, the same draws on every machine."""
        rates, draw = self.rates(), random.Random(0)
        gains = sorted(ratio(draw.choices(rates, k=len(rates))) for _ in range(RESAMPLES))
        return rounds.quantile(gains, 0.025), rounds.quantile(gains, 0.975)

    @property
    def pays(self) -> bool:
        """True if decoding is faster by more than MIN_GAIN, and beyond the noise."""
        return len(self.places) >= MIN_PLACES and self.gain() >= MIN_GAIN and self.interval()[0] > 1.0

    def facts(self) -> dict[str, Any]:
        """The figures as JSON."""
        files = len({place.path for place in self.places})
        if not self.places:
            return {"places": 0, "files": 0}
        sides = {
            side: {
                "head_acceptance": round(rounds.drafting(pieces, "head").alpha, 4),
                "tokens_per_round": round(sum(len(piece.tokens) for piece in pieces) / max(len(pieces), 1), 3),
                "ms_per_token": round(ms_per_token(self.rates(), at), 2),
            }
            for side, at in (("before", BEFORE), ("after", AFTER))
            for pieces in [[piece for place in self.places for piece in getattr(place, side)]]
        }
        gain, interval = round(self.gain(), 4), [round(end, 4) for end in self.interval()]
        return {"places": len(self.places), "files": files, **sides, "gain": gain, "interval": interval}


def judge(
    engine: CompletionEngine,
    target: NativeDecoder,
    heads: tuple[JudgedHead, JudgedHead],
    requests: Iterator[tuple[str, Request]],
    stop: Callable[[int], bool],
    cancel: threading.Event,
) -> Judgement:
    """Judge (the head before tuning, the head after it) at each place until `stop`, of their number, answers True.

    Raises:
        EngineError: a text differs. Speculation never changes it, so this is an error of the engine.
    """
    judgement = Judgement()
    for number, (path, request) in enumerate(requests):
        if number == MAX_PLACES or stop(number):
            break
        runs: dict[int, rounds.Run] = {}
        for turn in (0, 1) if number % 2 == 0 else (1, 0):
            head, engine.policy = heads[turn]
            engine.head = head
            head.open() if head is not None else target.detach()
            runs[turn] = rounds.run(engine, request, cancel)
            if cancel.is_set():
                return judgement
        if runs[0].result.text != runs[1].result.text:
            raise EngineError(
                f"{path} was completed with two different texts, and speculation must not change any: the head is not "
                "kept. `speclsp verify` checks your last suggestions; please report this."
            )
        judgement.places.append(JudgedPlace(path, runs[0].rounds, runs[1].rounds))
    return judgement


def ms_per_token(rates: Sequence[Rates], at: int) -> float:
    """Milliseconds of a token over all places; `at`: BEFORE or AFTER."""
    return sum(rate[at + 1] for rate in rates) / max(sum(rate[at] for rate in rates), 1.0)


def ratio(rates: Sequence[Rates]) -> float:
    """Tokens per millisecond after tuning over those before."""
    return ms_per_token(rates, BEFORE) / max(ms_per_token(rates, AFTER), 1e-9)
