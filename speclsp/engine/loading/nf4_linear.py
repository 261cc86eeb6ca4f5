"""Linears in 4-bit NormalFloat (nf4), and the linear for each number format. Only entry point for bitsandbytes.

On a GPU with Triton, bitsandbytes quantizes, and the kernels of model/cuda multiply: their time does not grow from 1 to
16 rows. On a CPU, without Triton, and for layers that no kernel computes, bitsandbytes multiplies too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from speclsp.engine.loading.model_config import quiet_imports
from speclsp.engine.model.cpu_linears import FloatLinear, Int8Linear
from speclsp.engine.model.cuda import device_ops, packed_weights
from speclsp.engine.model.cuda.ops import TORCH
from speclsp.engine.model.cuda.packed_weights import PackedLinear
from speclsp.engine.model.decoder import Linear
from speclsp.engine.model.model_shape import ROWS

NF4_BLOCK = 64  # weights that share a scale
WIDE_ROWS = 16  # rows above which dequantizing the weights is faster than the 4-bit kernel


class Nf4Linear:
    """y = x Wᵀ + b with W in 4-bit NormalFloat (QLoRA, arXiv 2305.14314), blocks of 64, by bitsandbytes in bf16.

    Its CPU kernel takes time for every row (ms per 100 M parameters on two cores: 5 for 1 row, 79 for 64). So a draft's
    prefill dequantizes the weights for each pass and multiplies in bf16 (22 for 64 rows), from a second copy of 0.56
    bytes a parameter. A target's rows must not depend on the pass they are in: it always runs in slices of ROWS rows.

    Args:
        rows: ROWS for a target, 1 for a draft.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, device: str, rows: int) -> None:
        with quiet_imports():
            from bitsandbytes import functional
            from bitsandbytes.nn import Linear4bit, Params4bit

        out_features, in_features = weight.shape
        module = Linear4bit(
            in_features,
            out_features,
            bias=bias is not None,
            compute_dtype=torch.bfloat16,
            compress_statistics=False,
            quant_type="nf4",
        )
        module.weight = Params4bit(
            weight.to(torch.bfloat16),
            requires_grad=False,
            compress_statistics=False,
            quant_type="nf4",
            blocksize=NF4_BLOCK,
        )
        if bias is not None:
            module.bias = torch.nn.Parameter(bias.to(torch.bfloat16), requires_grad=False)
        self.rows, self.bias = rows, module.bias
        self.dequantize: Callable[[], Tensor] | None = None
        if device == "cpu" and rows == 1:
            packed, state = functional.quantize_4bit(weight.to(torch.bfloat16), quant_type="nf4", blocksize=NF4_BLOCK)
            self.dequantize = lambda: functional.dequantize_4bit(packed, state)
        self.module = module.to(device).eval()

    def __call__(self, x: Tensor) -> Tensor:
        x_bf16 = x.to(torch.bfloat16)
        if self.dequantize is not None and len(x) > WIDE_ROWS:
            return torch.nn.functional.linear(x_bf16, self.dequantize(), self.bias).to(x.dtype)
        if self.rows == ROWS and len(x) > ROWS:
            return torch.cat([self.module(rows) for rows in torch.split(x_bf16, ROWS)]).to(x.dtype)
        y: Tensor = self.module(x_bf16)
        return y.to(x.dtype)


def packed_nf4(weight: Tensor, bias: Tensor | None, device: str) -> PackedLinear:
    """The weights as bitsandbytes quantizes them on the device, in the order of the kernels."""
    with quiet_imports():
        from bitsandbytes import functional

    on_device = weight.to(device, torch.bfloat16)
    codes, state = functional.quantize_4bit(on_device, quant_type="nf4", blocksize=NF4_BLOCK)
    bias = None if bias is None else bias.to(device, torch.bfloat16)
    return packed_weights.pack_nf4(codes, state.absmax, state.code, len(weight), bias)


def has_kernels(device: str) -> bool:
    """True if the device computes with our kernels, which read packed weights."""
    return device_ops.ops_for(device) is not TORCH


def linear_maker(
    number_format: str, device: str, rows: int, fused: bool = True
) -> Callable[[Tensor, Tensor | None], Linear]:
    """weight [out, in], bias -> a Linear of that number format on that device.

    On a GPU the passes have fixed widths (cuda/cuda_decoder.py); on a CPU the linears cut them into slices of `rows`.
    `fused`: the model's layers are of the form that our kernels compute, so its nf4 is packed for them.
    """
    rows = rows if device == "cpu" else 1
    slice_rows = ROWS if rows == ROWS else 0

    def make(weight: Tensor, bias: Tensor | None) -> Linear:
        if number_format == "int8":
            return Int8Linear(weight, bias)
        if number_format == "nf4" and fused and weight.shape[1] % packed_weights.BLOCK == 0 and has_kernels(device):
            return packed_nf4(weight, bias, device)
        if number_format == "nf4" and weight.shape[1] % NF4_BLOCK == 0:  # bitsandbytes 0.50.2 on CPU misplaces others
            return Nf4Linear(weight, bias, device, rows)
        dtype = torch.float32 if number_format == "fp32" else torch.bfloat16
        own_bias = None if bias is None else bias.to(device)
        return FloatLinear(weight.to(device, dtype), own_bias, rows=slice_rows)

    return make
