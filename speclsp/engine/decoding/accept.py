"""Acceptance of draft tokens: greedy, coupled and rejection sampling, in the paper's letters.

    p   the target's distribution at a position, after temperature, top-k and top-p      [k+1, vocab] in a round
    q   the distribution a draft model drew from; a drafter without probabilities puts all of q on its token
    x   the drafted token

    greedy      t = argmax p; x is accepted when x = t
    coupled     t = argmax p/e with noise e ~ Exp(1) that depends only on (seed, position); x is accepted
                when x = t. A drafter with the same noise agrees often. The text is that of plain decoding with the
                same seed, for any drafter (Gumbel coupling: arXiv 2408.07978)
    rejection   x is accepted with probability min(1, p(x)/q(x)); the first rejected one is replaced by a draw from
                norm(max(0, p - q)); when all are accepted, one more is drawn from p (arXiv 2211.17192, 2302.01318)

All three return tokens distributed exactly as the target's own. Plain decoding is the case of no drafted tokens.
No token is chosen from logits that contain NaN or plus infinity, nor where all are minus infinity.

Choices from a CPU's logits need NumPy alone. Greedy and coupled choices from a GPU's logits are torch's; rejection
sampling copies them to the host.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from speclsp.engine.api import MIN_TEMPERATURE
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.draws import MAX_SEED, Doubles, Draw, coupled, drawn, weights
from speclsp.engine.model.kv_cache import on_host
from speclsp.errors import InvalidLogits

if TYPE_CHECKING:
    from speclsp.engine.model.kv_cache import Logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Parameters for choosing the next token from the target's logits."""

    temperature: float = 0.0  # below MIN_TEMPERATURE: greedy
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    method: str = "coupled"  # or "rejection"

    @property
    def greedy(self) -> bool:
        return self.temperature < MIN_TEMPERATURE

    @property
    def rejection(self) -> bool:
        return not self.greedy and self.method == "rejection"

    @property
    def draw(self) -> Draw | None:
        """The parameters of coupled draws; None for greedy choices."""
        seed = self.seed & MAX_SEED
        return None if self.greedy else Draw(self.temperature, self.top_k, self.top_p, seed)


class Sampler:
    """Draws tokens for one completion. Rejection sampling has a stream of random numbers; the others have no state."""

    needs_logits = False  # True: a decoder that chooses tokens itself must not

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        if sampling.rejection:
            self.needs_logits = True

    @cached_property
    def stream(self) -> random.Random:
        """The random numbers of rejection sampling; Python keeps them the same for a seed in any version."""
        return random.Random(self.sampling.seed & MAX_SEED)

    def choose(self, logits: Logits, position: int) -> list[int]:
        """The target's own tokens at `position`, `position` + 1, ...: [T, vocab] -> T ids.

        Raises:
            InvalidLogits: no token can be chosen in one of the rows.
        """
        return [self.valid(token, logits, row, position) for row, token in enumerate(self.choices(logits, position))]

    def choices(self, logits: Logits, position: int) -> list[int]:
        """`choose`, with -1 for a row in which no token can be chosen."""
        if self.sampling.rejection or isinstance(logits, np.ndarray):
            return [self.choice(row, position + at) for at, row in enumerate(on_host(logits))]
        import torch

        from speclsp.engine.model.cuda import ops

        # as in a pass that chooses on its device: one implementation draws all tokens of a text
        device = str(logits.device)
        seed = torch.tensor([self.sampling.seed & MAX_SEED], device=device)
        positions = position + torch.arange(len(logits), device=device)
        choice, logprob = ops.choose(logits, None, self.sampling.draw, seed, positions)
        chosen: list[int] = choice.where(logprob.isfinite(), -1).tolist()  # the one wait on the device
        return chosen

    def choice(self, row: Floats, position: int) -> int:
        """The token at `position` from its logits [vocab]; -1 if no token can be chosen."""
        best = int(row.argmax())  # the first of the highest; in a row with NaN, a NaN
        if not math.isfinite(row[best]):
            return -1
        if self.sampling.rejection:
            return drawn(distribution(row, self.sampling), self.stream)
        draw = self.sampling.draw
        return best if draw is None else coupled(row, draw, position)

    def valid(self, token: int, logits: Logits, row: int, position: int) -> int:
        """`token`, the choice in a row of `logits`. Raises InvalidLogits if it is -1."""
        if token < 0:
            raise InvalidLogits(position + row, float(logits[row].max()))
        return token

    def draft(self, logits: Floats, position: int) -> tuple[int, Doubles | None]:
        """A draft model's token at `position` from its logits [vocab], and q when `accept` will need it.

        Raises:
            InvalidLogits: no token can be chosen.
        """
        token = self.choose(logits[None], position)[0]
        return token, distribution(logits, self.sampling) if self.sampling.rejection else None

    def accept(
        self, drafted: Sequence[int], logits: Logits, position: int, q: Sequence[Doubles] | None = None
    ) -> tuple[int, int]:
        """(the number of accepted draft tokens, the token that follows them).

        Args:
            drafted: [k] guesses for `position`, `position` + 1, ...
            logits: [k+1, vocab], the target's, for the same positions and one more.
            q: for each guess the distribution [vocab] that a draft model drew from; None if it has no probabilities.

        Raises:
            InvalidLogits: no token can be chosen in a row up to the one that follows the accepted tokens.
        """
        if self.sampling.rejection:
            rows = on_host(logits)

            def p(row: int) -> Doubles:
                if not math.isfinite(rows[row].max()):  # NaN, if the row has any
                    raise InvalidLogits(position + row, float(rows[row].max()))
                return distribution(rows[row], self.sampling)

            return reject(drafted, p, q, self.stream)
        if not isinstance(logits, np.ndarray):  # one wait on the device, for all rows
            n, token = agree(drafted, self.choices(logits, position))
            return n, self.valid(token, logits, n, position)
        for n, x in enumerate(drafted):  # a row of 150,000 logits is read only if all guesses before it were accepted
            token = self.choose(logits[n : n + 1], position + n)[0]
            if token != x:
                return n, token
        return len(drafted), self.choose(logits[len(drafted) : len(drafted) + 1], position + len(drafted))[0]


