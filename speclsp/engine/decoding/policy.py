"""Draft-length control: chooses the drafter and the draft length γ from measured costs and acceptance rates.

A round with γ guesses of acceptance α yields  τ = (1 - α^(γ+1)) / (1 - α)  tokens (arXiv 2211.17192, equation 1) and
costs  γ·draft + verify(γ+1)  milliseconds. The policy takes the source and γ with the most tokens per millisecond;
γ = 0, a plain step, is one of the choices. Costs are measured once on a machine, kept, and refreshed by served rounds.
Acceptance begins at the drafter's own prior and is learned from each round, by source and by the strength of the
source's match. It is slowly forgotten, so that a source which stopped paying is tried again later.

Guesses from the text differ: after accepted ones the match is longer, and the next is accepted more often (0.37 after
one matching token, 0.92 after eight). So their α is kept by the length of the match, and 1 + α1 + α1·α2 + … replaces
τ. A guess counts only if the suggestion is still wanted there: the editor stops most suggestions after a line or a
block. A text that is repeated ended where it was wanted, so guesses from it need no such discount. γ has no other limit
than the rows of a pass: a long match gets a long draft.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from speclsp.engine.decoding.drafters import NO_PRIOR, Drafter, Guess, ModelDrafter, Pick, Prior
from speclsp.engine.model.kv_cache import MAX_GAMMA, CachedModel
from speclsp.engine.model.model_shape import PREFILL_TOKENS, ROWS

USUAL_TOKENS = 24  # few completions in an editor are longer, even if more is allowed
MAX_MODEL_GAMMA = 16  # each guess of a drafter that computes costs a pass of its own
PRIOR_GUESSES = 4.0  # weight of the prior, in draft tokens
SERVED_WEIGHT = 1 / 24  # of a served pass in the logarithm of a measured time
MEMORY_GUESSES = 120.0  # guesses older than about the last 120 are forgotten


@dataclass(slots=True, kw_only=True)
class Costs:
    """Time of a pass on this machine, in milliseconds."""

    verify_ms: dict[int, float]  # by rows
    prefill_ms: float = 0.0  # of one prompt token, by the target
    guess_ms: Mapping[str, float] = field(default_factory=dict)  # of a guess, by the source that computes it
    missing_ms: Mapping[str, float] = field(default_factory=dict)  # of one prompt token that a source lacks

    def guess(self, source: str) -> float:
        """A guess of a source that computes; 0 if it was not measured."""
        return self.guess_ms.get(source, 0.0)

    def learn_verify(self, rows: int, ms: float) -> None:
        """Move the time of the measured width nearest to `rows` towards a served pass, by 3 % at most."""
        width = min(self.verify_ms, key=lambda measured: abs(measured - rows))
        known_ms = self.verify(rows)
        factor = min(max(ms / known_ms, 0.5), 2.0) if known_ms > 0 else 1.0
        self.verify_ms = {**self.verify_ms, width: self.verify_ms[width] * factor**SERVED_WEIGHT}

    def verify(self, rows: int) -> float:
        """A target pass of that many rows: interpolated between measured ones, or extrapolated beyond the last."""
        widths = sorted(self.verify_ms)
        if rows <= widths[0] or len(widths) == 1:
            return self.verify_ms[widths[0]]
        right = min(bisect.bisect_left(widths, rows), len(widths) - 1)
        low, high = widths[right - 1], widths[right]
        slope = (self.verify_ms[high] - self.verify_ms[low]) / (high - low)
        return self.verify_ms[low] + max(slope, 0.0) * (rows - low)


WIDTHS = (
    1,
    ROWS,
    ROWS + 1,
    2 * ROWS,
    2 * ROWS + 1,
    3 * ROWS,
    8 * ROWS,
)  # rows of the measured passes: kernels process rows by 8 or by 16


@dataclass(slots=True)
class Acceptance:
    """The acceptance rate of one kind of guess: a running estimate that starts at a prior and forgets slowly."""

    prior: float
    accepted: float = 0.0
    tried: float = 0.0

    @property
    def alpha(self) -> float:
        return (self.prior * PRIOR_GUESSES + self.accepted) / (PRIOR_GUESSES + self.tried)

    def learn(self, accepted: bool) -> None:
        """Count one verified guess."""
        keep = 1.0 - 1.0 / MEMORY_GUESSES
        self.accepted = self.accepted * keep + accepted
        self.tried = self.tried * keep + 1.0

    def fade(self) -> None:
        """Move slightly towards the prior: once per completion, so that an excluded source is tried again."""
        self.accepted *= 0.98
        self.tried *= 0.98


@dataclass(slots=True)
class MeasuredPolicy:
    """The policy that the module's docstring describes.

    Args:
        costs: of this machine.
        max_gamma: the most guesses in a round; MAX_MODEL_GAMMA is the most of a draft model.
        usual_tokens: mean length of a suggestion as the editor uses it.
    """

    costs: Costs
    max_gamma: int = MAX_GAMMA
    usual_tokens: float = USUAL_TOKENS
    acceptances: dict[tuple[str, int], Acceptance] = field(default_factory=dict)
    priors: dict[str, Prior] = field(default_factory=dict)  # of the drafters so far, by source

    def start(self) -> None:
        """Begin a completion: fade all estimates."""
        for acceptance in self.acceptances.values():
            acceptance.fade()

    def acceptance(self, source: str, strength: int) -> Acceptance:
        """The estimate for a source at a match strength; strengths between two of its prior use the lower one."""
        alphas = self.priors.get(source, NO_PRIOR).alphas
        level = max((s for s in alphas if s <= strength), default=min(alphas))
        return self.acceptances.setdefault((source, level), Acceptance(alphas[level]))

    def guess(self, drafters: Sequence[Drafter], ids: Sequence[int], room: int, pick: Pick) -> tuple[str, Guess]:
        most = min(room, self.max_gamma)
        self.priors.update((drafter.source, drafter.prior) for drafter in drafters)
        best_source, best, best_rate = "", Guess([]), 1.0 / self.costs.verify(1)
        for drafter in drafters:
            if drafter.is_free and most > 0:
                offer = drafter.propose(ids, most, pick)
                expected = self.expected(drafter.source, offer.strength, len(offer.tokens))
                for gamma, tokens in enumerate(expected, 1):
                    rate = tokens / self.costs.verify(gamma + 1)
                    if rate > best_rate:
                        best_source, best, best_rate = drafter.source, offer._replace(tokens=offer.tokens[:gamma]), rate
        for drafter in drafters:
            if not drafter.is_free and most > 0:
                gamma = self.computed_gamma(drafter, ids, room, best_rate)
                if gamma and (offer := drafter.propose(ids, gamma, pick)).tokens:
                    return drafter.source, offer
        return best_source, best

    def expected(self, source: str, strength: int, most: int) -> Iterator[float]:
        """The expected tokens of a round with 1, 2, ... `most` guesses."""
        wanted, tokens = 1.0, 1.0  # probability that a guess is reached and wanted; expected tokens
        ends_as_wanted = self.priors.get(source, NO_PRIOR).ends_as_wanted
        goes_on = 1.0 if ends_as_wanted else 1.0 - 1.0 / self.usual_tokens
        for depth in range(most):
            wanted *= goes_on * self.acceptance(source, strength + depth).alpha
            tokens += wanted
            yield tokens

    def computed_gamma(self, drafter: Drafter, ids: Sequence[int], room: int, best_rate: float) -> int:
        """The draft length for a drafter that computes; 0 if it cannot beat `best_rate` tokens per ms.

        Tokens missing from its cache must be computed first. That cost is spread over the rounds still expected, so a
        short completion with a cold draft cache is left to the free sources.
        """
        source, prior, missing = drafter.source, drafter.prior, drafter.missing(ids)
        if self.acceptance(source, 0).alpha < prior.least_alpha:
            return 0
        left = min(room + 1, USUAL_TOKENS)
        best_gamma, best_rate = 0, best_rate * prior.margin
        most = min(room, self.max_gamma, MAX_MODEL_GAMMA)
        for gamma, tokens in enumerate(self.expected(source, 0, most), 1):
            rounds_left = max(1.0, left / tokens)
            catch_up_ms = missing * self.costs.missing_ms.get(source, 0.0) / rounds_left
            rate = tokens / (gamma * self.costs.guess(source) + self.costs.verify(gamma + 1) + catch_up_ms)
            if rate > best_rate:
                best_gamma, best_rate = gamma, rate
        return best_gamma

    def learn(self, source: str, strength: int, drafted: int, accepted: int, verify_ms: float = 0.0) -> None:
        if verify_ms:
            self.costs.learn_verify(drafted + 1, verify_ms)
        for depth in range(min(accepted + 1, drafted)):  # guesses after the first rejected one were never verified
            self.acceptance(source, strength + depth).learn(depth < accepted)


@dataclass(slots=True)
class FixedPolicy:
    """γ guesses from the first drafter that has any: for experiments, and for tests of every γ."""

    gamma: int

    def guess(self, drafters: Sequence[Drafter], ids: Sequence[int], room: int, pick: Pick) -> tuple[str, Guess]:
        for drafter in drafters:
            offer = drafter.propose(ids, min(self.gamma, room), pick)
            if offer.tokens:
                return drafter.source, offer
        return "", Guess([])

    def learn(self, source: str, strength: int, drafted: int, accepted: int, verify_ms: float = 0.0) -> None:
        """Does nothing."""


def measure(target: CachedModel, draft: CachedModel | None = None, repeats: int = 3) -> Costs:
    """Time both models' passes on this machine, over a cache of a few hundred tokens; the fastest of `repeats`.

    Other programs only slow a pass. No pass counts as slower than a measured one of more rows.

    This is also the warm-up: kernels are chosen and memory is touched here, not in the first completion.
    """
    context = [1 + i % 100 for i in range(min(2 * PREFILL_TOKENS, target.context_tokens - WIDTHS[-1] - 1))]

    def timed(decoder: CachedModel, tokens: int) -> float:
        times = []
        for _ in range(repeats if tokens < WIDTHS[-1] else 1):  # the widest takes about twice as long as the next
            decoder.rewind(len(context))
            began_s = perf_counter()
            decoder.forward(context[:1] * tokens)
            times.append((perf_counter() - began_s) * 1e3)
        return min(times)

    def prefill(decoder: CachedModel) -> float:
        decoder.catch_up(context)  # cold: kernels are chosen here
        decoder.rewind(0)
        began_s = perf_counter()
        decoder.catch_up(context)
        return (perf_counter() - began_s) * 1e3 / len(context)

    prefill_ms, verify_ms = prefill(target), {rows: timed(target, rows) for rows in WIDTHS}
    verify_ms = {rows: min(ms for wider, ms in verify_ms.items() if wider >= rows) for rows in WIDTHS}
    costs = Costs(prefill_ms=prefill_ms, verify_ms=verify_ms)
    if draft is not None:
        costs.missing_ms = {ModelDrafter.source: prefill(draft)}
        costs.guess_ms = {ModelDrafter.source: timed(draft, 1)}
        draft.rewind(0)
    target.rewind(0)
    return costs
