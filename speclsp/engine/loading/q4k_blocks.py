"""Blocks of Q4_K in a converted model: NAME.q4k, [out, in / 256 * 144] uint8, in place of NAME.weight, [out, in].

A superblock is 256 weights of a row: weight = d * step * q - d_base * base, with q of 4 bits, step and base of 6 bits
for each 32 weights, and d and d_base in half precision. forward.c computes with the blocks.
Other decoders dequantize them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from torch import Tensor

from speclsp.weights.untrusted import safetensors_header
from speclsp.weights.untrusted.untrusted_files import Unreadable

SUFFIX = ".q4k"
SUPERBLOCK_WEIGHTS, SUPERBLOCK_BYTES = 256, 144
SLICE_ROWS = 4096  # dequantized at a time


def blocks_name(name: str) -> str:
    """The name of a tensor's blocks: layers.0.mlp.up_proj.weight -> layers.0.mlp.up_proj.q4k."""
    return name.removesuffix(".weight") + SUFFIX


def has_blocks(directory: Path) -> bool:
    """True if a tensor of a model's directory is stored as blocks. Files that cannot be read have none."""
    for file in directory.glob("*.safetensors"):
        with contextlib.suppress(Unreadable):  # `read_decoder` names the file and the defect
            if any(name.endswith(SUFFIX) for name in safetensors_header.read(file)):
                return True
    return False


def dequantize(blocks: Tensor) -> Tensor:
    """[out, in / 256 * 144] uint8 -> [out, in] bfloat16: the values of the file, rounded to nearest even."""
    return torch.cat([_dequantize_slice(rows) for rows in torch.split(blocks, SLICE_ROWS)])


def _dequantize_slice(blocks: Tensor) -> Tensor:
    block = blocks.reshape(len(blocks), -1, SUPERBLOCK_BYTES)  # [rows, superblocks, 144]
    d, d_base = block[..., :4].contiguous().view(torch.float16).float().unbind(-1)
    low, middle, high = block[..., 4:8], block[..., 8:12], block[..., 12:16]
    step = torch.cat([low & 63, (high & 15) | (low >> 6 << 4)], -1).float()  # [rows, superblocks, 8]
    base = torch.cat([middle & 63, (high >> 4) | (middle >> 6 << 4)], -1).float()
    packed = block[..., 16:].unflatten(-1, (4, 32))
    q = torch.stack([packed & 15, packed >> 4], -2).flatten(-3, -2).float()  # [rows, superblocks, 8, 32]
    weight = (d[..., None] * step)[..., None] * q - (d_base[..., None] * base)[..., None]
    return weight.flatten(1).to(torch.bfloat16)
