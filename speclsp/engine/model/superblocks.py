"""Superblocks of Q4_K and Q6_K (ggml): 256 weights of a row in 144 or 210 bytes. forward.c computes with them.

    Q4_K   weight = d * step * q - d_base * base; q of 4 bits, step and base of 6 bits for each 32 weights
    Q6_K   weight = d * step * (q - 32);          q of 6 bits, step of 8 bits for each 16 weights

d and d_base are in half precision. In a converted model NAME.q4k or NAME.q6k, [out, in / 256 * bytes] uint8, replaces
NAME.weight, [out, in].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

SUPERBLOCK_WEIGHTS = 256
SLICE_ROWS = 512  # dequantized at a time: they stay in the cache


@dataclass(frozen=True, slots=True)
class BlockKind:
    """A kind of superblock."""

    title: str
    suffix: str  # of a tensor's name in a converted model
    bytes: int
    source: int  # its number in forward.c
    weights_of: Callable[[Tensor], Tensor]  # superblocks [rows, n, bytes] -> [rows, n * 256], float32

    def name(self, weight: str) -> str:
        """The name of a tensor's blocks: layers.0.mlp.up_proj.weight -> layers.0.mlp.up_proj.q4k."""
        return weight.removesuffix(".weight") + self.suffix

    def width(self, blocks: Tensor) -> int:
        """The number of inputs of a linear's blocks, [out, in / 256 * bytes]."""
        return blocks.shape[1] // self.bytes * SUPERBLOCK_WEIGHTS

    def dequantize(self, blocks: Tensor) -> Tensor:
        """[out, in / 256 * bytes] uint8 -> [out, in] bfloat16: the values of the file, rounded to nearest even."""
        return torch.cat(
            [
                self.weights_of(rows.reshape(len(rows), -1, self.bytes)).to(torch.bfloat16)
                for rows in torch.split(blocks, SLICE_ROWS)
            ]
        )


def q4k_weights(block: Tensor) -> Tensor:
    """Superblocks of Q4_K, [rows, n, 144] uint8, as float32 weights, [rows, n * 256]."""
    d, d_base = block[..., :4].contiguous().view(torch.float16).float().unbind(-1)
    low, middle, high = block[..., 4:8], block[..., 8:12], block[..., 12:16]
    step = torch.cat([low & 63, (high & 15) | (low >> 6 << 4)], -1).float()  # [rows, n, 8]
    base = torch.cat([middle & 63, (high >> 4) | (middle >> 6 << 4)], -1).float()
    packed = block[..., 16:].unflatten(-1, (4, 32))
    q = torch.stack([packed & 15, packed >> 4], -2).flatten(-3, -2).float()  # [rows, n, 8, 32]
    return ((d[..., None] * step)[..., None] * q - (d_base[..., None] * base)[..., None]).flatten(1)


def q6k_weights(block: Tensor) -> Tensor:
    """Superblocks of Q6_K, [rows, n, 210] uint8, as float32 weights, [rows, n * 256]."""
    d = block[..., 208:].contiguous().view(torch.float16).float()  # [rows, n, 1]
    step = block[..., 192:208].contiguous().view(torch.int8).float()  # [rows, n, 16]
    packed = block[..., :128].unflatten(-1, (2, 2, 32))  # [rows, n, half of the weights, 2, 32]
    low = torch.cat([packed & 15, packed >> 4], -2)  # [rows, n, 2, 4, 32]
    pairs = block[..., 128:192].unflatten(-1, (2, 1, 32))
    high = torch.cat([pairs >> shift & 3 for shift in (0, 2, 4, 6)], -2)
    q = (low | high << 4).flatten(-3).unflatten(-1, (16, 16)).float() - 32  # [rows, n, 16, 16]
    weights: Tensor = (d * step)[..., None] * q
    return weights.flatten(1)


class WeightMatrix(NamedTuple):
    """Weights of a linear or of the embedding: floats [out, in], or superblocks [out, in / 256 * kind.bytes] uint8."""

    tensor: Tensor
    kind: BlockKind | None = None
    bits: int = 8  # that forward.c rounds floats to: 8, or those of coded.h

    @property
    def source(self) -> int:
        """The number of the kind, or of the bits, in forward.c."""
        return self.kind.source if self.kind else CODED_SOURCES.get(self.bits, 0)

    def first(self, rows: int) -> WeightMatrix:
        """The first rows."""
        return self._replace(tensor=self.tensor[:rows])


Q4K = BlockKind("Q4_K", ".q4k", 144, 1, q4k_weights)
Q6K = BlockKind("Q6_K", ".q6k", 210, 2, q6k_weights)
KINDS = (Q4K, Q6K)
CODED_SOURCES = {4: 3, 5: 4, 6: 5}  # numbers in forward.c, by bits


def weight_name(name: str) -> str:
    """The name of the weight that a name stands for, by itself or by its blocks."""
    for kind in KINDS:
        name = name.removesuffix(kind.suffix)
    return name.removesuffix(".weight") + ".weight"
