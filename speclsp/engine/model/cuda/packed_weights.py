"""Weights as layer_kernels.py reads them: 16 bits, 8 bits with a scale per row, or nf4.

nf4 keeps the codes and the scales of bitsandbytes: `value = codebook[code] * scale`, with a scale for 64 weights
(QLoRA, arXiv 2305.14314). Only the order of the codes within 128 weights changes. Byte j holds the code of weight j in
its low half and that of weight 64 + j in its high half. So a kernel multiplies each half with contiguous inputs, and
each half has one scale. The codebook is rounded to float16: the compiler would stage loads of 4 bytes in shared memory.
So a value differs from that of bitsandbytes by 2^-11 at most, a quarter of bfloat16's rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 128  # weights whose codes are stored together
SLICE_WEIGHTS = 1 << 23  # dequantized at a time, with 12 bytes each for what lies between; memory_plan.GRAPHS_MIB


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """y = x Wᵀ + b. As a function it multiplies the dequantized weights: for the wide passes of prefill."""

    bits: int  # 16 | 8 | 4
    weight: Tensor  # [out, in] float, [out, in] int8, or [out, in / 2] uint8
    scale: Tensor | None = None  # float32: [out] for 8 bits, [out, in / 64] for 4
    table: Tensor | None = None  # [16] float16, the codebook of 4 bits
    bias: Tensor | None = None

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """[out, in], each value computed in float32 and rounded once; in slices of rows, to bound the memory."""
        if self.scale is None:
            return self.weight.to(dtype)
        inside = self.weight.shape[1] * (1 if self.table is None else 2)
        matrix = torch.empty((len(self.weight), inside), dtype=dtype, device=self.weight.device)
        rows = max(1, SLICE_WEIGHTS // inside)
        for first in range(0, len(matrix), rows):
            matrix[first : first + rows] = self._values(slice(first, first + rows), self.scale)
        return matrix

    def _values(self, rows: slice, scale: Tensor) -> Tensor:
        """Rows of the weight, [rows, in] in float32."""
        weight, scale = self.weight[rows], scale[rows]
        if self.table is None:
            return weight.float() * scale[:, None]
        codes = weight.view(len(weight), -1, 1, BLOCK // 2)  # [rows, blocks, 1, 64]
        halves = torch.cat([codes & 15, codes >> 4], dim=2)  # [rows, blocks, 2, 64]
        values = self.table.float()[halves.int()].flatten(1, 2) * scale[:, :, None]  # [rows, in / 64, 64]
        return values.flatten(1)

    def rows(self, at: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the weight, as an embedding reads them: [M] -> [M, in]."""
        if self.scale is None:
            return self.weight[at].to(dtype)
        return replace(self, weight=self.weight[at], scale=self.scale[at]).dequantized(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.dequantized(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


def pack_nf4(codes: Tensor, scale: Tensor, table: Tensor, out_features: int, bias: Tensor | None) -> PackedLinear:
    """Weights that bitsandbytes quantized, in the kernels' order.

    Args:
        codes: uint8, two of neighbouring weights in a byte, the first one in the high half.
        scale: float32, of each 64 weights.
        table: the codebook, [16].
    """
    pairs = codes.view(out_features, -1)
    one_by_one = torch.stack([pairs >> 4, pairs & 15], dim=2).view(out_features, -1, 2, BLOCK // 2)
    packed = (one_by_one[:, :, 0] | one_by_one[:, :, 1] << 4).flatten(1).contiguous()
    return PackedLinear(4, packed, scale.float().view(out_features, -1).contiguous(), table.half(), bias)


def pack_int8(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """Weights rounded to 8 bits, with one scale for each row [out]."""
    wide = weight.float()
    scale = wide.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return PackedLinear(8, (wide / scale[:, None]).round().to(torch.int8), scale, bias=bias)
