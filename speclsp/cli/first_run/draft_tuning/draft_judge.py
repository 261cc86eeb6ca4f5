"""Judge of a tuned draft head: decoding with the head before tuning, or with none, and after it, at held-out places.

    place ─► the product's decoding, n-grams and head, before and after in turns ─► tokens per millisecond ─► verdict

A round counts as long as the median round with the same drafter and number of guesses, of both heads: their passes are
the same work. So the load of the machine cannot decide. The interval is a paired bootstrap over the places.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from speclsp.cli import measure as rounds
from speclsp.engine.api import Piece, Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.policy import MeasuredPolicy
from speclsp.engine.model.int8.draft_head import DraftHead
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.errors import EngineError

MOST_PLACES, LEAST_PLACES = 64, 8
LEAST_GAIN = 1.02  # of tokens per millisecond; below it a head is not worth its file
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class JudgedHead:
    """A head, or None: n-grams alone; with a policy of its own, which learns from place to place."""

    head: DraftHead | None
    policy: MeasuredPolicy


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

    def rates(self) -> list[tuple[float, float, float, float]]:
        """For each place (tokens, ms) before, and (tokens, ms) after."""
        usual_ms = usual_times(piece for place in self.places for side in (place.before, place.after) for piece in side)
        return [(*cost(place.before, usual_ms), *cost(place.after, usual_ms)) for place in self.places]

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
        """True if decoding is faster by more than LEAST_GAIN, and beyond the noise."""
        return len(self.places) >= LEAST_PLACES and self.gain() >= LEAST_GAIN and self.interval()[0] > 1.0

    def facts(self) -> dict[str, Any]:
        """The figures as JSON."""
        files = len({place.path for place in self.places})
        if not self.places:
            return {"places": 0, "files": 0}
        sides = {
            side: {
                "head_acceptance": round(rounds.drafting(pieces, "head").alpha, 4),
                "tokens_per_round": round(sum(len(piece.tokens) for piece in pieces) / max(len(pieces), 1), 3),
                "ms_per_token": ms_per_token(self.rates(), side),
            }
            for side in ("before", "after")
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
        if number == MOST_PLACES or stop(number):
            break
        runs: dict[int, rounds.Run] = {}
        for turn in (0, 1) if number % 2 == 0 else (1, 0):
            head = heads[turn].head
            engine.head, engine.policy = head, heads[turn].policy
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


def usual_times(pieces: Iterable[Piece]) -> dict[tuple[str, int], float]:
    """The median milliseconds of a round, by its drafter and its number of guesses."""
    times: dict[tuple[str, int], list[float]] = {}
    for piece in pieces:
        times.setdefault((piece.source, piece.drafted), []).append(piece.ms)
    return {kind: median(values) for kind, values in times.items()}


def cost(pieces: Sequence[Piece], usual_ms: dict[tuple[str, int], float]) -> tuple[float, float]:
    """(tokens, milliseconds) of a completion's rounds."""
    return float(sum(len(piece.tokens) for piece in pieces)), sum(
        usual_ms[piece.source, piece.drafted] for piece in pieces
    )


def ratio(rates: Sequence[tuple[float, float, float, float]]) -> float:
    """Tokens per millisecond after tuning over those before."""
    totals: list[float] = [sum(column) for column in zip(*rates, strict=True)]
    before_tokens, before_ms, after_tokens, after_ms = totals
    return (after_tokens / max(after_ms, 1e-9)) / max(before_tokens / max(before_ms, 1e-9), 1e-9)


def ms_per_token(rates: Sequence[tuple[float, float, float, float]], side: str) -> float:
    """Milliseconds of a token over all places; `side`: "before" or "after"."""
    at = 0 if side == "before" else 2
    return round(sum(rate[at + 1] for rate in rates) / max(sum(rate[at] for rate in rates), 1.0), 2)
