"""Coded weights (forward/coded.h): int8 weights in 4 or 6 bits, with the products of int8, bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support.engine import random_models
from support.engine.random_models import IDS, NATIVE, distance
from torch import Tensor

from speclsp.engine.loading import model_config
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.superblocks import CODED_SOURCES, WeightMatrix

PATHS = [path for path in NATIVE if path in native.CODED_PATHS]
BITS = sorted(CODED_SOURCES)
UNIT = 1 / 64  # a power of two: UNIT * w is exact in bfloat16
INPUTS = 352  # one block of 256 inputs and a part of three groups
SOME_IDS = [number % INPUTS for number in IDS]
native_decoder = partial(random_models.native_decoder, mlp_bits=4)


@pytest.fixture(scope="module")
def seven_heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("seven_heads")
    random_models.save_seven_heads(directory, layers=2)
    return directory


def head_alone(
    model: Path, path: str, head: Tensor, bits: int, embedding: Tensor, embedding_bits: int = 0
) -> NativeDecoder:
    """A model without layers: embedding, norm of ones, head, INPUTS each. `embedding_bits` 0: bfloat16."""
    shape = replace(model_config.read_shape(model_config.read_config(model), INPUTS), hidden=INPUTS)
    own = None if embedding_bits else WeightMatrix(embedding.numpy())
    decoder = NativeDecoder(shape, 0, 768, own, context_tokens=512, threads=2, path=path)
    decoder.set_linear(native.LAST, 0, WeightMatrix(head.numpy(), bits=bits), None)
    if embedding_bits:
        decoder.set_linear(native.EMBEDDING, 0, WeightMatrix(embedding.numpy(), bits=embedding_bits), None)
    decoder.set_norm(native.LAST, 0, np.ones(INPUTS, np.float32))
    return decoder


def decoded(decoder: NativeDecoder) -> Tensor:
    """The int8 weights of a head whose scales are UNIT: the logits of one-hot activations."""
    parts = [decoder.forward(list(range(first, min(first + 32, INPUTS)))) for first in range(0, INPUTS, 32)]
    normed = (INPUTS / (1 + INPUTS * decoder.shape.eps)) ** 0.5  # the activation that is not zero
    return (torch.from_numpy(np.concatenate(parts)).T / (normed * UNIT)).round()


def exact_weights(out: int, bits: int, seed: int) -> Tensor:
    """Weights UNIT * (step * q - base) of random groups, the largest one of a row 127 * UNIT."""
    random = torch.Generator().manual_seed(seed)
    levels = 2**bits - 1
    step = torch.randint(1, 254 // levels + 1, (out, INPUTS // 32, 1), generator=random)
    q = torch.randint(0, levels + 1, (out, INPUTS // 32, 32), generator=random)
    q[..., 0], q[..., 1] = 0, levels  # the group's first and last number
    base = step * levels // 2 + torch.randint(-3, 4, step.shape, generator=random)
    base = base.clamp(max=127).maximum(step * levels - 127)
    base[:, 0] = step[:, 0] * levels - 127
    return (step * q - base).flatten(1) * UNIT


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bits", BITS)
def test_weights_with_such_groups_are_kept_and_multiply_as_int8(path: str, bits: int, seven_heads: Path):
    head = exact_weights(INPUTS, bits, seed=bits)
    embedding = torch.randn(INPUTS, INPUTS, generator=torch.Generator().manual_seed(1))
    coded, int8 = (head_alone(seven_heads, path, head, b, embedding) for b in (bits, 8))
    assert np.array_equal(coded.forward(SOME_IDS[:100]), int8.forward(SOME_IDS[:100]))
    assert coded.weight_bytes < 0.9 * int8.weight_bytes


@pytest.mark.parametrize("bits", BITS)
def test_the_weights_of_a_group_are_equal_steps_apart(bits: int, seven_heads: Path):
    head = torch.randn(INPUTS, INPUTS, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16).float()
    head *= 127 * UNIT / head.abs().amax(1, keepdim=True)
    weights = decoded(head_alone(seven_heads, PATHS[0], head, bits, torch.eye(INPUTS)))
    assert weights.abs().max() <= 127
    for group in weights.reshape(-1, 32):
        gaps = group.unique().diff().int().tolist()
        step = math.gcd(*gaps)
        assert sum(gaps) <= step * (2**bits - 1)
    error = (weights * UNIT - head).norm() / head.norm()
    assert error < {4: 0.09, 6: 0.03}[bits]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_do_not_overflow(path: str, bits: int, sign: int, seven_heads: Path):
    head = torch.full((INPUTS, INPUTS), 1.0)
    head[::2] = -1.0
    head[1::4, ::2] = -1.0
    embedding = torch.full((INPUTS, INPUTS), float(sign))
    coded, int8 = (head_alone(seven_heads, path, head, b, embedding) for b in (bits, 8))
    assert np.array_equal(coded.forward(SOME_IDS[:40]), int8.forward(SOME_IDS[:40]))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_never_hidden(path: str, value: float, seven_heads: Path):
    head = torch.randn(INPUTS, INPUTS)
    head[7, 5] = value
    for bits in BITS:
        decoder = head_alone(seven_heads, path, head, bits, torch.eye(INPUTS))
        assert not np.isfinite(decoder.forward([5])[0, 7])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bits", BITS)
def test_an_embedding_of_such_groups_is_kept(path: str, bits: int, seven_heads: Path):
    embedding, head = exact_weights(INPUTS, bits, seed=bits), torch.eye(INPUTS)
    coded, int8 = (head_alone(seven_heads, path, head, 8, embedding, b) for b in (bits, 0))
    assert np.array_equal(coded.forward(SOME_IDS[:100]), int8.forward(SOME_IDS[:100]))


@pytest.mark.parametrize("path", PATHS)
def test_a_tied_head_is_the_embedding_too(path: str, seven_heads: Path):
    """The embedding has no memory of its own; its rows are those of the head."""
    decoder = native_decoder(seven_heads, path, 1000)
    assert decoder.embedding is None and not decoder.embedding_bytes
    int8 = native_decoder(seven_heads, path, 1000, mlp_bits=8)
    near, exact = decoder.forward(IDS[:64]), int8.forward(IDS[:64])
    assert distance(near, exact) < 0.2
