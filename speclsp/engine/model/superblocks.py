"""Superblocks of Q4_K and Q6_K (ggml): 256 weights of a row in 144 or 210 bytes. forward.c computes with them.

    Q4_K   weight = d * step * q - d_base * base; q of 4 bits, step and base of 6 bits for each 32 weights
    Q6_K   weight = d * step * (q - 32);          q of 6 bits, step of 8 bits for each 16 weights

d and d_base are in half precision. In a GGUF that is mostly Q4_K, NAME.q4k or NAME.q6k, [out, in / 256 * bytes] uint8,
are the blocks of NAME.weight, [out, in], beside it (gguf_tensors.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from speclsp.engine.model.bfloat16 import Array, Floats, narrow

SUPERBLOCK_WEIGHTS = 256


@dataclass(frozen=True, slots=True)
class BlockKind:
    """A kind of superblock."""

    title: str
    suffix: str  # of the tensor's name
    bytes: int
    source: int  # its number in forward.c
    weights_of: Callable[[Array], Floats]  # superblocks [rows, n, bytes] -> [rows, n * 256], float32

    def name(self, weight: str) -> str:
        """The name of a tensor's blocks: layers.0.mlp.up_proj.weight -> layers.0.mlp.up_proj.q4k."""
        return weight.removesuffix(".weight") + self.suffix

    def width(self, blocks: Array) -> int:
        """The number of inputs of a linear's blocks, [out, in / 256 * bytes]."""
        return int(blocks.shape[1]) // self.bytes * SUPERBLOCK_WEIGHTS


def halves(block: Array) -> Floats:
    """Bytes of half precision, [..., 2 * n], as [..., n] float32."""
    return np.ascontiguousarray(block).view(np.float16).astype(np.float32)


def q4k_weights(block: Array) -> Floats:
    """Superblocks of Q4_K, [rows, n, 144] uint8, as float32 weights, [rows, n * 256]."""
    d, d_base = halves(block[..., :2]), halves(block[..., 2:4])  # [rows, n, 1]
    low, middle, high = block[..., 4:8], block[..., 8:12], block[..., 12:16]
    step = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], -1).astype(np.float32)  # [rows, n, 8]
    base = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], -1).astype(np.float32)
    packed = block[..., 16:].reshape(*block.shape[:2], 4, 32)
    q = np.stack([packed & 15, packed >> 4], -2).reshape(*block.shape[:2], 8, 32)
    weights: Floats = (d * step)[..., None] * q - (d_base * base)[..., None]
    return weights.reshape(len(block), -1)


def q6k_weights(block: Array) -> Floats:
    """Superblocks of Q6_K, [rows, n, 210] uint8, as float32 weights, [rows, n * 256]."""
    shape, d = block.shape[:2], halves(block[..., 208:])  # [rows, n, 1]
    step = block[..., 192:208].astype(np.int8).astype(np.float32)  # [rows, n, 16]
    packed = block[..., :128].reshape(*shape, 2, 2, 32)  # [rows, n, half of the weights, 2, 32]
    low = np.concatenate([packed & 15, packed >> 4], -2)  # [rows, n, 2, 4, 32]
    pairs = block[..., 128:192].reshape(*shape, 2, 1, 32)
    high = np.concatenate([pairs >> shift & 3 for shift in (0, 2, 4, 6)], -2)
    q = (low | high << 4).astype(np.int8).reshape(*shape, 16, 16) - np.int8(32)  # [rows, n, 16, 16]
    weights: Floats = (d * step)[..., None] * q
    return weights.reshape(len(block), -1)


class WeightMatrix(NamedTuple):
    """Weights of a linear or of the embedding: floats [out, in], or superblocks [out, in / 256 * kind.bytes] uint8."""

    tensor: Array
    kind: BlockKind | None = None
    bits: int = 8  # that forward.c rounds floats to: 8, or those of coded.h

    @property
    def source(self) -> int:
        """The number of the kind, or of the bits, in forward.c."""
        return self.kind.source if self.kind else CODED_SOURCES.get(self.bits, 0)

    def first(self, rows: int) -> WeightMatrix:
        """The first rows."""
        return self._replace(tensor=self.tensor[:rows])

    def contiguous(self) -> WeightMatrix:
        """The same in rows without gaps; floats in bfloat16."""
        return self._replace(tensor=np.ascontiguousarray(self.tensor if self.kind else narrow(self.tensor)))


Q4K = BlockKind("Q4_K", ".q4k", 144, 1, q4k_weights)
Q6K = BlockKind("Q6_K", ".q6k", 210, 2, q6k_weights)
KINDS = (Q4K, Q6K)
CODED_SOURCES = {4: 3, 6: 4}  # numbers in forward.c, by bits


def weight_name(name: str) -> str:
    """The name of the weight that a name stands for, by itself or by its blocks."""
    for kind in KINDS:
        name = name.removesuffix(kind.suffix)
    return name.removesuffix(".weight") + ".weight"
