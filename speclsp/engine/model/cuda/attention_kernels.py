"""Attention for at most 16 rows in one kernel, K2 of layer_kernels.py: RoPE, cache write, parts of the keys, their sum.

A program has one KV head, one part of the keys and a tile of rows. Keys of the pass itself are computed where they are
needed, so no program waits for another one to write them. Cached keys go through the same loop: the compiler may order
the sums of two loops differently, and a row's bits would depend on its pass. The last program of a head and tile adds
the parts in order; an integer counts the programs.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's arguments are Triton pointers and numbers, which mypy cannot check.

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def turned(x_ptr, entry, cos_ptr, sin_ptr, position, at, inside, D: tl.constexpr):
    """Rows of x at `entry` [n], rotated for their positions [n], in float32 and rounded as rope_write rounds."""
    half = D // 2
    other = tl.where(at < half, at + half, at - half)
    x = tl.load(x_ptr + entry[:, None] + at[None, :], mask=inside, other=0.0)
    y = tl.load(x_ptr + entry[:, None] + other[None, :], mask=inside, other=0.0)
    angle = position[:, None] * D + at[None, :]
    cos = tl.load(cos_ptr + angle, mask=inside, other=1.0)
    sin = tl.load(sin_ptr + angle, mask=inside, other=0.0)
    sin = tl.where((at < half)[None, :], -sin, sin)
    return (x.to(tl.float32) * cos + y.to(tl.float32) * sin).to(x.dtype)


@triton.jit
def add_keys(q, k, v, key, position, most, total, out, scale, PRECISION: tl.constexpr):
    """The running maximum, Σexp and weighted values after one more tile of keys."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
    new_most = tl.maximum(most, tl.max(scores, axis=1))
    anchor = tl.where(new_most == float("-inf"), 0.0, new_most)  # no visible key so far: exp(-inf - 0) is 0
    p = tl.exp(scores - anchor[:, None])
    keep = tl.exp(most - anchor)
    out = out * keep[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    return new_most, total * keep + tl.sum(p, axis=1), out


@triton.jit
def new_or_cached(
    qkv_ptr, cos_ptr, sin_ptr, key_ptr, value_ptr, key, start, rows, capacity, head, tile, at, wide,
    J: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Keys and values of a tile: this pass's own, which no program has to wait for, are computed, and written once."""
    ROW: tl.constexpr = (J * G + 2 * J) * D
    new = (key >= start) & (key < start + rows)
    fresh = new[:, None] & wide[None, :]
    of_row = tl.where(new, key - start, 0) * ROW + (J * G + head) * D
    own_k = turned(qkv_ptr, of_row, cos_ptr, sin_ptr, key, at, fresh, D)
    own_v = tl.load(qkv_ptr + of_row[:, None] + J * D + at[None, :], mask=fresh, other=0.0)
    entry = key[:, None].to(tl.int64) * D + at[None, :]
    old = (~new & (key < capacity))[:, None] & wide[None, :]  # the last part of a long context may end beyond it
    k = tl.where(fresh, own_k, tl.load(key_ptr + entry, mask=old, other=0.0))
    v = tl.where(fresh, own_v, tl.load(value_ptr + entry, mask=old, other=0.0))
    if tile == 0:
        tl.store(key_ptr + entry, own_k, mask=fresh)
        tl.store(value_ptr + entry, own_v, mask=fresh)
    return k, v


@triton.jit
def sum_of_parts(
    part_ptr, max_ptr, sum_ptr, head, line, lines, at, wide, J: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Attention of the lines from all parts of the keys, in order."""
    top = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    for part in range(PARTS):
        top = tl.maximum(top, tl.load(max_ptr + (part * J + head) * lines + line, cache_modifier=".cg"))
    top = tl.where(top == float("-inf"), 0.0, top)  # lines beyond the pass's rows
    total = tl.zeros((BLOCK_Q,), tl.float32)
    out = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for part in range(PARTS):
        of_part = (part * J + head) * lines + line
        most = tl.load(max_ptr + of_part, cache_modifier=".cg")
        share = tl.exp(most - top)  # parts beyond the row's position: 0
        total += share * tl.load(sum_ptr + of_part, cache_modifier=".cg")
        reached = (most > float("-inf"))[:, None] & wide[None, :]
        piece_ptr = part_ptr + of_part[:, None] * D + at[None, :]
        out += tl.load(piece_ptr, mask=reached, other=0.0, cache_modifier=".cg") * share[:, None]
    return out / tl.where(total > 0, total, 1.0)[:, None]


@triton.jit
def attention_kernel(
    qkv_ptr, cos_ptr, sin_ptr, start_ptr, slot_ptr, key_ptr, value_ptr, part_ptr, max_ptr, sum_ptr, counter_ptr,
    out_ptr, scale, rows, slot_stride, head_stride,
    J: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr, PART: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PDL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    part = tl.program_id(1)
    tile = tl.program_id(2)
    line = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)  # row * G + head within the group
    row = line // G
    inside_m = row < rows
    at = tl.arange(0, BLOCK_D)
    wide = at < D
    if PDL:
        gdc_wait()
        gdc_launch_dependents()  # the next kernel prefetches its weights meanwhile
    start = tl.load(start_ptr)
    position = start + row
    first = part * PART
    ROW: tl.constexpr = (J * G + 2 * J) * D
    most = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    out = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    lines = tl.num_programs(2) * BLOCK_Q
    into = (part * J + head) * lines + line
    if first < start + rows:  # some row attends to a key of this part
        here = tl.load(slot_ptr) * slot_stride + head * head_stride
        inside = inside_m[:, None] & wide[None, :]
        q = turned(qkv_ptr, row * ROW + (head * G + line % G) * D, cos_ptr, sin_ptr, position, at, inside, D)
        for step in tl.range(0, PART, BLOCK_K, num_stages=1):
            key = first + step + tl.arange(0, BLOCK_K)
            k, v = new_or_cached(
                qkv_ptr, cos_ptr, sin_ptr, key_ptr + here, value_ptr + here, key, start, rows, head_stride // D,
                head, tile, at, wide, J, G, D,
            )  # fmt: skip
            most, total, out = add_keys(q, k, v, key, position, most, total, out, scale, PRECISION)
        tl.store(part_ptr + into[:, None] * D + at[None, :], out, mask=wide[None, :])
    tl.store(max_ptr + into, most)
    tl.store(sum_ptr + into, total)
    tl.debug_barrier()  # all threads have stored their part before one of them counts the program
    counter = counter_ptr + head * tl.num_programs(2) + tile
    if tl.atomic_add(counter, 1, sem="acq_rel") == PARTS - 1:
        tl.store(counter, 0)
        out = sum_of_parts(part_ptr, max_ptr, sum_ptr, head, line, lines, at, wide, J, D, PARTS, BLOCK_Q, BLOCK_D)
        to = (row * (J * G) + head * G + line % G)[:, None] * D + at[None, :]
        tl.store(out_ptr + to, out.to(out_ptr.dtype.element_ty), mask=inside_m[:, None] & wide[None, :])
