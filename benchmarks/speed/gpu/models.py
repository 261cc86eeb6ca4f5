"""Models of random weights in real shapes: their passes take the real models' time, and their texts mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.speed.gpu import timing
from benchmarks.speed.gpu.schedule import Record
from benchmarks.speed.gpu.timing import MAX_GIB, Bench
from speclsp.engine.loading import nf4_linear
from speclsp.engine.model.cuda.cuda_decoder import DRAFT_WIDTHS, NF4_TARGET_WIDTHS, TARGET_WIDTHS, CudaDecoder
from speclsp.engine.model.decoder import Layer, Norm
from speclsp.engine.model.model_shape import ModelShape

BYTES = {"bf16": 2.0, "nf4": 0.5 + 4 / 64}  # of a weight in a linear; nf4 has a float32 scale for 64 weights
BUILD_S = 4.0  # for a model's weights and its first row
QUANTIZE_S_PER_GB = 1.0  # of 16-bit weights; with 8 s, the 7B was stopped on an H200 before it was in nf4
SPARE_BYTES = 4 * 2**30  # graphs, logits and the weights being quantized


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
        weights = self.layer_parameters * BYTES[number_format]
        return weights + self.hidden * self.vocab * 2 + self.kv_bytes * length

    @property
    def kv_bytes(self) -> float:
        """Of one token."""
        return 4.0 * self.layers * self.kv_heads * self.head_dim

    def memory_bytes(self, number_format: str, tokens: int = 4096) -> float:
        """Bytes of the weights and of a cache of `tokens`; an untied embedding is a second head."""
        heads = 1 if self.tied else 2
        return self.pass_bytes(number_format, tokens) + (heads - 1) * self.hidden * self.vocab * 2


HALF = Model("0.5b", 896, 4864, 24, 14, 2, 64, 151_936, True)
ONE_AND_A_HALF = Model("1.5b", 1536, 8960, 28, 12, 2, 128, 151_936, True)
SEVEN = Model("7b", 3584, 18_944, 28, 28, 4, 128, 152_064, False)
TINY = Model("tiny", 128, 256, 3, 4, 2, 32, 1000, True)
TINY_DRAFT = replace(TINY, name="tiny-draft", layers=1)
CONTEXT_TOKENS = 2048  # of a cache; 1024 of them are filled
REAL_VOCAB = 151_665  # tokens of Qwen2.5-Coder; the head's rows beyond it are padding


def models_of(bench: Bench) -> tuple[Model, ...]:
    """The models of a run, smallest first."""
    return (TINY,) if bench.tiny else (HALF, ONE_AND_A_HALF, SEVEN)


def pairs_of(bench: Bench) -> dict[str, tuple[Model, Model]]:
    """{name: draft and target}."""
    if bench.tiny:
        return {"tiny": (TINY_DRAFT, TINY)}
    return {"0.5b-1.5b": (HALF, ONE_AND_A_HALF), "0.5b-7b": (HALF, SEVEN)}


def context_of(bench: Bench) -> tuple[int, int]:
    """(tokens that a cache has room for, tokens that it holds)."""
    return (512, 128) if bench.tiny else (CONTEXT_TOKENS, 1024)


def build_s(bench: Bench, model: Model, number_format: str) -> float:
    """Seconds to allow for building a model and for its first row: less time would end in a stopped part."""
    if not bench.on_gpu():
        return 0.0
    gigabytes = 2 * model.layer_parameters / 1e9 if number_format == "nf4" else 0.0
    return BUILD_S + QUANTIZE_S_PER_GB * gigabytes


def missing(bench: Bench, *parts: tuple[Model, str]) -> str:
    """The reason why models in these number formats cannot be built here; "" if they can."""
    if any(number_format == "nf4" for _, number_format in parts) and find_spec("bitsandbytes") is None:
        return "bitsandbytes is not installed"
    if bench.on_gpu():
        free = min(torch.cuda.mem_get_info()[0], MAX_GIB * 2**30 - torch.cuda.memory_allocated())
        need = sum(model.memory_bytes(number_format) for model, number_format in parts) + SPARE_BYTES
        if need > free:
            return f"it needs {need / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free"
    return ""


def measurable_models(bench: Bench, record: Record, need_s: float) -> Iterator[tuple[str, Model, Model]]:
    """(name, draft, target) of each pair that has time and memory in bf16; the others are listed as not measured.

    The memory of a pair returns to the device before the next one.
    """
    for name, (draft_model, target_model) in pairs_of(bench).items():
        if not record.has_time(name, need_s if bench.on_gpu() else 0.0):
            continue
        if why := missing(bench, (draft_model, "bf16"), (target_model, "bf16")):
            record.skip(name, why)
            continue
        yield name, draft_model, target_model
        timing.release(bench.device)


def decoder(bench: Bench, model: Model, number_format: str, *, draft: bool = False) -> CudaDecoder:
    """A decoder of random weights."""
    weights = build(bench, model, number_format, seed=2 if draft else 1)
    widths = DRAFT_WIDTHS if draft else NF4_TARGET_WIDTHS if number_format == "nf4" else TARGET_WIDTHS
    return CudaDecoder(**weights, widths=widths)


def prompt(vocab: int, length: int, seed: int = 1) -> list[int]:
    """Random tokens."""
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, (length,), generator=dice).tolist()


class Padded(CudaDecoder):
    """A draft whose every step is as wide as the target's pass: with the target's weights it must always agree."""

    def logits_of(self, tokens: Tensor, start: Tensor, slot: Tensor, last_only: bool = False) -> Tensor:
        rows = len(tokens)
        logits = super().logits_of(F.pad(tokens, (0, TARGET_WIDTHS[-1] - rows)), start, slot)
        return logits[rows - 1 : rows] if last_only else logits[:rows]


def build(bench: Bench, model: Model, number_format: str, *, seed: int = 1) -> dict[str, Any]:
    """A CudaDecoder's arguments: random weights in the model's shape, on the device."""
    device, context_tokens, vocab = bench.device, context_of(bench)[0], min(model.vocab, REAL_VOCAB)
    dice = torch.Generator(device=device).manual_seed(seed)

    def weight(out: int, inside: int) -> Tensor:
        tensor = torch.empty((out, inside), dtype=torch.bfloat16, device=device)
        return tensor.normal_(std=inside**-0.5, generator=dice)

    make, exact = (nf4_linear.linear_maker(name, device) for name in (number_format, "bf16"))
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
    inv_freq = 1.0 / 1e6 ** (np.arange(0, model.head_dim, 2, dtype=np.float32) / np.float32(model.head_dim))
    shape = ModelShape(
        vocab=vocab, hidden=model.hidden, heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim,
        eps=1e-6, inv_freq=inv_freq.astype(np.float32),
    )  # fmt: skip
    return {
        "shape": shape, "layers": layers, "embedding": embedding, "norm": ones, "head": head,
        "context_tokens": context_tokens, "device": device, "dtype": torch.bfloat16, "slots": 1,
    }  # fmt: skip
