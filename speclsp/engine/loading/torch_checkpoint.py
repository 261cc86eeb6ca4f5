"""Decoders that compute with torch: the reference on a CPU, and the decoder of a GPU, from a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speclsp.engine.loading.model_config import ModelConfig
from speclsp.engine.loading.nf4_linear import linear_maker
from speclsp.engine.model.bfloat16 import Array
from speclsp.engine.model.cpu_linears import int8_is_exact
from speclsp.engine.model.cuda.cuda_decoder import DRAFT_WIDTHS, NF4_TARGET_WIDTHS, TARGET_WIDTHS, CudaDecoder
from speclsp.engine.model.decoder import Decoder, Layer, Linear, Norm
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.engine.model.model_shape import ModelShape
from speclsp.engine.scheduling.loaded_model import ReportProgress


def read(
    get: Callable[..., Any],
    config: ModelConfig,
    shape: ModelShape,
    number_format: str,
    device: str,
    context_tokens: int,
    progress: ReportProgress,
    is_draft: bool,
    dtype: torch.dtype | None,
    slots: int,
    threads: int,
) -> CachedModel:
    """A decoder from the tensors that `get` returns; the other arguments as in checkpoint.read_decoder."""
    if threads and device == "cpu":
        torch.set_num_threads(threads)
    if number_format == "int8" and not int8_is_exact():  # with AVX2 only, forward.c is exact and oneDNN is not
        number_format = "fp32"
    dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
    weights = read_weights(get, config, shape, number_format, device, dtype, progress)
    if device != "cpu":
        widths = DRAFT_WIDTHS if is_draft else NF4_TARGET_WIDTHS if number_format == "nf4" else TARGET_WIDTHS
        return CudaDecoder(
            *weights, context_tokens=context_tokens, widths=widths, device=device, dtype=dtype, slots=slots
        )
    decoder = Decoder(*weights, context_tokens=context_tokens, dtype=dtype)
    decoder.path, decoder.number_format = "oneDNN" if number_format == "int8" else "", number_format
    return decoder


def read_weights(
    get: Callable[..., Any],
    config: ModelConfig,
    shape: ModelShape,
    number_format: str,
    device: str,
    dtype: torch.dtype,
    progress: ReportProgress,
) -> tuple[ModelShape, list[Layer], Tensor, Norm, Linear]:
    """The positional arguments of Decoder and CudaDecoder, from tensors by their published names."""
    family = config.family
    make = linear_maker(number_format, device)

    def optional(name: str) -> Tensor | None:
        array = get(name, optional=True)
        return None if array is None else tensor(array)

    def linear(names: list[str]) -> Linear:
        parts = [tensor(get(f"{name}.weight")) for name in names]
        biases = [optional(f"{name}.bias") for name in names]
        bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        return make(torch.cat(parts) if len(parts) > 1 else parts[0], bias)

    def norm(name: str, may_be_missing: bool = False) -> Any:  # a Norm; None if it is missing
        weight, bias = get(f"{name}.weight", optional=may_be_missing), optional(f"{name}.bias")
        if weight is None:
            return None
        bias = None if bias is None else bias.to(device, dtype)
        return Norm(weight=(tensor(weight).float() + family.norm_offset).to(device, dtype), bias=bias)

    def layer(number: int) -> Layer:
        progress(number / config.num_hidden_layers, f"loading {config.directory.name} ({number_format})")
        at = f"model.layers.{number}"
        return Layer(
            norm_attention=norm(f"{at}.input_layernorm"),
            qkv=linear([f"{at}.self_attn.{x}_proj" for x in "qkv"]),
            out=linear([f"{at}.self_attn.o_proj"]),
            norm_mlp=norm(f"{at}.post_attention_layernorm"),
            up=linear([f"{at}.{x}" for x in family.up]),
            down=linear([f"{at}.{family.down}"]),
            norm_q=norm(f"{at}.self_attn.q_norm", may_be_missing=True),
            norm_k=norm(f"{at}.self_attn.k_norm", may_be_missing=True),
        )

    layers = [layer(number) for number in range(config.num_hidden_layers)]
    embedding = tensor(get("model.embed_tokens.weight")).to(device)
    head_weight = optional("lm_head.weight")
    head_weight = embedding if head_weight is None else head_weight
    # 4 bits cost a head more quality than time: the logits are the last thing to round
    head_maker = linear_maker("int8" if device == "cpu" and int8_is_exact() else "bf16", device)
    head = (head_maker if number_format == "nf4" else make)(head_weight[: shape.vocab], None)
    return shape, layers, embedding, norm("model.norm"), head


def tensor(array: Array) -> Tensor:
    """The same memory as a tensor; uint16 is bfloat16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
