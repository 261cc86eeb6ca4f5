"""Linears for a CPU, on oneDNN: int8 with one scale per row, and floating point in fixed-width slices.

Int8 (W8A8): weights are quantized per output channel, activations per row (token), products summed in integers. An
integer sum does not depend on its order, so a row's result is bit-identical for any other rows in the pass. Sixteen
rows cost about as much as one, because the weights are read once (5.3 to 5.9 ms per 100 M parameters for
1 to 16 rows on two cores of a Xeon). Activations are float32 at input and output.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from speclsp.engine.model.model_shape import ROWS

QUANTIZE_ROWS = 1024  # weight rows quantized at a time
ZERO_POINT = 128  # of activations


class Int8Linear:
    """y = x Wᵀ + b in int8: [T, in] float32 -> [T, out] float32, each row on its own.

    Args:
        weight: [out, in], any float type.
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.scale = torch.empty(weight.shape[0])  # [out]
        quantized = torch.empty(weight.shape, dtype=torch.int8)
        for first in range(0, weight.shape[0], QUANTIZE_ROWS):  # in pieces: new memory costs more than arithmetic
            part = slice(first, first + QUANTIZE_ROWS)
            rows = weight[part].to(torch.float32, copy=True)
            scale = torch.maximum(rows.amax(dim=1), -rows.amin(dim=1)).div_(127).clamp_min_(1e-12)
            quantized[part] = rows.div_(scale[:, None]).round_()
            self.scale[part] = scale
        self.packed = torch.ops.onednn.qlinear_prepack(quantized, None)
        self.zero_points = torch.zeros(weight.shape[0], dtype=torch.int64)
        self.bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        row_scale = (x.abs().amax(dim=1, keepdim=True) / 127).clamp_min(1e-12)  # [T, 1]
        # With a zero point: without AMX, oneDNN 3.12 has no kernel for signed activations, and its reference takes a
        # hundred times as long. The integers are the same, and so are the bits.
        quantized = (torch.round(x / row_scale) + ZERO_POINT).to(torch.uint8)
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            quantized,
            1.0,
            ZERO_POINT,
            self.packed,
            self.scale,
            self.zero_points,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        y = y * row_scale
        return y if self.bias is None else y + self.bias


class FloatLinear:
    """y = x Wᵀ + b in the weight's own type, ROWS rows at a time, so that no row's sum depends on the other rows.

    Args:
        weight: [out, in]; kept in its type.
        rows: rows in a slice; 0: all at once (a draft, or a device whose kernel is known to be row-invariant).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, rows: int = ROWS) -> None:
        self.weight, self.rows = weight, rows
        self.bias = None if bias is None else bias.to(weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        x_own = x.to(self.weight.dtype)
        if not self.rows or len(x) <= self.rows:
            return F.linear(x_own, self.weight, self.bias).to(x.dtype)
        return torch.cat([F.linear(rows, self.weight, self.bias) for rows in torch.split(x_own, self.rows)]).to(x.dtype)


def int8_is_exact() -> bool:
    """True if this CPU multiplies int8 without saturation (x86 with VNNI or AMX) and torch has the oneDNN ops.

    Without VNNI, oneDNN adds pairs of products in 16 bits, which can overflow. Such a CPU has no instructions for
    bfloat16 either, so it computes in float32.
    """
    has_ops = hasattr(torch.ops.onednn, "qlinear_prepack") and hasattr(torch.ops.onednn, "qlinear_pointwise")
    vnni = any(
        getattr(torch.cpu, name, lambda: False)()
        for name in ("_is_avx512_vnni_supported", "_is_vnni_supported", "_is_amx_tile_supported")
    )
    return has_ops and vnni
