"""Builds a NativeDecoder from the tensors of a Llama- or Qwen-shaped model, in int8 or with fewer bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from speclsp.engine.model.bfloat16 import Array, narrow, widen
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.native import (
    BLOCK_BITS,
    CODED_PATHS,
    DOWN,
    EMBEDDING,
    LAST,
    NORM_ATTENTION,
    NORM_K,
    NORM_MLP,
    NORM_Q,
    OUT,
    QKV,
    UP,
    NativeDecoder,
)
from speclsp.engine.model.model_shape import ModelShape
from speclsp.engine.model.superblocks import KINDS, Q6K, WeightMatrix

LLAMA_MLP = ("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj"
Packed = Callable[[NativeDecoder, int, int], None]  # a decoder, a layer, and which of its linears
OTHER_BITS = 6  # of attention, head and embedding with fewer bits in the MLP: they lose more than they weigh


@dataclass(frozen=True, slots=True)
class WeightReader:
    """Tensors of a model by their published names, in the formats of a path.

    Args:
        read: a tensor by name; with `optional=True`, None when there is none.
        mlp_bits: 8: int8. 4: superblocks, NAME.q4k and NAME.q6k, are kept, and the other weights rounded to 4 bits in
            the MLP, and to OTHER_BITS elsewhere.
        mlp: names of the linears into the MLP, gate first, and of the one out of it, in a layer.
    """

    read: Callable[..., Any]
    path: str
    mlp_bits: int
    mlp: tuple[tuple[str, ...], str]

    @property
    def coded(self) -> bool:
        """True if weights have fewer than 8 bits."""
        return self.mlp_bits < 8 and self.path in CODED_PATHS

    def optional(self, name: str) -> Array | None:
        """A tensor, or None."""
        tensor: Array | None = self.read(name, optional=True)
        return tensor

    def weights(self, names: list[str], bits: int = OTHER_BITS) -> WeightMatrix:
        """Several linears as one: superblocks if all of them are stored as one kind that is kept."""
        for kind in BLOCK_BITS[self.path] if self.coded else {}:
            blocks = [block for name in names if (block := self.optional(kind.name(name))) is not None]
            if len(blocks) == len(names):
                return WeightMatrix(joined(blocks), kind)
        if any(self.optional(Q6K.name(name)) is not None for name in names):
            bits = OTHER_BITS  # the file gives them more bits, too
        floats = joined([narrow(self.read(f"{name}.weight")) for name in names])
        return WeightMatrix(floats, bits=bits if self.coded and floats.shape[1] % 32 == 0 else 8)

    def bias(self, names: list[str]) -> Array | None:
        """The biases of several linears as one."""
        biases = [widen(bias) for name in names if (bias := self.optional(f"{name}.bias")) is not None]
        return joined(biases) if biases else None

    def set_layer(self, decoder: NativeDecoder, number: int, set_linear: Callable[..., None]) -> None:
        """Set the weights of a layer."""
        at = f"model.layers.{number}"
        for which, names in (
            (QKV, [f"{at}.self_attn.{p}_proj" for p in "qkv"]),
            (OUT, [f"{at}.self_attn.o_proj"]),
            (UP, [f"{at}.{name}" for name in self.mlp[0]]),
            (DOWN, [f"{at}.{self.mlp[1]}"]),
        ):
            bits = self.mlp_bits if which in (UP, DOWN) else OTHER_BITS
            set_linear(number, which, self.weights(names, bits), self.bias(names))
        decoder.set_norm(number, NORM_ATTENTION, self.read(f"{at}.input_layernorm.weight"))
        decoder.set_norm(number, NORM_MLP, self.read(f"{at}.post_attention_layernorm.weight"))
        for which, name in ((NORM_Q, "q_norm"), (NORM_K, "k_norm")):
            if (own := self.optional(f"{at}.self_attn.{name}.weight")) is not None:
                decoder.set_norm(number, which, own)


def joined(parts: Sequence[Array]) -> Array:
    """Rows of several arrays as one array; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def build(
    shape: ModelShape,
    layers: int,
    inner: int,
    read: Callable[..., Any],
    *,
    context_tokens: int,
    threads: int,
    path: str = "",
    mlp_bits: int = 8,
    mlp: tuple[tuple[str, ...], str] = LLAMA_MLP,
    progress: Callable[[float], None] = lambda fraction: None,
    packed: Packed = lambda decoder, layer, which: None,
) -> NativeDecoder:
    """A decoder with the weights that `read` gives; for `read`, `mlp_bits` and `mlp` see WeightReader.

    Args:
        packed: is called after each linear is packed, and may release it.
    """
    reader = WeightReader(read, path or native.best_path(), mlp_bits, mlp)
    embedding = reader.weights(["model.embed_tokens"])
    names = (*(kind.name("lm_head") for kind in KINDS), "lm_head.weight")
    tied = all(reader.optional(name) is None for name in names)
    decoder = NativeDecoder(
        shape,
        layers,
        inner,
        embedding if embedding.kind else None,
        context_tokens=context_tokens,
        threads=threads,
        path=reader.path,
    )
    if reader.coded:
        decoder.number_format = f"int{mlp_bits}"

    def set_linear(layer: int, which: int, weights: WeightMatrix, bias: Array | None = None) -> None:
        decoder.set_linear(layer, which, weights, bias)
        packed(decoder, layer, which)

    for number in range(layers):
        reader.set_layer(decoder, number, set_linear)
        progress((number + 1) / layers)
    set_linear(LAST, 0, (embedding if tied else reader.weights(["lm_head"])).first(shape.vocab))
    if decoder.embedding is None and not tied:
        set_linear(EMBEDDING, 0, embedding.first(shape.vocab))
    decoder.set_norm(LAST, 0, reader.read("model.norm.weight"))
    return decoder
