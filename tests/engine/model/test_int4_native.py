"""Superblocks of Q4_K and Q6_K in forward.c: the arithmetic of each path, and the same bits for any pass."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.engine import random_models, superblock_models
from support.engine.random_models import IDS, NATIVE, distance

from speclsp.engine.loading import checkpoint, model_config
from speclsp.engine.model.bfloat16 import Array
from speclsp.engine.model.int8 import building, native
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.superblocks import Q4K, Q6K, BlockKind

PATHS = [path for path in NATIVE if path != "AMX"]
CASES = [pytest.param(path, kind, id=f"{path}-{kind.title}") for path in PATHS for kind in native.BLOCK_BITS[path]]
native_decoder = partial(random_models.native_decoder, mlp_bits=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("q4k")
    superblock_models.save_random_q4k_m(directory)
    return directory


def linear_alone(path: str, kind: BlockKind, model: Path, embedding: Array, head: Array) -> NativeDecoder:
    """A model without layers: embedding, norm, head; [1000, 512], in superblocks."""
    names = kind.name("model.embed_tokens"), kind.name("lm_head")
    tensors = {**dict(zip(names, (embedding, head), strict=True)), "model.norm.weight": np.ones(512, np.float32)}
    tensors |= dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), np.zeros((1000, 512), np.float32))
    shape = model_config.read_shape(model_config.read_config(model), 1000)
    return building.build(
        shape,
        0,
        768,
        lambda name, optional=False: tensors.get(name),
        context_tokens=512,
        threads=2,
        path=path,
        mlp_bits=4,
    )


def relative_error(decoder: NativeDecoder, kind: BlockKind, embedding: Array, head: Array) -> float:
    """The largest distance of the logits of 50 tokens from those of the specification, to the largest logit."""
    x = superblock_models.file_values(embedding, kind)[IDS[:50]]
    normed = (x / np.sqrt((x * x).mean(1, keepdims=True) + decoder.shape.eps)).astype(np.float32)
    expected = superblock_models.product(normed, head, kind, decoder.path)
    return float(np.abs(decoder.forward(IDS[:50]) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(("path", "kind"), CASES)
def test_a_linear_multiplies_blocks_as_specified(path: str, kind: BlockKind, model: Path):
    embedding, head = (superblock_models.random_blocks(1000, 512, seed, kind) for seed in (1, 2))
    decoder = linear_alone(path, kind, model, embedding, head)
    assert decoder.number_format == "int4" and decoder.weight_bytes == 1000 * 512 * native.BLOCK_BITS[path][kind] / 8
    assert relative_error(decoder, kind, embedding, head) < 2e-3, "an activation at .5 may round the other way"


@pytest.mark.parametrize(("path", "kind"), CASES)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_of_a_block_do_not_overflow(path: str, kind: BlockKind, sign: int, model: Path):
    """Every activation is 127 or -127, every q 15 or 63, every step and base 63, or every step 127."""
    embedding, head = (np.full((1000, 2, kind.bytes), 255, np.uint8) for _ in range(2))
    for blocks, d, d_base in ((embedding, sign, 0.0), (head, 0.01, 0.005)):
        halves = np.array([d, d_base], np.float16).view(np.uint8)
        if kind is Q4K:
            blocks[..., :4] = halves
        else:
            blocks[..., 192:208], blocks[..., 208:] = 127, halves[:2]
    decoder = linear_alone(path, kind, model, embedding.reshape(1000, -1), head.reshape(1000, -1))
    assert relative_error(decoder, kind, embedding.reshape(1000, -1), head.reshape(1000, -1)) < 2e-3


@pytest.mark.parametrize(("path", "kind"), CASES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_never_hidden_by_integers(path: str, kind: BlockKind, value: float, model: Path):
    """No token is chosen then: the highest logit is not finite."""
    embedding, head = (superblock_models.random_blocks(1000, 512, seed, kind).reshape(1000, 2, -1) for seed in (1, 2))
    for at in range(0, 4 if kind is Q4K else 2, 2):
        first = at if kind is Q4K else 208
        for blocks in (embedding[IDS[3] : IDS[3] + 1], head[7:8]):
            intact = blocks.copy()
            blocks[:, 1, first : first + 2] = np.array([value], np.float16).view(np.uint8)
            decoder = linear_alone(path, kind, model, embedding.reshape(1000, -1), head.reshape(1000, -1))
            assert not np.isfinite(decoder.forward(IDS[3:4]).max())
            blocks[...] = intact


@pytest.mark.parametrize("path", [path for path in PATHS if Q6K in native.BLOCK_BITS[path]])
def test_the_smallest_step_and_number_of_q6k_do_not_overflow(path: str, model: Path):
    """Every step of the head is -128, every q of every second output 0, so the sums are the largest of both signs."""
    embedding = np.full((1000, 2, Q6K.bytes), 255, np.uint8)
    head = embedding.copy()
    head[::2, :, :192] = 0
    for blocks, step in ((embedding, 127), (head, 128)):
        blocks[..., 192:208] = step
        blocks[..., 208:] = np.array([0.01], np.float16).view(np.uint8)
    decoder = linear_alone(path, Q6K, model, embedding.reshape(1000, -1), head.reshape(1000, -1))
    assert relative_error(decoder, Q6K, embedding.reshape(1000, -1), head.reshape(1000, -1)) < 2e-3


@pytest.mark.parametrize("path", PATHS)
def test_the_logits_are_near_those_of_the_files_values(path: str, model: Path):
    """Rounding the activations to int8 is the only loss where the path multiplies the file's own numbers."""
    exact = checkpoint.read_decoder(model, "fp32", "cpu", 512, 1000).forward(IDS[:64])
    logits = native_decoder(model, path, 1000).forward(IDS[:64])
    assert distance(logits, exact) < 0.04


@pytest.mark.skipif(not PATHS, reason="no path multiplies blocks")
def test_int8_is_forced_by_the_format_and_equals_the_widened_file(model: Path, tmp_path: Path):
    tensors = load_file(model / "model.safetensors")
    widened = {name: tensor for name, tensor in tensors.items() if tensor.dtype != torch.uint8}
    save_file(widened, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    with random_models.coded_path():
        int8, int4, from_bf16 = (
            checkpoint.read_decoder(directory, number_format, "cpu", 512, 1000)
            for directory, number_format in ((model, "int8"), (model, "int4"), (tmp_path, "int8"))
        )
    assert int8.number_format == "int8"
    assert np.array_equal(int8.forward(IDS[:64]), from_bf16.forward(IDS[:64]))
    assert isinstance(int4, NativeDecoder) and isinstance(int8, NativeDecoder)
    assert int4.weight_mib < 0.7 * int8.weight_mib
    int8.forget()
    wide, near = int8.forward(IDS[:64]), int4.forward(IDS[:64])
    assert distance(near, wide) < 0.1


def test_a_path_without_4_bit_products_widens(model: Path, monkeypatch: pytest.MonkeyPatch):
    """The loader asks for floats when the path is AMX, here that of another instruction set under its name."""
    monkeypatch.setitem(native.PATHS, "AMX", native.PATHS[PATHS[0]])
    assert native_decoder(model, "AMX", 1000).number_format == "int8"
