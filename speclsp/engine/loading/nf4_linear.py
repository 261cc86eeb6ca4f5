"""Linears in 4-bit NormalFloat (nf4), and the linear for each number format. Only entry point for bitsandbytes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from speclsp.engine.loading.model_config import quiet_imports
from speclsp.engine.model.cpu_linears import FloatLinear, Int8Linear
from speclsp.engine.model.decoder import Linear
from speclsp.engine.model.model_shape import ROWS

NF4_BLOCK = 64  # weights that share a scale


class Nf4Linear:
    """y = x Wᵀ + b with W in 4-bit NormalFloat (QLoRA, arXiv 2305.14314), blocks of 64, by bitsandbytes in bf16.

    Args:
        slice_rows: rows of a product on a CPU, so that no row of a target depends on its pass; 0: all rows at once.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, device: str, slice_rows: int) -> None:
        with quiet_imports():
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
        self.slice_rows = slice_rows
        self.module = module.to(device).eval()

    def __call__(self, x: Tensor) -> Tensor:
        x_bf16 = x.to(torch.bfloat16)
        if self.slice_rows:
            return torch.cat([self.module(rows) for rows in torch.split(x_bf16, self.slice_rows)]).to(x.dtype)
        y: Tensor = self.module(x_bf16)
        return y.to(x.dtype)


def linear_maker(number_format: str, device: str) -> Callable[[Tensor, Tensor | None], Linear]:
    """weight [out, in], bias -> a Linear of that number format on that device.

    On a GPU the passes have fixed widths (cuda_decoder.py); on a CPU the linears cut them into slices of ROWS rows.
    """
    slice_rows = ROWS if device == "cpu" else 0

    def make(weight: Tensor, bias: Tensor | None) -> Linear:
        if number_format == "int8":
            return Int8Linear(weight, bias)
        if number_format == "nf4" and weight.shape[1] % NF4_BLOCK == 0:  # bitsandbytes 0.50.2 on CPU misplaces others
            return Nf4Linear(weight, bias, device, slice_rows)
        dtype = torch.float32 if number_format == "fp32" else torch.bfloat16
        own_bias = None if bias is None else bias.to(device)
        return FloatLinear(weight.to(device, dtype), own_bias, rows=slice_rows)

    return make
