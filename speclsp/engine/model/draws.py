"""Coupled draws: the probabilities that a token is drawn from, and noise that depends on seed and position only.

A draw is argmax p/e with e ~ Exp(1). The noise is a hash of seed, position and token, in integers. Without a generator
or state, a captured CUDA graph can draw, and every pass over a position draws the same there (decoding/accept.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MAX_SEED = 2**63 - 1
MAX_UNIFORM = 1 - 2**-24  # the largest float32 below 1
LOWBIAS32 = (0x7FEB352D, 0x846CA68B - 2**32)  # multipliers of Ellis' hash; int32 products wrap


class Draw(NamedTuple):
    """Parameters of coupled draws; a greedy choice has none."""

    temperature: float
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0
    seed: int = 0


def warped(logits: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Temperature, then top-k, then top-p: [T, vocab] logits -> [T, vocab] probabilities, float32.

    The highest logit becomes 0 before the division: so a finite one cannot become infinity.
    """
    import torch

    logits = logits.float()
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
    if 0 < top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    p = logits.softmax(dim=-1)
    if top_p < 1.0:
        order = logits.argsort(dim=-1, descending=True)  # two logits may have the same p
        ordered = p.gather(-1, order)
        limit = max(top_p, torch.finfo(torch.float32).tiny)  # above 0 in float32 too
        beyond = ordered.cumsum(dim=-1) - ordered >= limit  # the most likely token always stays
        p = p.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), 0.0)
        p = p / p.sum(dim=-1, keepdim=True)
    return p


def noise(seed: int, position: int, vocab: int) -> Tensor:
    """Exp(1) noise [vocab], a function of its arguments only."""
    import torch

    return noise_rows(torch.tensor([seed & MAX_SEED]), torch.tensor([position]), vocab)[0]


def noise_rows(seed: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """The noise of several positions, [T, vocab], computed on their device; `seed` is int64 [1] or [T]."""
    key = mix(mix(mix(seed.int()) ^ (seed >> 32).int()) ^ positions.int())[:, None]  # [T, 1]
    bits = mix(token_hashes(vocab, positions.device) ^ key) & 0x7FFFFFFF  # [T, vocab]
    uniform = bits.float().add_(0.5).mul_(2.0**-31)  # exact for small values: the smallest draws decide the argmax
    uniform.clamp_(max=MAX_UNIFORM)  # 1 would be infinite noise, and p/e = 0 even where p = 1
    return uniform.neg_().log1p_().neg_()


@lru_cache(maxsize=4)
def token_hashes(vocab: int, device: torch.device) -> Tensor:
    """32 bits for each token, [vocab] int32."""
    import torch

    return mix(torch.arange(vocab, dtype=torch.int32, device=device) * LOWBIAS32[0])


def mix(x: Tensor) -> Tensor:
    """int32 -> int32, a bijection in which every bit depends on every other."""
    x = x ^ (x >> 16 & 0xFFFF)
    x *= LOWBIAS32[0]
    x ^= x >> 15 & 0x1FFFF
    x *= LOWBIAS32[1]
    x ^= x >> 16 & 0xFFFF
    return x
