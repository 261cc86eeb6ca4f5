"""A layer for at most 16 rows in five Triton kernels, in place of ten.

    K1  linear      RMSNorm of the input ─ qkv ─ bias
    K2  attention   RoPE ─ cache write ─ attention; the last program of a head adds the parts of the keys in order
    K3  linear      out ─ residual ─ Σx² of the sum, for the next norm
    K4  linear      RMSNorm ─ gate and up of a column in one program ─ SiLU·mul
    K5  linear      down ─ residual ─ Σx²

The head is K1 without a bias. Weights have 16 bits, 8 bits with a scale per row, or nf4 (packed_weights.py).

No row's result depends on the other rows or on their number: every program has a tile of 16 rows, sums run over fixed
parts in a fixed order, and no float is added atomically. Where a product is split over K, each program stores its part,
and the last one to finish adds all of them in order; an integer counts the programs.

With PDL (programmatic dependent launch, Hopper and newer) a kernel starts while its predecessor ends. It prefetches
weights, which depend on no kernel, and waits before it reads or writes anything else.

Loops have constant bounds: the compiler pipelines those, and the interpreter runs no others.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's arguments are Triton pointers and numbers, which mypy cannot check.

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

TILE_ROWS = 16  # rows in a tile: a tensor core's size
BLOCK_K = 128  # inputs in a step, for which a row of nf4 has two scales


@triton.jit
def prefetch(pointer):
    """Fetch cache lines to the L2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [pointer], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def prefetch_weights(weight_ptr, column, inside_n, begin, ROW_BYTES: tl.constexpr):
    """Prefetch the first 512 bytes from `begin` on of each column's weights."""
    line = (begin + tl.arange(0, 4) * 128)[None, :]
    at = column[:, None].to(tl.int64) * ROW_BYTES + line
    prefetch(weight_ptr.to(tl.pointer_type(tl.uint8)) + tl.where(inside_n[:, None] & (line < ROW_BYTES), at, 0))


