"""Operations of ops.py, each as one Triton kernel (attention: two).

    add_norm     one program per row
    rope_write   one program per row and head
    attend       one program per KV head, part of the keys and tile of rows; then one per row and head adds the parts
    silu_mul     one program per row and 1024 columns

No row's result depends on the other rows: a program never sums over rows. The keys are split at fixed positions and
added up in a fixed order, for any length. The G·M query rows that share a KV head are one tile, so keys and
values are read once and never repeated. `start` and `slot` are read on the device.

Imported on a GPU only (cuda_decoder.py), or under Triton's interpreter by the tests. Loops have constant bounds: the
compiler pipelines those, and the interpreter runs no others.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's arguments are Triton pointers and numbers, which mypy cannot check.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from speclsp.engine.model.cuda.ops import Ops

PART = 128  # the fewest keys for one program of the split attention
MAX_PARTS = 64  # longer contexts have longer parts, each a power of two
WIDE_PART = 512  # in prefill, where there are enough programs by rows
WIDE_ROWS = 32  # rows from which WIDE_PART is used


@triton.jit
def add_norm_kernel(
    x_ptr, delta_ptr, weight_ptr, sum_ptr, out_ptr, eps, hidden, ADD: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    x = tl.load(x_ptr + row * hidden + at, mask=inside, other=0.0)
    if ADD:
        delta = tl.load(delta_ptr + row * hidden + at, mask=inside, other=0.0)
        x = (x.to(tl.float32) + delta.to(tl.float32)).to(x.dtype)  # rounded as the stored sum is
        tl.store(sum_ptr + row * hidden + at, x, mask=inside)
    wide = x.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / hidden + eps)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * hidden + at, (wide * scale * weight).to(x.dtype), mask=inside)


@triton.jit
def rope_write_kernel(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, start_ptr, slot_ptr, key_ptr, value_ptr, out_ptr,
    q_row, k_row, v_row, slot_stride, head_stride,
    H: tl.constexpr, J: tl.constexpr, D: tl.constexpr, ROTARY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    position = tl.load(start_ptr) + row
    entry = tl.load(slot_ptr) * slot_stride + position * D
    at = tl.arange(0, BLOCK)
    inside = at < D
    turning = at < ROTARY
    half = ROTARY // 2
    other = tl.where(at < half, at + half, at - half)
    cos = tl.load(cos_ptr + position * ROTARY + at, mask=turning, other=1.0)
    sin = tl.load(sin_ptr + position * ROTARY + at, mask=turning, other=0.0)
    sin = tl.where(at < half, -sin, sin)
    if head < H:
        x = tl.load(q_ptr + row * q_row + head * D + at, mask=inside, other=0.0)
        y = tl.load(q_ptr + row * q_row + head * D + other, mask=turning, other=0.0)
        turned = (x.to(tl.float32) * cos + y.to(tl.float32) * sin).to(x.dtype)
        tl.store(out_ptr + (row * H + head) * D + at, turned, mask=inside)
    elif head < H + J:
        x = tl.load(k_ptr + row * k_row + (head - H) * D + at, mask=inside, other=0.0)
        y = tl.load(k_ptr + row * k_row + (head - H) * D + other, mask=turning, other=0.0)
        turned = (x.to(tl.float32) * cos + y.to(tl.float32) * sin).to(x.dtype)
        tl.store(key_ptr + entry + (head - H) * head_stride + at, turned, mask=inside)
    else:
        x = tl.load(v_ptr + row * v_row + (head - H - J) * D + at, mask=inside, other=0.0)
        tl.store(value_ptr + entry + (head - H - J) * head_stride + at, x, mask=inside)


@triton.jit
def attend_part_kernel(
    q_ptr, key_ptr, value_ptr, start_ptr, slot_ptr, part_ptr, max_ptr, sum_ptr, scale, rows, slot_stride, head_stride,
    J: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PART: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    part = tl.program_id(1)
    line = tl.program_id(2) * BLOCK_Q + tl.arange(0, BLOCK_Q)  # row * G + head within the group
    row = line // G
    inside = row < rows
    start = tl.load(start_ptr)
    first = part * PART
    at = tl.arange(0, BLOCK_D)
    wide = at < D
    most = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    out = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    into = (part * J + head) * rows * G + line
    if first < start + rows:  # some row attends to a key of this part
        here = tl.load(slot_ptr) * slot_stride + head * head_stride
        q_at = (row * J + head) * G + line % G
        q = tl.load(q_ptr + q_at[:, None] * D + at[None, :], mask=inside[:, None] & wide[None, :], other=0.0)
        for step in range(0, PART, BLOCK_K):
            key = first + step + tl.arange(0, BLOCK_K)
            entry = here + key[:, None].to(tl.int64) * D + at[None, :]
            there = (key < head_stride // D)[:, None] & wide[None, :]  # the last part may end beyond the capacity
            k = tl.load(key_ptr + entry, mask=there, other=0.0)
            v = tl.load(value_ptr + entry, mask=there, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            visible = key[None, :] <= start + row[:, None]
            scores = tl.where(visible, scores, float("-inf"))
            new_most = tl.maximum(most, tl.max(scores, axis=1))
            anchor = tl.where(new_most == float("-inf"), 0.0, new_most)  # no visible key so far: exp(-inf - 0) is 0
            p = tl.exp(scores - anchor[:, None])
            keep = tl.exp(most - anchor)
            total = total * keep + tl.sum(p, axis=1)
            out = out * keep[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
            most = new_most
        tl.store(part_ptr + into[:, None] * D + at[None, :], out, mask=inside[:, None] & wide[None, :])
    tl.store(max_ptr + into, most, mask=inside)
    tl.store(sum_ptr + into, total, mask=inside)


@triton.jit
def combine_kernel(
    part_ptr, max_ptr, sum_ptr, out_ptr, parts, rows,
    J: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    query_head = tl.program_id(1)
    part = tl.arange(0, BLOCK_P)
    at = tl.arange(0, BLOCK_D)
    line = (part * J + query_head // G) * rows * G + row * G + query_head % G
    most = tl.load(max_ptr + line, mask=part < parts, other=float("-inf"))
    total = tl.load(sum_ptr + line, mask=part < parts, other=0.0)
    share = tl.exp(most - tl.max(most, axis=0))  # parts beyond the row's position: 0
    reached = (most > float("-inf"))[:, None] & (at < D)[None, :]
    piece = tl.load(part_ptr + line[:, None] * D + at[None, :], mask=reached, other=0.0)
    out = tl.sum(piece * share[:, None], axis=0) / tl.sum(total * share, axis=0)
    tl.store(out_ptr + (row * J * G + query_head) * D + at, out.to(out_ptr.dtype.element_ty), mask=at < D)


@triton.jit
def silu_mul_kernel(gate_up_ptr, out_ptr, inner, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < inner
    gate = tl.load(gate_up_ptr + row * 2 * inner + at, mask=inside, other=0.0)
    up = tl.load(gate_up_ptr + row * 2 * inner + inner + at, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    active = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)  # rounded as the torch function rounds it
    tl.store(out_ptr + row * inner + at, (active.to(tl.float32) * up.to(tl.float32)).to(gate.dtype), mask=inside)


# ── the functions of ops.py, by these kernels ───────────────────────────────────────────────────────────────────────


def triton_add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """add_norm in one kernel."""
    rows, hidden = x.shape
    out = torch.empty_like(x)
    total = x if delta is None else torch.empty_like(x)
    add_norm_kernel[(rows,)](
        x, x if delta is None else delta, weight, total, out, eps, hidden,
        ADD=delta is not None, BLOCK=power_of_two(hidden),
    )  # fmt: skip
    return total, out


def triton_rope_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, start: Tensor, slot: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """rope_write in one kernel. q, k and v may be views of one [M, (H + 2J) * D]."""
    rows, heads, width = q.shape
    kv_heads = k.shape[1]
    out = torch.empty((rows, heads, width), dtype=q.dtype, device=q.device)
    rope_write_kernel[(rows, heads + 2 * kv_heads)](
        q, k, v, cos, sin, start, slot, keys, values, out, q.stride(0), k.stride(0), v.stride(0),
        keys.stride(0), keys.stride(1), H=heads, J=kv_heads, D=width, ROTARY=cos.shape[-1], BLOCK=power_of_two(width),
    )  # fmt: skip
    return out


def triton_attend(q: Tensor, keys: Tensor, values: Tensor, start: Tensor, slot: Tensor, scale: float) -> Tensor:
    """attend in two kernels: parts of the keys in parallel, then their sum in order."""
    rows, heads, width = q.shape
    kv_heads, capacity = keys.shape[1:3]
    group = heads // kv_heads
    part = max(PART, power_of_two(-(-capacity // MAX_PARTS))) if rows < WIDE_ROWS else WIDE_PART
    parts = -(-capacity // part)
    lines = rows * group
    block_d = max(16, power_of_two(width))
    block_q, block_k = tiles(lines, block_d * q.element_size())
    pieces = torch.empty((parts, kv_heads, lines, width), dtype=torch.float32, device=q.device)
    most, total = torch.empty((2, parts, kv_heads, lines), dtype=torch.float32, device=q.device)
    out = torch.empty((rows, heads * width), dtype=q.dtype, device=q.device)
    attend_part_kernel[(kv_heads, parts, -(-lines // block_q))](
        q, keys, values, start, slot, pieces, most, total, scale, rows, keys.stride(0), keys.stride(1),
        J=kv_heads, G=group, D=width, PART=part, BLOCK_Q=block_q, BLOCK_K=block_k, BLOCK_D=block_d,
        PRECISION=precision(q),
    )  # fmt: skip
    combine_kernel[(rows, heads)](
        pieces,
        most,
        total,
        out,
        parts,
        rows,
        J=kv_heads,
        G=group,
        D=width,
        BLOCK_P=power_of_two(parts),
        BLOCK_D=block_d,
    )
    return out


def triton_silu_mul(gate_up: Tensor) -> Tensor:
    """silu_mul in one kernel."""
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, inner), dtype=gate_up.dtype, device=gate_up.device)
    silu_mul_kernel[(rows, -(-inner // 1024))](gate_up, out, inner, BLOCK=1024)
    return out


TRITON = Ops(triton_add_norm, triton_rope_write, triton_attend, triton_silu_mul)


def tiles(lines: int, line_bytes: int) -> tuple[int, int]:
    """(query lines, keys) in a tile of attention, which fit 99 KiB of shared memory, the minimum of Ampere and Ada."""
    if line_bytes > 256:  # head_dim 256 (Gemma), or float32
        return (32 if lines > 16 else 16), 32
    return (64 if lines > 32 else 32 if lines > 16 else 16), 64


def precision(x: Tensor) -> str:
    """tl.dot's precision: float32 is multiplied as float32, not as tf32; other types have only one mode."""
    return "ieee" if x.dtype == torch.float32 else "tf32"


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
