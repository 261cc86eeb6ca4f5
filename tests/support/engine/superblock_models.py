"""Random weights in superblocks, and the arithmetic of forward.c's blocks in NumPy."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save_file

from speclsp.engine.model.superblocks import Q4K, Q6K, SUPERBLOCK_WEIGHTS, BlockKind
from support.engine.random_models import save_random

SIZES = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 768}
Blocks = NDArray[np.uint8]
FILE_PRODUCTS = ("AVX2",)  # paths that multiply the numbers of blocks; the others make int8 from them
Q6K_WEIGHTS = ("layers.1.mlp.down_proj", "layers.1.self_attn.v_proj", "lm_head")  # in a Q4_K_M file


def random_blocks(out: int, columns: int, seed: int, kind: BlockKind = Q4K) -> Blocks:
    """[out, columns / 256 * kind.bytes] uint8: weights of about 0.05, with groups of very different sizes."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (out, columns // SUPERBLOCK_WEIGHTS, kind.bytes), np.uint8)
    d = rng.uniform(0.5, 1.5, blocks.shape[:2]) * 0.1 / (63 * 15 if kind is Q4K else 128 * 32)
    d[rng.random(d.shape) < 0.02] = 0.0  # all weights of a group alike
    if kind is Q4K:
        blocks[..., :4] = np.stack([d, 7.5 * d], -1).astype(np.float16).view(np.uint8)
    else:
        blocks[..., 208:] = d[..., None].astype(np.float16).view(np.uint8)
    return blocks.reshape(out, -1)


def save_random_q4k_m(directory: Path, layers: int = 3, **sizes: int) -> None:
    """A model whose weights have superblocks beside them, most of them Q4_K, as a Q4_K_M file gives both."""
    shape = {**SIZES, "vocab_size": 1000, **sizes}
    save_random("qwen2", directory, **shape, num_hidden_layers=layers, tie_word_embeddings=False)
    tensors = load((directory / "model.safetensors").read_bytes())  # Windows cannot replace a mapped file
    for seed, (name, tensor) in enumerate(sorted(tensors.items())):
        if tensor.ndim == 2:
            kind = Q6K if any(part in name for part in Q6K_WEIGHTS) else Q4K
            blocks = random_blocks(*tensor.shape, seed, kind)
            tensors[kind.name(name)] = torch.from_numpy(blocks)
            tensors[name] = torch.from_numpy(file_values(blocks, kind)).to(torch.bfloat16)
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def superblocks(blocks: Blocks) -> tuple[NDArray[np.float32], ...]:
    """d, d_base [out, n, 1, 1], step, base [..., 8, 1] and q [..., 8, 32] of superblocks of Q4_K, all float32."""
    block = blocks.reshape(len(blocks), -1, Q4K.bytes)
    halves = np.ascontiguousarray(block[..., :4]).view(np.float16).astype(np.float32)
    low, middle, high = block[..., 4:8], block[..., 8:12], block[..., 12:16]
    step = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], -1)[..., None]
    base = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], -1)[..., None]
    packed = block[..., 16:].reshape(*block.shape[:2], 4, 1, 32)
    q = np.concatenate([packed & 15, packed >> 4], -2).reshape(*block.shape[:2], 8, 32)
    d, d_base = (halves[..., i, None, None] for i in range(2))
    return d, d_base, *(part.astype(np.float32) for part in (step, base, q))


def file_values(blocks: Blocks, kind: BlockKind = Q4K) -> NDArray[np.float32]:
    """The weights of the file, [out, in], by ggml's own package."""
    return gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind.title])


def block_values(blocks: Blocks) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The int8 weights of paths outside FILE_PRODUCTS, [out, superblocks, 256]; their scales, [out, superblocks]."""
    d, d_base, step, base, q = superblocks(blocks)
    values = d * step * q - d_base * base
    most = np.maximum(np.abs(values).max((2, 3), keepdims=True), np.float32(1e-12))
    top = np.float32(4095) / np.maximum(step.max((2, 3), keepdims=True), 1)
    factor = np.trunc(np.clip(np.float32(256 * 127) * d / most, -top, top))
    scale = np.where(factor == 0, most / np.float32(127), np.float32(256) * d / np.where(factor == 0, 1, factor))
    base_factor = np.trunc(np.float32(256) * d_base / scale + np.float32(0.5))
    whole = (step * factor * q + 128 - base * base_factor).astype(np.int64)
    assert np.abs(whole).max() < 1 << 15, "the sums fit 16 bits"
    return (whole >> 8).reshape(*d.shape[:2], -1), scale[..., 0, 0].astype(np.float32)


def product(x: NDArray[np.float32], blocks: Blocks, kind: BlockKind, path: str) -> NDArray[np.float64]:
    """[T, in] by blocks of [out, in]: int8 activations with one scale for each row and 256 inputs, exact sums."""
    rows = x.reshape(len(x), -1, SUPERBLOCK_WEIGHTS)
    row_scale = np.maximum(np.abs(rows).max(2, keepdims=True), np.float32(1e-10)) / np.float32(127)  # [T, n, 1]
    inputs = np.rint(rows / row_scale).astype(np.int64)
    if path in FILE_PRODUCTS:
        return (inputs * row_scale.astype(np.float64)).reshape(x.shape) @ file_values(blocks, kind).astype(np.float64).T
    weights, scale = block_values(blocks)
    sums = np.einsum("tki,oki->tok", inputs, weights)
    return np.einsum("tok,ok,tk->to", sums, scale.astype(np.float64), row_scale[..., 0])
