"""Draft head as a file: int8 with one scale a row, or 4 bits with a scale for 32 weights.

engine/loading/head_file.py describes the numbers and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from models.training.adapter_file import quantized, store
from speclsp.engine.loading.head_file import FORMAT, GROUP, MAX_BYTES
from speclsp.errors import WeightsError

RATIOS = torch.linspace(0.75, 1.1, 8)  # of the scales that are tried


def metadata(use: Mapping[str, str], name: str, layers: Sequence[int]) -> dict[str, str]:
    """The metadata of a head's file; `use`: head_file.use_of."""
    return {"format": FORMAT, "name": name, "layers": ",".join(map(str, layers)), **use}


def narrow(weights: Tensor) -> tuple[Tensor, Tensor]:
    """(uint8 [rows, columns / 2], float16 [rows, columns / 32]): of the scales tried, those with the least error."""
    groups = weights.float().unflatten(1, (-1, GROUP))
    at = groups.abs().argmax(dim=-1, keepdim=True)
    largest = groups.gather(-1, at) / -8  # the largest number becomes -8: both signs have room
    best, least = torch.zeros_like(largest), torch.full_like(largest, torch.inf)
    for ratio in RATIOS:
        scale = (largest * ratio).half().float()
        error = (steps(groups, scale) * scale - groups).square().sum(-1, keepdim=True)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    numbers = (steps(groups, best) + 8).to(torch.uint8).flatten(1).unflatten(1, (-1, 2))
    return numbers[..., 0] | numbers[..., 1] << 4, best[..., 0].half()


def steps(groups: Tensor, scale: Tensor) -> Tensor:
    """The nearest multiples of the scales, -8 to 7."""
    return torch.where(scale == 0, 0.0, groups / torch.where(scale == 0, 1.0, scale)).round().clamp(-8, 7)


def write(
    tensors: Mapping[str, Tensor], vocabulary: Tensor, metadata: Mapping[str, str], path: Path, mode: int, bits: int = 8
) -> int:
    """Write a head with the permissions `mode`, in 8 or 4 bits; in 4 if it is too large. Returns its size in bytes.

    Raises:
        WeightsError: it is too large even in 4 bits, holds a value that is not a number, or cannot be written.
    """
    is_small = bits == 8 and sum(tensor.numel() for tensor in tensors.values()) < MAX_BYTES * 0.97
    stored: dict[str, Tensor] = {"vocabulary": vocabulary.to(torch.int32)}
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise WeightsError(f"{name} of the head holds a value that is not a number: train it again.")
        if tensor.dim() < 2:
            stored[name] = tensor.float().contiguous()
        else:
            stored[name], stored[f"{name}.scale"] = (quantized if is_small else narrow)(tensor)
    data = to_bytes({name: tensor.contiguous() for name, tensor in stored.items()}, dict(metadata))
    if len(data) > MAX_BYTES:
        raise WeightsError(f"the head has {len(data)} bytes; the most are {MAX_BYTES}: choose a smaller --inner.")
    store(data, path, mode)
    return len(data)
