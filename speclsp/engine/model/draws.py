"""Draws from a row of logits in NumPy, in float64: coupled with noise, or from a stream of random numbers.

A coupled draw is argmax w/e with e ~ Exp(1). The weights w are the probabilities without their sum. The noise is a hash
of seed, position and token, in integers. Without a generator or state, a captured CUDA graph can draw, and every pass
over a position draws the same there (decoding/accept.py). cuda/ops.py has the torch form for the logits of a GPU: the
same operations in the same order and precision. exp and log1p may differ in the last of 53 bits there. Noise has 31
bits, so equal logits never draw within that difference.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from speclsp.engine.model.bfloat16 import Floats

if TYPE_CHECKING:
    from torch import Tensor

MAX_SEED = 2**63 - 1
LEAST_SHARE = 2.0**-1000  # of top-p, instead of 0: the most likely token always stays
LOWBIAS32 = (0x7FEB352D, 0x846CA68B - 2**32)  # multipliers of Ellis' hash; int32 products wrap

Doubles = NDArray[np.float64]
Int32s = TypeVar("Int32s", "NDArray[np.int32]", "Tensor")  # an array or a tensor, and a function returns the same


class Draw(NamedTuple):
    """Parameters of coupled draws; a greedy choice has none."""

    temperature: float
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0
    seed: int = 0


def weights(row: Floats, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Doubles:
    """Temperature, then top-k, then top-p: finite or -inf logits [vocab] -> probabilities times a constant, [vocab].

    The most likely token has the weight 1, and always stays.
    """
    w: Doubles = np.exp((row.astype(np.float64) - float(row.max())) / temperature)
    if 0 < top_k < len(row):
        w[row < np.partition(row, len(row) - top_k)[len(row) - top_k]] = 0.0
    if top_p < 1.0:
        total = w.cumsum()[-1]  # one after the other, as in torch; `sum` has an order of its own
        # all smaller weights together are at most half of the share that top-p leaves out, so they need no order
        tokens = np.flatnonzero(w >= 0.5 * (1.0 - top_p) * total / len(row))
        ordered = tokens[np.argsort(-row[tokens], kind="stable")]
        before = w[ordered].cumsum() - w[ordered]
        kept = ordered[before < max(top_p, LEAST_SHARE) * total]
        own, w = w[kept], np.zeros_like(w)
        w[kept] = own
    return w


def coupled(row: Floats, draw: Draw, position: int) -> int:
    """The token at `position` by its noise, from finite or -inf logits [vocab]; among equals, the lowest id."""
    w = weights(row, *draw[:3])
    uniform = uniforms(draw.seed, position, len(row))
    best = int(row.argmax())
    noise_of_best = -math.log1p(-uniform[best])
    # w/e of another token is higher only if e < w * noise_of_best, and uniform < e
    tokens = np.flatnonzero(uniform <= w * noise_of_best)
    return int(tokens[(w[tokens] / -np.log1p(-uniform[tokens])).argmax()])


def drawn(w: Doubles, stream: random.Random) -> int:
    """A token with a probability in proportion to its weight, by one number of the stream."""
    up_to = w.cumsum()
    at = min(stream.random() * up_to[-1], np.nextafter(up_to[-1], 0.0))  # a product near the sum may round to it
    return int(up_to.searchsorted(at, side="right"))


def uniforms(seed: int, position: int, vocab: int) -> Doubles:
    """Uniform noise [vocab] in (0, 1), exact: 31 random bits and a last one that is set."""
    halves_and_position = [[seed & 0xFFFFFFFF], [seed >> 32 & 0xFFFFFFFF], [position]]
    low, high, at = np.array(halves_and_position, np.uint32).view(np.int32)
    uniform: Doubles = (random_bits(low, high, at, token_hashes(vocab)) + 0.5) * 2.0**-31
    return uniform


def random_bits(low: Int32s, high: Int32s, position: Int32s, hashes: Int32s) -> Int32s:
    """31 bits for each token, from the halves of the seed, the position and `token_hashes`."""
    return mix(hashes ^ mix(mix(mix(low) ^ high) ^ position)) & 0x7FFFFFFF


@lru_cache(maxsize=4)
def token_hashes(vocab: int) -> NDArray[np.int32]:
    """32 bits for each token, [vocab]."""
    return mix(np.arange(vocab, dtype=np.int32) * np.int32(LOWBIAS32[0]))


def mix(x: Int32s) -> Int32s:
    """int32 -> int32, a bijection in which every bit depends on every other; at least one dimension."""
    x = x ^ (x >> 16 & 0xFFFF)
    x *= LOWBIAS32[0]
    x ^= x >> 15 & 0x1FFFF
    x *= LOWBIAS32[1]
    x ^= x >> 16 & 0xFFFF
    return x
