"""Operations between a decoder's matrix products on a GPU, in plain torch.

    add_norm     x + δ, then RMSNorm
    rope_write   rotate q and k, write k and v to the cache at the current length
    attend       attention over a slot of the flat KV, the KV heads never repeated
    silu_mul     SiLU(gate) · up
    choose       the next token of each row of logits, greedy or drawn, and its log probability
    verify       choose, then the number of accepted guesses, the new length and the last two tokens

The first four specify the Triton kernels of kernels.py, and run where Triton is missing. No row depends on the other
rows. Lengths and slots are read on the device (`start`, `slot`: int64 [1]), so a captured graph serves every length.

Shapes: M rows (tokens), H query heads, J KV heads, G = H/J, D the head's width, L a slot's capacity. A layer's `keys`
and `values` are [slots, J, L, D].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from speclsp.engine.model.draws import LEAST_SHARE, LOWBIAS32, Draw, mix, random_bits


class Ops(NamedTuple):
    """One implementation of the operations that have kernels."""

    add_norm: Callable[[Tensor, Tensor | None, Tensor, float], tuple[Tensor, Tensor]]
    rope_write: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float], Tensor]
    silu_mul: Callable[[Tensor], Tensor]


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x and delta, both [M, hidden] -> (their sum, its RMSNorm)."""
    if delta is not None:
        x = x + delta
    return x, F.rms_norm(x, (x.shape[-1],), weight, eps)


def rope_write(
    q: Tensor,  # [M, H, D]
    k: Tensor,  # [M, J, D]
    v: Tensor,  # [M, J, D]
    cos: Tensor,  # [L, D_rotary] float32
    sin: Tensor,
    start: Tensor,
    slot: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """Write rotated k, and v, at positions `start`, `start` + 1, ... of the slot; return rotated q."""
    position = start + torch.arange(q.shape[0], device=q.device)
    c, s = cos[position][:, None], sin[position][:, None]
    keys[slot, :, position] = rotated(k, c, s)
    values[slot, :, position] = v
    return rotated(q, c, s)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of [M, heads, D], computed in float32; columns beyond D_rotary stay."""
    rotary = cos.shape[-1]
    head = x[..., :rotary].float()
    left, right = head.chunk(2, dim=-1)
    head = (head * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)
    return head if rotary == x.shape[-1] else torch.cat([head, x[..., rotary:]], dim=-1)


def attend(q: Tensor, keys: Tensor, values: Tensor, start: Tensor, slot: Tensor, scale: float) -> Tensor:
    """Causal attention of the rows at `start`, `start` + 1, ... over their slot: [M, H, D] -> [M, H * D]."""
    rows, heads, width = q.shape
    kv_heads, capacity = keys.shape[1:3]
    group = heads // kv_heads
    k, v = keys.index_select(0, slot)[0], values.index_select(0, slot)[0]  # [J, L, D]
    packed = (q * scale).view(rows, kv_heads, group, width).transpose(0, 1).reshape(kv_heads, rows * group, width)
    scores = torch.bmm(packed, k.transpose(1, 2)).float()  # [J, M*G, L]
    position = start + torch.arange(rows, device=q.device)
    unseen = torch.arange(capacity, device=q.device)[None] > position.repeat_interleave(group)[:, None]
    p = scores.masked_fill(unseen, -torch.inf).softmax(dim=-1).to(v.dtype)
    out = torch.bmm(p, v).view(kv_heads, rows, group, width)
    return out.transpose(0, 1).reshape(rows, heads * width)


def silu_mul(gate_up: Tensor) -> Tensor:
    """[M, 2 * inner] -> SiLU of the first half times the second."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def choose(
    logits: Tensor, bias: Tensor | None, draw: Draw | None, seed: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """The next token of each row: [M, vocab] -> ids int64 [M], and their log probabilities at temperature 1.

    Among equal logits the lowest id wins, as in torch.argmax on a CPU. The log probability is NaN where no token can be
    chosen: in a row with NaN or plus infinity, and where all are minus infinity.

    Args:
        bias: [vocab] float32, added to each row; minus infinity bans a token.
        draw: parameters of coupled draws; its seed is not read. None: the most probable token.
        seed: int64 [1].
        positions: int64 [M], of the tokens that are chosen.
    """
    logits = logits.float() if bias is None else logits.float() + bias
    score = logits if draw is None else weights(logits, *draw[:3]) / noise(seed, positions, logits.shape[-1])
    choice = score.argmax(dim=-1)
    return choice, logits.gather(1, choice[:, None])[:, 0] - logits.logsumexp(dim=-1)


def weights(logits: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """draws.weights of rows [T, vocab], float64."""
    wide = logits.double()
    w = ((wide - wide.amax(dim=-1, keepdim=True)) / temperature).exp()
    if 0 < top_k < logits.shape[-1]:
        w = w.masked_fill(wide < wide.topk(top_k, dim=-1).values[:, -1:], 0.0)
    if top_p < 1.0:
        order = wide.argsort(dim=-1, descending=True, stable=True)
        ordered = w.gather(-1, order)
        limit = max(top_p, LEAST_SHARE) * w.cumsum(dim=-1)[:, -1:]
        beyond = ordered.cumsum(dim=-1) - ordered >= limit
        w = w.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), 0.0)
    return w


def noise(seed: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """draws.noise of several positions, float64 [T, vocab], computed on their device; `seed`: int64 [1] or [T]."""
    low, high, position = (part.int()[:, None] for part in (seed, seed >> 32, positions))
    bits = random_bits(low, high, position, hashes_on(vocab, positions.device))
    return -(-(bits.double() + 0.5) * 2.0**-31).log1p()


@lru_cache(maxsize=4)
def hashes_on(vocab: int, device: torch.device) -> Tensor:
    """draws.token_hashes, computed on a device: a captured graph has no copy from the host."""
    return mix(torch.arange(vocab, dtype=torch.int32, device=device) * LOWBIAS32[0])


def verify(
    logits: Tensor,
    bias: Tensor | None,
    draw: Draw | None,
    seed: Tensor,
    positions: Tensor,
    guesses: Tensor,
    n: Tensor,
    tail: Tensor,
    outcome: Tensor,
) -> None:
    """Compare the target's choices [M] with the guesses [M], -1 for no guess; all int64, all on the device.

    Writes `n`, the text's length in tokens; `tail`, its last two tokens; and `outcome`, [1 + 3M]: the number of
    accepted guesses, the choices (up to and including that index they are the new tokens), the guesses, and the bits of
    the choices' log probabilities. The other arguments are those of `choose`.
    """
    choice, logprob = choose(logits, bias, draw, seed, positions)
    rows = choice.shape[0]
    accepted = (choice == guesses)[: rows - 1].long().cumprod(dim=0).sum(dim=0, keepdim=True)  # [1]
    outcome[:1] = accepted
    outcome[1 : 1 + rows] = choice
    outcome[1 + rows : 1 + 2 * rows] = guesses
    outcome[1 + 2 * rows :] = logprob.view(torch.int32)
    line = torch.cat([tail[1:], choice])
    tail.copy_(torch.cat([line.index_select(0, accepted), line.index_select(0, accepted + 1)]))
    n += accepted + 1


TORCH = Ops(add_norm, rope_write, attend, silu_mul)