@triton.jit
def product(
    total, x_ptr, weight_ptr, scale_ptr, table_ptr, norm_ptr, column, inside_n, row, inside_m, norm, at,
    IN: tl.constexpr, BITS: tl.constexpr, NORM: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`total` plus the product of a step of K inputs from `at` on."""
    if BITS == 4:
        half = tl.arange(0, K // 2)
        first = x_tile(x_ptr, norm_ptr, row, inside_m, norm, at + half, IN, NORM)
        second = x_tile(x_ptr, norm_ptr, row, inside_m, norm, at + K // 2 + half, IN, NORM)
        inside = inside_n[:, None] & (at + 2 * half < IN)[None, :]
        entry = column[:, None].to(tl.int64) * (IN // 2) + at // 2 + half[None, :]
        codes = tl.load(weight_ptr + entry, mask=inside, other=0).to(tl.int32)
        block = column.to(tl.int64) * (IN // 64) + at // 64
        there = inside_n & (at < IN)
        low_scale = tl.load(scale_ptr + block, mask=there, other=0.0)[:, None]
        high_scale = tl.load(scale_ptr + block + 1, mask=there, other=0.0)[:, None]
        low = tl.load(table_ptr + (codes & 15)).to(tl.float32) * low_scale
        high = tl.load(table_ptr + (codes >> 4)).to(tl.float32) * high_scale
        total += tl.dot(first, tl.trans(low.to(first.dtype)), input_precision=PRECISION)
        return total + tl.dot(second, tl.trans(high.to(first.dtype)), input_precision=PRECISION)
    k = at + tl.arange(0, K)
    x = x_tile(x_ptr, norm_ptr, row, inside_m, norm, k, IN, NORM)
    entry = column[:, None].to(tl.int64) * IN + k[None, :]
    weight = tl.load(weight_ptr + entry, mask=inside_n[:, None] & (k < IN)[None, :], other=0)
    return total + tl.dot(x, tl.trans(weight.to(x.dtype)), input_precision=PRECISION)


@triton.jit
def x_tile(x_ptr, norm_ptr, row, inside_m, norm, k, IN: tl.constexpr, NORM: tl.constexpr):
    """Inputs [rows, k], normed if NORM, and rounded as the norm's own kernel rounds them."""
    x = tl.load(x_ptr + row[:, None] * IN + k[None, :], mask=inside_m[:, None] & (k < IN)[None, :], other=0.0)
    if NORM:
        weight = tl.load(norm_ptr + k, mask=k < IN, other=0.0).to(tl.float32)
        return (x.to(tl.float32) * norm[:, None] * weight[None, :]).to(x.dtype)
    return x


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, scale_ptr, table_ptr, bias_ptr, norm_ptr, squares_ptr, out_ptr, out_squares_ptr,
    part_ptr, counter_ptr, eps, rows, out_features,
    IN: tl.constexpr, BITS: tl.constexpr, NORM: tl.constexpr, SQUARES: tl.constexpr, BIAS: tl.constexpr,
    GATED: tl.constexpr, RESIDUAL: tl.constexpr, SPLIT: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    K: tl.constexpr, PDL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, split = tl.program_id(0), tl.program_id(1)
    column = block * N + tl.arange(0, N)
    row = tl.arange(0, M)
    inside_n, inside_m = column < out_features, row < rows
    STEPS: tl.constexpr = (IN + K * SPLIT - 1) // (K * SPLIT)  # of each program
    begin = split * STEPS * K
    if PDL:
        prefetch_weights(weight_ptr, column, inside_n, begin * BITS // 8, IN * BITS // 8)
        gdc_wait()
    norm = tl.zeros((M,), tl.float32)
    if NORM:
        norm = inverse_rms(squares_ptr, row, inside_m, eps, IN, SQUARES)
    total = tl.zeros((M, N), tl.float32)
    up = total
    for step in range(0, STEPS * K, K):
        total = product(
            total, x_ptr, weight_ptr, scale_ptr, table_ptr, norm_ptr, column, inside_n, row, inside_m, norm,
            begin + step, IN, BITS, NORM, K, PRECISION,
        )  # fmt: skip
        if GATED:
            up = product(
                up, x_ptr, weight_ptr, scale_ptr, table_ptr, norm_ptr, column + out_features, inside_n, row, inside_m,
                norm, begin + step, IN, BITS, NORM, K, PRECISION,
            )  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    last = True
    if SPLIT > 1:
        tile = part_ptr + block * (SPLIT * 2 * M * N) + row[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(tile + split * (2 * M * N), total)
        if GATED:
            tl.store(tile + split * (2 * M * N) + M * N, up)
        tl.debug_barrier()  # all threads have stored their part before one of them counts the program
        last = tl.atomic_add(counter_ptr + block, 1, sem="acq_rel") == SPLIT - 1
    if last:
        if SPLIT > 1:
            tl.store(counter_ptr + block, 0)
            total = sum_of(tile, SPLIT, M, N)
            if GATED:
                up = sum_of(tile + M * N, SPLIT, M, N)
        total = scaled(total, scale_ptr + column, bias_ptr + column, inside_n, BITS, BIAS)
        inside = inside_m[:, None] & inside_n[None, :]
        into = row[:, None].to(tl.int64) * out_features + column[None, :]
        out = total.to(out_ptr.dtype.element_ty)
        if GATED:
            up = scaled(up, scale_ptr + column + out_features, bias_ptr, inside_n, BITS, False)
            out = silu_mul(out, up.to(out_ptr.dtype.element_ty))
        if RESIDUAL:
            old = tl.load(out_ptr + into, mask=inside, other=0.0).to(tl.float32)
            out = (old + out.to(tl.float32)).to(out_ptr.dtype.element_ty)
            wide = tl.where(inside, out.to(tl.float32), 0.0)
            tl.store(out_squares_ptr + row * SQUARES + block, tl.sum(wide * wide, axis=1), mask=inside_m)
        tl.store(out_ptr + into, out, mask=inside)


@triton.jit
def scaled(total, scale_ptr, bias_ptr, inside_n, BITS: tl.constexpr, BIAS: tl.constexpr):
    """The sums with the rows' scales of 8 bits, and the bias."""
    if BITS == 8:
        total *= tl.load(scale_ptr, mask=inside_n, other=0.0)[None, :]
    if BIAS:
        total += tl.load(bias_ptr, mask=inside_n, other=0.0).to(tl.float32)[None, :]
    return total


@triton.jit
def inverse_rms(squares_ptr, row, inside_m, eps, IN: tl.constexpr, SQUARES: tl.constexpr):
    """1 / RMS of the rows, from the parts of their Σx²."""
    part = tl.arange(0, SQUARES)
    squares = tl.load(squares_ptr + row[:, None] * SQUARES + part[None, :], mask=inside_m[:, None], other=0.0)
    return 1.0 / tl.sqrt(tl.sum(squares, axis=1) / IN + eps)


@triton.jit
def sum_of(tile_ptr, SPLIT: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """The parts of all programs of a split product, in order."""
    total = tl.zeros((M, N), tl.float32)
    for split in range(SPLIT):
        total += tl.load(tile_ptr + split * (2 * M * N), cache_modifier=".cg")
    return total


@triton.jit
def silu_mul(gate, up):
    """SiLU(gate) · up, rounded where silu_mul_kernel rounds."""
    wide = gate.to(tl.float32)
    active = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    return (active.to(tl.float32) * up.to(tl.float32)).to(gate.dtype)


@triton.jit
def embed_kernel(
    token_ptr, weight_ptr, scale_ptr, out_ptr, squares_ptr, hidden,
    BITS: tl.constexpr, SQUARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row of the embedding, and its Σx² as the first of the parts; the other parts are 0."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    token = tl.load(token_ptr + row)
    x = tl.load(weight_ptr + token * hidden + at, mask=inside, other=0)
    if BITS == 8:
        x = x.to(tl.float32) * tl.load(scale_ptr + token)
    x = x.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * hidden + at, x, mask=inside)
    wide = x.to(tl.float32)
    part = tl.arange(0, SQUARES)
    tl.store(squares_ptr + row * SQUARES + part, tl.where(part == 0, tl.sum(wide * wide, axis=0), 0.0))