def logprobs(logits: Logits, chosen: Sequence[int]) -> tuple[float, ...]:
    """The natural logarithms of p(token) at temperature 1, for a token of each of the first rows of [T, vocab].

    On a CPU one row at a time, so that the values are the same, bit for bit, in any pass.
    """
    if isinstance(logits, np.ndarray):
        return tuple(float(row[token]) - log_sum_exp(row) for row, token in zip(logits, chosen, strict=False))
    import torch

    own = logits[: len(chosen)].float()
    at = torch.tensor(chosen, device=own.device)[:, None]
    values: list[float] = (own.gather(1, at)[:, 0] - own.logsumexp(dim=-1)).tolist()
    return tuple(values)


def log_sum_exp(row: Floats) -> float:
    """log(sum(exp(row))): a logit minus it is the logarithm of the token's probability at temperature 1."""
    with np.errstate(invalid="ignore"):  # the logits may be no numbers; then this is NaN
        highest = row.max()
        return float(highest) + math.log(np.exp(row - highest).sum())


def likeliest(row: Floats, count: int) -> list[int]:
    """The tokens of the `count` highest logits above minus infinity, highest first; among equals, the lower id."""
    count = min(count, len(row))
    least = np.partition(row, len(row) - count)[len(row) - count] if count else math.inf
    tokens = np.flatnonzero((row >= least) & (row > -math.inf))
    ordered: list[int] = tokens[np.argsort(-row[tokens], kind="stable")][:count].tolist()
    return ordered


def agree(drafted: Sequence[int], choice: Sequence[int]) -> tuple[int, int]:
    """(the number of drafted tokens that equal the target's choice, the choice that follows them)."""
    n = next((i for i, x in enumerate(drafted) if x != choice[i]), len(drafted))
    return n, choice[n]


def reject(
    drafted: Sequence[int], p: Callable[[int], Doubles], q: Sequence[Doubles] | None, stream: random.Random
) -> tuple[int, int]:
    """Modified rejection sampling (arXiv 2211.17192, algorithm 1). q: a distribution [vocab] for each guess, or None.

    `p` returns the target's distribution in a row, and raises if there is none. No row after a rejected guess is read.
    """
    for i, x in enumerate(drafted):
        p_i = p(i)
        if stream.random() * (1.0 if q is None else q[i][x]) < p_i[x]:  # u < p/q, without dividing by a q of zero
            continue
        if q is None:
            residual = p_i.copy()
            residual[x] = 0.0  # max(0, p - q) with all of q on x
        else:
            residual = np.maximum(p_i - q[i], 0.0)
        return i, drawn(residual if residual.any() else p_i, stream)  # p and q may be equal up to rounding
    return len(drafted), drawn(p(len(drafted)), stream)


def distribution(row: Floats, sampling: Sampling) -> Doubles:
    """The probabilities [vocab] after temperature, top-k and top-p, from finite or -inf logits."""
    w = weights(row, sampling.temperature, sampling.top_k, sampling.top_p)
    w /= w.sum()
    return w
