"""Judge of a tuned draft: the draft before and after tuning, in turns, at places of held-out files.

    place ─┬─► the draft alone, ALONE_GAMMA guesses a round         ─► acceptance, tokens a round
           └─► the product's own decoding, n-grams and draft model  ─► tokens per millisecond ─► verdict

A round counts as long as the median round with the same drafter and number of guesses, of both drafts: their passes
are the same work, because an adapter is merged when it loads. So the load of the machine cannot decide. The interval
is a paired bootstrap over the places.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from speclsp.cli import measure as rounds
from speclsp.engine.api import Piece, Request
from speclsp.errors import EngineError

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.decoding.fused_round import FusedRound
    from speclsp.engine.decoding.policy import MeasuredPolicy
    from speclsp.engine.model.kv_cache import CachedModel

ALONE_GAMMA = 4
MOST_PLACES, LEAST_PLACES = 64, 8
LEAST_GAIN = 1.02  # of tokens per millisecond; below it an adapter is not worth its file
RESAMPLES = 2000
ALONE, PRODUCT = "draft alone", "as decoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedDraft:
    """A draft model that an engine can use, with a policy of its own, which learns from place to place."""

    decoder: CachedModel
    policy: MeasuredPolicy
    fused: FusedRound | None = None


@dataclass(frozen=True, slots=True)
class JudgedPlace:
    """The rounds at one place, by way of decoding: of the draft before tuning, and after it."""

    path: str
    before: Mapping[str, Sequence[Piece]]
    after: Mapping[str, Sequence[Piece]]


@dataclass(slots=True)
class Judgement:
    """Figures over all places."""

    places: list[JudgedPlace] = field(default_factory=list)

    @property
    def files(self) -> int:
        return len({place.path for place in self.places})

    def drafting(self, side: str, way: str = ALONE) -> rounds.Drafting:
        """Counts of the draft model's rounds; `side`: "before" or "after"."""
        return rounds.drafting((piece for place in self.places for piece in getattr(place, side)[way]), "model")

    def rates(self, way: str) -> list[tuple[float, float, float, float]]:
        """For each place (tokens, ms) before, and (tokens, ms) after."""
        sides = [side for place in self.places for side in (place.before, place.after)]
        usual_ms = usual_times(piece for side in sides for piece in side[way])
        return [(*cost(place.before[way], usual_ms), *cost(place.after[way], usual_ms)) for place in self.places]

    def gain(self, way: str = PRODUCT) -> float:
        """Tokens per millisecond after tuning over those before."""
        return ratio(self.rates(way))

    def interval(self, way: str = PRODUCT) -> tuple[float, float]:
        """The 95 % interval of the gain: places drawn with replacement, the same draws on every machine."""
        rates, draw = self.rates(way), random.Random(0)
        gains = sorted(ratio(draw.choices(rates, k=len(rates))) for _ in range(RESAMPLES))
        return rounds.quantile(gains, 0.025), rounds.quantile(gains, 0.975)

    @property
    def pays(self) -> bool:
        """True if decoding is faster by more than LEAST_GAIN, and beyond the noise."""
        return len(self.places) >= LEAST_PLACES and self.gain() >= LEAST_GAIN and self.interval()[0] > 1.0

    def facts(self) -> dict[str, Any]:
        """The figures as JSON."""
        if not self.places:
            return {"places": 0, "files": 0}
        sides = {}
        for side in ("before", "after"):
            alone, decoded = self.drafting(side), self.drafting(side, PRODUCT)
            alone_ms, decoded_ms = (ms_per_token(self.rates(way), side) for way in (ALONE, PRODUCT))
            sides[side] = {
                "draft_alone": {
                    "acceptance": round(alone.alpha, 4), "judged_tokens": alone.judged, "rounds": alone.rounds,
                    "tokens_per_round": round(alone.tokens_per_round, 3), "ms_per_token": alone_ms,
                },
                "as_decoded": {
                    "draft_rounds": decoded.rounds, "acceptance": round(decoded.alpha, 4),
                    "ms_per_token": decoded_ms,
                },
            }  # fmt: skip
        gains = {
            name: {"gain": round(self.gain(way), 4), "interval": [round(end, 4) for end in self.interval(way)]}
            for name, way in (("draft_alone", ALONE), ("as_decoded", PRODUCT))
        }
        return {"places": len(self.places), "files": self.files, **sides, "tokens_per_ms": gains, "pays": self.pays}


