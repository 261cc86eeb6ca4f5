"""Models of random weights in real shapes: their passes take the real models' time, and their texts mean nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from speclsp.engine.loading import nf4_linear
from speclsp.engine.model.cuda.cuda_decoder import TARGET_WIDTHS, CudaDecoder
from speclsp.engine.model.decoder import Layer, ModelShape, Norm


@dataclass(frozen=True)
class Model:
    """The shape of a Qwen2.5-Coder model; `vocab` is the head's own."""

    name: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool

    @property
    def layer_parameters(self) -> int:
        qkv_out = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (qkv_out + 3 * self.hidden * self.inner)

    def pass_bytes(self, number_format: str, length: int) -> float:
        """Bytes that one pass must read: weights, and the KV of `length` tokens."""
        weights = self.layer_parameters * {"bf16": 2.0, "nf4": 0.5 + 4 / 64, "fp32": 4.0}[number_format]
        return weights + self.hidden * self.vocab * 2 + 4.0 * self.layers * self.kv_heads * self.head_dim * length


HALF = Model("0.5b", 896, 4864, 24, 14, 2, 64, 151_936, True)
ONE_AND_A_HALF = Model("1.5b", 1536, 8960, 28, 12, 2, 128, 151_936, True)
SEVEN = Model("7b", 3584, 18_944, 28, 28, 4, 128, 152_064, False)
TINY = Model("tiny", 128, 256, 3, 4, 2, 32, 1000, True)
PAIRS = {  # name -> draft, its number format, target
    "0.5b-1.5b": (HALF, "nf4", ONE_AND_A_HALF),
    "0.5b-7b": (HALF, "nf4", SEVEN),
    "tiny": (replace(TINY, name="tiny-draft", layers=1), "bf16", TINY),
}


class Padded(CudaDecoder):
    """A draft whose every step is as wide as the target's pass: with the target's weights it must always agree."""

    def logits_of(self, tokens: Tensor, start: Tensor, slot: Tensor, last_only: bool = False) -> Tensor:
        rows = len(tokens)
        logits = super().logits_of(F.pad(tokens, (0, TARGET_WIDTHS[-1] - rows)), start, slot)
        return logits[rows - 1 : rows] if last_only else logits[:rows]


def build(model: Model, number_format: str, device: str, vocab: int, context_tokens: int, seed: int) -> dict[str, Any]:
    """A CudaDecoder's arguments: random weights in the model's shape, on the device."""
    dice = torch.Generator(device=device).manual_seed(seed)

    def weight(out: int, inside: int) -> Tensor:
        tensor = torch.empty((out, inside), dtype=torch.bfloat16, device=device)
        return tensor.normal_(std=inside**-0.5, generator=dice)

    make, exact = (nf4_linear.linear_maker(name, device, 1) for name in (number_format, "bf16"))
    ones = Norm(weight=torch.ones(model.hidden, dtype=torch.bfloat16, device=device))
    qkv = (model.heads + 2 * model.kv_heads) * model.head_dim
    layers = [
        Layer(
            norm_attention=ones,
            qkv=make(weight(qkv, model.hidden), torch.zeros(qkv, dtype=torch.bfloat16, device=device)),
            out=make(weight(model.hidden, model.heads * model.head_dim), None),
            norm_mlp=ones,
            up=make(weight(2 * model.inner, model.hidden), None),
            down=make(weight(model.hidden, model.inner), None),
        )
        for _ in range(model.layers)
    ]
    embedding = weight(model.vocab, model.hidden)
    head = exact(embedding if model.tied else weight(model.vocab, model.hidden), None)
    inv_freq = 1.0 / 1e6 ** (torch.arange(0, model.head_dim, 2).float() / model.head_dim)
    shape = ModelShape(
        vocab=vocab, hidden=model.hidden, heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim,
        eps=1e-6, inv_freq=inv_freq,
    )  # fmt: skip
    return {
        "shape": shape, "layers": layers, "embedding": embedding, "norm": ones, "head": head,
        "context_tokens": context_tokens, "device": device, "dtype": torch.bfloat16, "slots": 1,
    }  # fmt: skip
