"""Tensors of a GGUF are those that the publisher has: same names, rows and values, rounded to bfloat16 once."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.weights import tiny_gguf

from speclsp.engine.loading import checkpoint, checkpoint_checks, model_config
from speclsp.engine.loading.torch_checkpoint import tensor
from speclsp.engine.model import gguf_tensors
from speclsp.engine.model.bfloat16 import narrow
from speclsp.errors import WeightsError
from speclsp.weights.gguf.model_files import model_files


def model(directory: Path, tensors: tiny_gguf.Tensors, **options: object) -> Path:
    """A model's directory with a GGUF."""
    directory.mkdir()
    source = tiny_gguf.write(directory / "model.gguf", tensors, **options)
    for name, content in model_files(source).items():
        (directory / name).write_bytes(content)
    return directory


def read(directory: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a model's directory."""
    names = gguf_tensors.stored_tensors(directory / "model.gguf")
    with checkpoint.open_tensors(directory) as get:
        return {name: tensor(get(name)) for name in names}


def published(name: str) -> str:
    return gguf_tensors.published_name(name, Path("model.gguf"))


def rounded(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q5_0", "F16", "BF16"])
def test_a_stored_tensor_equals_ggufs_dequantization_rounded_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_tensors, "SLAB_WEIGHTS", 3 * tiny_gguf.HIDDEN)  # several slabs
    quantized = gguf.GGMLQuantizationType[kind]
    tensors = tiny_gguf.random_tensors(biases=True)
    loaded = read(model(tmp_path / "model", tensors, quantized=quantized))
    for name, values in tensors.items():
        if values.ndim == 2:
            values = gguf.dequantize(gguf.quantize(values, quantized), quantized)
        assert torch.equal(loaded[published(name)], rounded(values)), name


def test_every_pattern_of_a_block_equals_ggufs_dequantization() -> None:
    """Also the extreme ones, which quantized random numbers do not have."""
    dice = np.random.default_rng(3)
    for number, weights_of in gguf_tensors.WEIGHTS_OF.items():
        kind = gguf_tensors.KINDS[number]
        blocks = dice.integers(0, 256, (64, 16, kind.block_bytes), np.uint8)
        with np.errstate(invalid="ignore"):
            ours = weights_of(blocks)
            theirs = gguf.dequantize(blocks.reshape(64, -1), gguf.GGMLQuantizationType(number))
        assert ours.dtype == np.float32
        assert np.array_equal(ours, theirs, equal_nan=True), kind.title


@given(st.lists(st.floats(width=32), min_size=1))
def test_rounding_to_bfloat16_equals_torchs(values: list[float]) -> None:
    single = np.array(values, np.float32)
    ours, theirs = tensor(narrow(single)), torch.from_numpy(single).to(torch.bfloat16)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours[~ours.isnan()].view(torch.int16), theirs[~theirs.isnan()].view(torch.int16))


@pytest.mark.parametrize("mostly", [True, False])
def test_superblocks_are_kept_where_most_of_the_weights_are_q4k(tmp_path: Path, mostly: bool) -> None:
    tensors, dice = tiny_gguf.random_tensors(biases=False), np.random.default_rng(1)
    blocks = {  # 256 weights in a row
        0: (".q6k", gguf.GGMLQuantizationType.Q6_K, dice.integers(0, 60, (2, 210), np.uint8)),
        1: (".q4k", gguf.GGMLQuantizationType.Q4_K, dice.integers(0, 60, (4096 if mostly else 2, 144), np.uint8)),
    }
    tensors |= {f"blk.{layer}.ffn_down.weight": rows for layer, (_, _, rows) in blocks.items()}
    with checkpoint.open_tensors(model(tmp_path / "model", tensors)) as get:
        for layer, (suffix, kind, rows) in blocks.items():
            name = f"model.layers.{layer}.mlp.down_proj"
            assert torch.equal(tensor(get(f"{name}.weight")), rounded(gguf.dequantize(rows, kind)))
            kept = get(f"{name}{suffix}", optional=True)
            assert np.array_equal(kept, rows) if mostly else kept is None


def test_a_missing_or_foreign_tensor_is_named(tmp_path: Path) -> None:
    tensors = tiny_gguf.random_tensors(biases=False)
    without = {name: values for name, values in tensors.items() if name != "blk.1.ffn_up.weight"}
    foreign = tensors | {"blk.0.exp_probs_b.weight": np.ones((4, 4), np.float32)}
    for number, (stored, says) in enumerate(
        ((without, r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"), (foreign, r"'blk\.0\.exp_probs_b\.weight'"))
    ):
        directory = model(tmp_path / str(number), stored)
        config = model_config.read_config(directory)
        expected = model_config.expected_tensors(config, model_config.read_shape(config, len(tiny_gguf.TOKENS)))
        with pytest.raises(WeightsError, match=says):
            checkpoint_checks.check_tensors(directory, expected)


def test_a_number_format_that_no_listed_model_has_is_named(tmp_path: Path) -> None:
    tensors = tiny_gguf.random_tensors(biases=False)
    file = tiny_gguf.write(tmp_path / "model.gguf", tensors, quantized=gguf.GGMLQuantizationType.Q4_0)
    with pytest.raises(WeightsError, match=r"the number format 2 of GGML: expected one of F32, F16, Q5_0, Q8_0"):
        gguf_tensors.stored_tensors(file)


@pytest.mark.parametrize("change", ["truncated", "rewritten"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, change: str) -> None:
    """Where the file is mapped, the process ends with SIGBUS."""
    directory = model(tmp_path / "model", tiny_gguf.random_tensors(biases=False))
    file = directory / "model.gguf"
    with checkpoint.open_tensors(directory) as get:
        get("lm_head.weight")
        if change == "truncated":
            os.truncate(file, 4096)
        else:
            os.utime(file, (1, 1))
        with pytest.raises(WeightsError, match=r"model\.gguf was altered while it was read, at byte \d+\. Load"):
            get("lm_head.weight")


def test_safetensors_beside_a_gguf_are_read_instead_of_it(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    directory = model(tmp_path / "model", tiny_gguf.random_tensors(biases=False))
    save_file({"model.norm.weight": torch.ones(3)}, directory / "model.safetensors")
    with checkpoint.open_tensors(directory) as get:
        assert get("model.norm.weight").tolist() == [1, 1, 1]
