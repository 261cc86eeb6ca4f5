"""Adapter as a file: PEFT's tensor names, int8 with one scale a row, and the facts that a loader checks.

T        int8 [rows, columns]     value = T * T.scale
T.scale  float32 [rows]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from speclsp import private_files
from speclsp.errors import WeightsError
from speclsp.private_files import os_errors

FORMAT = "speclsp-lora-1"
MAX_BYTES = 8_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFacts:
    """Metadata of an adapter's file."""

    name: str
    rank: int
    scale: float
    weights_sha256: str

    def metadata(self) -> dict[str, str]:
        """The facts as safetensors keeps them."""
        return {
            "format": FORMAT,
            "rank": str(self.rank),
            "scale": repr(self.scale),
            "weights_sha256": self.weights_sha256,
        }


def write(tensors: Mapping[str, Tensor], facts: AdapterFacts, path: Path, mode: int = 0o644) -> int:
    """Write an adapter's file with the permissions `mode`. Returns its size in bytes.

    Raises:
        WeightsError: it is too large, holds a value that is not a number, or cannot be written.
    """
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise WeightsError(f"{name} of adapter {facts.name} holds a value that is not a number: train it again.")
        stored[name], stored[f"{name}.scale"] = quantized(tensor.detach().cpu())
    data = to_bytes(stored, facts.metadata())
    if len(data) > MAX_BYTES:
        raise WeightsError(
            f"adapter {facts.name} has {len(data)} bytes; the most are {MAX_BYTES}: train fewer layers or a lower rank."
        )
    store(data, path, mode)
    return len(data)


def quantized(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 [rows, columns], float32 [rows]): each row is rounded to 127 steps of its largest value."""
    scale = tensor.float().abs().amax(dim=1) / 127
    steps = (tensor.float() / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None]).round().clamp(-127, 127)
    return steps.to(torch.int8), scale


def store(data: bytes, path: Path, mode: int) -> None:
    """Replace a file in one step, in a folder that is made. Raises WeightsError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        private_files.replace(path, data, mode=mode, sync=True)
    except OSError as error:
        raise WeightsError(f"{path} cannot be written ({os_errors.reason(error)}).") from None
