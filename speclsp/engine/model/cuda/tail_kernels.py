"""The end of a pass: the choice of each row and its log probability, and acceptance, in two kernels.

    best_part    one program per row and part of the vocabulary: maximum, Σexp, best score and its token
    tail         one program: the parts in order, then the number of accepted guesses, the length and the last tokens

The logits are read once, in their own 16 bits. Parts have fixed boundaries and are added in order, so a row's result
does not depend on the other rows. A coupled draw is the maximum of logit/temperature - log e: the order of w/e in
draws.py, in float32. Its hash is the same.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's arguments are Triton pointers and numbers, which mypy cannot check.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from speclsp.engine.model.cuda import ops
from speclsp.engine.model.draws import LOWBIAS32, Draw

PART_TOKENS = 2048  # of the vocabulary, for one program
FIRST, SECOND = (tl.constexpr(multiplier & 0xFFFFFFFF) for multiplier in LOWBIAS32)
LARGEST_UNIFORM = tl.constexpr(1 - 2**-24)  # in float32; 1 would be infinite noise, and a certain token would lose
NO_TOKEN = tl.constexpr(2**31 - 1)


@triton.jit
def mix(x):
    """draws.mix of uint32."""
    x ^= x >> 16
    x *= FIRST
    x ^= x >> 15
    x *= SECOND
    x ^= x >> 16
    return x


@triton.jit
def log_noise(seed, position, token):
    """log e of the noise of a position, for tokens [BLOCK]."""
    key = mix(mix(mix(seed.to(tl.uint32)) ^ (seed >> 32).to(tl.uint32)) ^ position.to(tl.uint32))
    bits = mix(mix(token.to(tl.uint32) * FIRST) ^ key) & 0x7FFFFFFF
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * (1.0 / 2147483648.0), LARGEST_UNIFORM)
    series = uniform * (1.0 + uniform * (0.5 + uniform * (1.0 / 3.0 + uniform * (0.25 + uniform * 0.2))))
    return tl.log(tl.where(uniform < 0.01, series, -tl.log(1.0 - uniform)))  # 1 - u has no digits of a small u


@triton.jit
def best_part_kernel(
    logits_ptr, bias_ptr, seed_ptr, position_ptr, max_ptr, sum_ptr, score_ptr, own_ptr, token_ptr,
    vocab, logits_row, temperature, BIAS: tl.constexpr, DRAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    part = tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    inside = at < vocab
    x = tl.load(logits_ptr + row.to(tl.int64) * logits_row + at, mask=inside, other=float("-inf")).to(tl.float32)
    if BIAS:
        x += tl.load(bias_ptr + at, mask=inside, other=0.0)
    bad = (x != x) | (x == float("inf"))
    invalid = tl.max(bad.to(tl.int32), axis=0)
    x = tl.where(bad, float("-inf"), x)
    most = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - tl.where(most == float("-inf"), 0.0, most)), axis=0)
    score = x
    if DRAW:
        score = x / temperature - log_noise(tl.load(seed_ptr), tl.load(position_ptr + row), at)
    best = tl.max(score, axis=0)
    token = tl.min(tl.where(score == best, at, NO_TOKEN), axis=0)
    into = row * tl.num_programs(1) + part
    tl.store(max_ptr + into, tl.where(invalid > 0, float("nan"), most))
    tl.store(sum_ptr + into, total)
    tl.store(score_ptr + into, best)
    tl.store(own_ptr + into, tl.max(tl.where(at == token, x, float("-inf")), axis=0))
    tl.store(token_ptr + into, tl.minimum(token, vocab - 1))


@triton.jit
def tail_kernel(
    max_ptr, sum_ptr, score_ptr, own_ptr, token_ptr, choice_ptr, logprob_ptr, guess_ptr, n_ptr, tail_ptr, outcome_ptr,
    rows, parts, VERIFY: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, BLOCK_M)
    part = tl.arange(0, BLOCK_P)
    inside = at < rows
    entry = at[:, None] * parts + part[None, :]
    there = inside[:, None] & (part < parts)[None, :]
    most = tl.load(max_ptr + entry, mask=there, other=float("-inf"))
    invalid = tl.max((most != most).to(tl.int32), axis=1) > 0
    most = tl.where(most != most, 0.0, most)
    top = tl.max(most, axis=1)
    anchor = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.load(sum_ptr + entry, mask=there, other=0.0) * tl.exp(most - anchor[:, None]), axis=1)
    score = tl.load(score_ptr + entry, mask=there, other=float("-inf"))
    winner = tl.min(tl.where((score == tl.max(score, axis=1)[:, None]) & there, part[None, :], parts - 1), axis=1)
    chosen = part[None, :] == winner[:, None]
    own = tl.max(tl.where(chosen, tl.load(own_ptr + entry, mask=there, other=0.0), float("-inf")), axis=1)
    choice = tl.sum(tl.where(chosen, tl.load(token_ptr + entry, mask=there, other=0), 0), axis=1).to(tl.int64)
    logprob = tl.where(
        invalid | (own == float("-inf")), float("nan"), own - (anchor + tl.log(tl.where(total > 0, total, 1.0)))
    )
    if VERIFY:
        guess = tl.load(guess_ptr + at, mask=inside, other=-1)
        wrong = (choice != guess) | (at >= rows - 1)
        accepted = tl.min(tl.where(wrong, at, BLOCK_M), axis=0)
        tl.store(outcome_ptr, accepted.to(tl.int64))
        tl.store(outcome_ptr + 1 + at, choice, mask=inside)
        tl.store(outcome_ptr + 1 + rows + at, guess, mask=inside)
        tl.store(outcome_ptr + 1 + 2 * rows + at, logprob.to(tl.int32, bitcast=True).to(tl.int64), mask=inside)
        pending = tl.load(tail_ptr + 1)
        last = tl.sum(tl.where(at == accepted, choice, 0), axis=0)
        before = tl.sum(tl.where(at == accepted - 1, choice, 0), axis=0)
        tl.store(tail_ptr, tl.where(accepted == 0, pending, before))
        tl.store(tail_ptr + 1, last)
        tl.store(n_ptr, tl.load(n_ptr) + accepted + 1)
    else:
        tl.store(choice_ptr + at, choice, mask=inside)
        tl.store(logprob_ptr + at, logprob, mask=inside)


# ── the functions of ops.py, by these kernels ───────────────────────────────────────────────────────────────────────


def choose(
    logits: Tensor, bias: Tensor | None, draw: Draw | None, seed: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """ops.choose in two kernels; draws with top-k or top-p need the order of all tokens, and are torch's."""
    if not by_kernels(draw):
        return ops.choose(logits, bias, draw, seed, positions)
    rows = logits.shape[0]
    choice = torch.empty(rows, dtype=torch.int64, device=logits.device)
    logprob = torch.empty(rows, dtype=torch.float32, device=logits.device)
    parts = best_parts(logits, bias, draw, seed, positions)
    tail_kernel[(1,)](
        *parts, choice, logprob, choice, choice, choice, choice, rows, parts[0].shape[1],
        VERIFY=False, BLOCK_M=power_of_two(rows), BLOCK_P=power_of_two(parts[0].shape[1]),
    )  # fmt: skip
    return choice, logprob


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
    """ops.verify in two kernels, except where `choose` needs torch."""
    if not by_kernels(draw):
        ops.verify(logits, bias, draw, seed, positions, guesses, n, tail, outcome)
        return
    parts = best_parts(logits, bias, draw, seed, positions)
    rows = logits.shape[0]
    tail_kernel[(1,)](
        *parts, guesses, outcome, guesses, n, tail, outcome, rows, parts[0].shape[1],
        VERIFY=True, BLOCK_M=power_of_two(rows), BLOCK_P=power_of_two(parts[0].shape[1]),
    )  # fmt: skip


def by_kernels(draw: Draw | None) -> bool:
    return draw is None or (draw.top_k == 0 and draw.top_p >= 1.0)


def best_parts(
    logits: Tensor, bias: Tensor | None, draw: Draw | None, seed: Tensor, positions: Tensor
) -> tuple[Tensor, ...]:
    """Maximum, Σexp, best score, its logit and its token, each [M, parts]; `logits` may be a view of padded rows."""
    rows, vocab = logits.shape
    parts = -(-vocab // PART_TOKENS)
    most, total, score, own = torch.empty((4, rows, parts), dtype=torch.float32, device=logits.device)
    token = torch.empty((rows, parts), dtype=torch.int32, device=logits.device)
    best_part_kernel[(rows, parts)](
        logits, seed if bias is None else bias, seed, positions, most, total, score, own, token,
        vocab, logits.stride(0), 1.0 if draw is None else draw.temperature,
        BIAS=bias is not None, DRAW=draw is not None, BLOCK=PART_TOKENS,
    )  # fmt: skip
    return most, total, score, own, token


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
