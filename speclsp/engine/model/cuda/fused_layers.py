"""Passes of at most 16 rows by layer_kernels.py: five kernels a layer, for models of the Llama form.

The decoder keeps its own operations for wider passes, for other models, and where there is no Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from speclsp.engine.model.cuda import device_ops
from speclsp.engine.model.cuda.attention_kernels import attention_kernel
from speclsp.engine.model.cuda.kernels import MAX_PARTS, PART, precision, tiles
from speclsp.engine.model.cuda.layer_kernels import (
    BLOCK_K,
    TILE_ROWS,
    embed_kernel,
    linear_kernel,
)
from speclsp.engine.model.cuda.packed_weights import BLOCK, PackedLinear
from speclsp.engine.model.cuda.tail_kernels import power_of_two
from speclsp.engine.model.decoder import Layer, Linear, Norm
from speclsp.engine.model.model_shape import ModelShape

COLUMNS, MANY_COLUMNS = 32, 64  # of a program; the latter for the head
MANY_FEATURES = 32_768  # a product with as many has MANY_COLUMNS
MIN_PROGRAMS = 132  # as an H100 has multiprocessors: below it a product is split over K
MIN_SPLIT_INPUTS = 128  # of a program of a split product
MAX_SPLIT = 8
PDL_CAPABILITY = (9, 0)  # compute capability from which a kernel may start before its predecessor ends


class NarrowPassModel(Protocol):
    """The decoder's part that its narrow passes read: cuda_decoder.CudaDecoder has more."""

    shape: ModelShape
    layers: list[Layer]
    embedding: Tensor | PackedLinear
    norm: Norm
    head: Linear
    dtype: torch.dtype
    header: Tensor  # any tensor on the device
    keys: Tensor
    values: Tensor
    cos: Tensor
    sin: Tensor
    scale: float


def fits(decoder: NarrowPassModel) -> bool:
    """True if the kernels compute this decoder's layers, in the form of its weights."""
    linears = [part for layer in decoder.layers for part in (layer.qkv, layer.out, layer.up, layer.down)]
    packed = all(packed_of(linear) is not None for linear in (*linears, decoder.head))
    own_norms = any(layer.norm_q is not None for layer in decoder.layers)
    return packed and device_ops.computes_layers(decoder.shape, own_norms)


def alternatives(decoder: NarrowPassModel) -> list[FusedLayers]:
    """The ways to launch the kernels on the decoder's device; empty if they do not compute its layers."""
    if not fits(decoder):
        return []
    first = FusedLayers(decoder)
    return [first, FusedLayers(decoder, pdl=False)] if first.pdl else [first]