def judge(
    engine: CompletionEngine,
    drafts: tuple[JudgedDraft, JudgedDraft],
    requests: Iterator[tuple[str, Request]],
    stop: Callable[[], bool],
    cancel: threading.Event,
    show: Callable[[int], None] = lambda places: None,
) -> Judgement:
    """Judge (the draft before tuning, the draft after it) at each place until `stop` answers True.

    Raises:
        EngineError: a text differs. Speculation never changes it, so this is an error of the engine.
    """
    judgement = Judgement()
    for number, (path, request) in enumerate(requests):
        if number == MOST_PLACES or stop():
            break
        turns = (0, 1) if number % 2 == 0 else (1, 0)
        runs: list[dict[str, rounds.Run]] = [{}, {}]
        for way in (ALONE, PRODUCT):
            for turn in turns:
                runs[turn][way] = run_with(engine, drafts[turn], request, way, cancel)
                if cancel.is_set():
                    return judgement
        texts = {run.result.text for side in runs for run in side.values()}
        if len(texts) > 1:
            raise EngineError(
                f"{path} was completed with {len(texts)} different texts, and speculation must not change any: the "
                "adapter is not kept. `speclsp verify` checks your last suggestions; please report this."
            )
        before, after = ({way: run.rounds for way, run in side.items()} for side in runs)
        judgement.places.append(JudgedPlace(path, before, after))
        show(len(judgement.places))
    return judgement


def run_with(
    engine: CompletionEngine, draft: JudgedDraft, request: Request, way: str, cancel: threading.Event
) -> rounds.Run:
    """One completion with this draft. The first run of a way reads the prompt, which is no part of its rounds."""
    engine.draft_decoder, engine.fused, engine.policy = draft.decoder, draft.fused, draft.policy
    alone = replace(request, sources=("model",), gamma=ALONE_GAMMA)
    if way == ALONE:
        rounds.run(engine, replace(alone, max_tokens=2), cancel)  # the draft reads the prompt too
        return rounds.run(engine, alone, cancel)
    return rounds.run(engine, request, cancel)


def kind_of(piece: Piece) -> tuple[str, int]:
    """The kind of a round: its drafter and its number of guesses."""
    return piece.source, piece.drafted


def usual_times(pieces: Iterable[Piece]) -> dict[tuple[str, int], float]:
    """The median milliseconds of each kind of round."""
    times: dict[tuple[str, int], list[float]] = {}
    for piece in pieces:
        times.setdefault(kind_of(piece), []).append(piece.ms)
    return {kind: median(values) for kind, values in times.items()}


def cost(pieces: Sequence[Piece], usual_ms: dict[tuple[str, int], float]) -> tuple[float, float]:
    """(tokens, milliseconds) of a completion's rounds."""
    return float(sum(len(piece.tokens) for piece in pieces)), sum(usual_ms[kind_of(piece)] for piece in pieces)


def ratio(rates: Sequence[tuple[float, float, float, float]]) -> float:
    """Tokens per millisecond after tuning over those before."""
    totals: list[float] = [sum(column) for column in zip(*rates, strict=True)]
    before_tokens, before_ms, after_tokens, after_ms = totals
    return (after_tokens / max(after_ms, 1e-9)) / max(before_tokens / max(before_ms, 1e-9), 1e-9)


def ms_per_token(rates: Sequence[tuple[float, float, float, float]], side: str) -> float:
    """Milliseconds of a token over all places; `side`: "before" or "after"."""
    at = 0 if side == "before" else 2
    return round(sum(rate[at + 1] for rate in rates) / max(sum(rate[at] for rate in rates), 1.0), 2)