def packed_of(linear: Any) -> PackedLinear | None:
    """The weights of a linear as the kernels read them; None if they cannot."""
    if isinstance(linear, PackedLinear):
        return linear
    weight = getattr(linear, "weight", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        return None
    return PackedLinear(16, weight, bias=getattr(linear, "bias", None))


class FusedLayers:
    """The narrow passes of one decoder.

    Args:
        pdl: launch each kernel while its predecessor ends; None: where the device can.
    """

    def __init__(self, decoder: NarrowPassModel, pdl: bool | None = None) -> None:
        self.decoder, shape = decoder, decoder.shape
        device = decoder.header.device
        if pdl is None:
            pdl = device.type == "cuda" and torch.cuda.get_device_capability(device) >= PDL_CAPABILITY
        self.pdl = pdl
        self.layers = [
            tuple(packed_of(part) for part in (layer.qkv, layer.out, layer.up, layer.down)) for layer in decoder.layers
        ]
        self.head = packed_of(decoder.head)
        embedding = decoder.embedding
        self.embedding = embedding if isinstance(embedding, PackedLinear) else PackedLinear(16, embedding)
        self.squares = power_of_two(-(-shape.hidden // COLUMNS))  # parts of a row's Σx²
        widest = max(linear.out_features for linears in self.layers for linear in linears if linear is not None)
        self.counters = torch.zeros(max(-(-widest // COLUMNS), 1024), dtype=torch.int32, device=device)
        sizes = [part_size(linear, at == 2) for linears in self.layers for at, linear in enumerate(linears)]
        self.parts = torch.empty(max([1, *sizes, part_size(self.head, False)]), dtype=torch.float32, device=device)

    def logits(self, tokens: Tensor, start: Tensor, slot: Tensor, last_only: bool) -> Tensor:
        """A pass over `tokens` [M] at `start` of `slot`: [M, out] or the last row's, in the decoder's type."""
        decoder, rows = self.decoder, len(tokens)
        x, squares = self.embedded(tokens)
        for layer, linears, keys, values in zip(decoder.layers, self.layers, decoder.keys, decoder.values, strict=True):
            self.layer(layer, linears, x, squares, start, slot, keys, values)
        if last_only and rows > 1:
            x, squares = x[rows - 1 :], squares[rows - 1 :]
        return self.linear(x, self.head, norm=decoder.norm, squares=squares)

    def embedded(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream [M, hidden], and the parts of its rows' Σx²."""
        rows, hidden = len(tokens), self.decoder.shape.hidden
        x = torch.empty((rows, hidden), dtype=self.decoder.dtype, device=tokens.device)
        squares = torch.zeros((TILE_ROWS, self.squares), dtype=torch.float32, device=tokens.device)
        weights = self.embedding
        embed_kernel[(rows,)](
            tokens, weights.weight, weights.weight if weights.scale is None else weights.scale, x, squares, hidden,
            BITS=weights.bits, SQUARES=self.squares, BLOCK=power_of_two(hidden),
        )  # fmt: skip
        return x, squares

    def layer(
        self, layer: Layer, linears: Sequence[Any], x: Tensor, squares: Tensor, start: Tensor, slot: Tensor,
        keys: Tensor, values: Tensor,
    ) -> None:  # fmt: skip
        """One layer, in place: `x` and `squares` are those of its output afterwards."""
        qkv, out, up, down = linears
        mixed = self.linear(x, qkv, norm=layer.norm_attention, squares=squares)
        self.linear(self.attention(mixed, start, slot, keys, values), out, residual=x, squares=squares)
        active = self.linear(x, up, norm=layer.norm_mlp, squares=squares, gated=True)
        self.linear(active, down, residual=x, squares=squares)

    def linear(
        self,
        x: Tensor,
        weights: PackedLinear | None,
        *,
        squares: Tensor,
        norm: Norm | None = None,
        residual: Tensor | None = None,
        gated: bool = False,
    ) -> Tensor:
        """A product with the norm before it, or the residual and its Σx² after it; `residual` is written in place."""
        assert weights is not None
        rows, inside = x.shape
        out_features = weights.out_features // (2 if gated else 1)
        out = residual
        if out is None:
            out = torch.empty((rows, out_features), dtype=x.dtype, device=x.device)
        columns, split = tiling(out_features, inside)
        weight = weights.weight
        linear_kernel[(-(-out_features // columns), split)](
            x, weight, weight if weights.scale is None else weights.scale,
            weight if weights.table is None else weights.table, weight if weights.bias is None else weights.bias,
            x if norm is None else norm.weight, squares, out, squares, self.parts, self.counters,
            self.decoder.shape.eps, rows, out_features,
            IN=inside, BITS=weights.bits, NORM=norm is not None, SQUARES=self.squares, BIAS=weights.bias is not None,
            GATED=gated, RESIDUAL=residual is not None, SPLIT=split, M=TILE_ROWS, N=columns, K=BLOCK_K,
            PDL=self.pdl, PRECISION=precision(x), **launch(self.pdl, x.element_size()),
        )  # fmt: skip
        return out

    def attention(self, qkv: Tensor, start: Tensor, slot: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """RoPE, the cache's new entries, and attention: [M, (H + 2J) * D] -> [M, H * D]."""
        decoder, rows = self.decoder, len(qkv)
        shape, (kv_heads, capacity, width) = decoder.shape, keys.shape[1:]
        group = shape.heads // kv_heads
        part = max(PART, power_of_two(-(-capacity // MAX_PARTS)))
        parts = -(-capacity // part)
        block_d = max(16, power_of_two(width))
        block_q, block_k = tiles(rows * group, block_d * qkv.element_size())
        row_tiles = -(-rows * group // block_q)
        lines = row_tiles * block_q
        pieces = torch.empty((parts, kv_heads, lines, width), dtype=torch.float32, device=qkv.device)
        most, total = torch.empty((2, parts, kv_heads, lines), dtype=torch.float32, device=qkv.device)
        out = torch.empty((rows, shape.heads * width), dtype=qkv.dtype, device=qkv.device)
        attention_kernel[(kv_heads, parts, row_tiles)](
            qkv, decoder.cos, decoder.sin, start, slot, keys, values, pieces, most, total, self.counters, out,
            decoder.scale, rows, keys.stride(0), keys.stride(1),
            J=kv_heads, G=group, D=width, PARTS=parts, PART=part, BLOCK_Q=block_q, BLOCK_K=block_k, BLOCK_D=block_d,
            PDL=self.pdl, PRECISION=precision(qkv), **({"launch_pdl": True} if self.pdl else {}),
        )  # fmt: skip
        return out


def tiling(out_features: int, in_features: int) -> tuple[int, int]:
    """(columns of a program, programs over K): by the weights' shape only, so that a row's sum has one order."""
    columns = MANY_COLUMNS if out_features >= MANY_FEATURES else COLUMNS
    blocks, split = -(-out_features // columns), 1
    while blocks * split < MIN_PROGRAMS and split < MAX_SPLIT and in_features >= 2 * split * MIN_SPLIT_INPUTS:
        split *= 2
    return columns, split


def part_size(linear: PackedLinear | None, gated: bool) -> int:
    """Floats that the programs of a split product store."""
    assert linear is not None
    in_features = linear.weight.shape[1] * (2 if linear.bits == 4 else 1)
    out_features = linear.out_features // (2 if gated else 1)
    columns, split = tiling(out_features, in_features)
    return 0 if split == 1 else -(-out_features // columns) * split * 2 * TILE_ROWS * columns


def launch(pdl: bool, value_bytes: int) -> dict[str, Any]:
    """Options of a product's kernel: as many stages as fit 99 KiB of shared memory, the least of Ampere and Ada."""
    return {"num_warps": 4, "num_stages": 4 if value_bytes == 2 else 2, **({"launch_pdl": True} if pdl else {})}


assert BLOCK_K == BLOCK  # a step reads whole blocks of packed codes
