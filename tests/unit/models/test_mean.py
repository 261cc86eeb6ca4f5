"""The mean of adapters is the mean of what they change, as near as its rank allows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.training import adapter_file, mean
from models.training.adapter_file import AdapterFacts
from models.training.mean import A, B
from speclsp.engine.loading import adapter_merge
from speclsp.weights import adapters
from speclsp.weights.adapters import AdapterFile

OUT, IN = 24, 40
FIRST, SECOND = (f"base_model.model.model.layers.0.{part}." for part in ("self_attn.q_proj", "mlp.up_proj"))


def adapter(path: Path, seed: int, linears: tuple[str, ...], rank: int = 3, **facts: object) -> AdapterFile:
    dice = torch.Generator().manual_seed(seed)
    tensors = {}
    for linear in linears:
        tensors |= {f"{linear}{A}": torch.randn(rank, IN, generator=dice)}
        tensors |= {f"{linear}{B}": torch.randn(OUT, rank, generator=dice)}
    known = {"name": path.stem, "rank": rank, "scale": 2.0, "weights_sha256": "0" * 64}
    adapter_file.write(tensors, AdapterFacts(**(known | facts)), path)
    return adapters.read_file(path)


def change(file: AdapterFile, linear: str) -> Tensor:
    a, b = (torch.from_numpy(adapter_merge.decode(file, f"{linear}{part}")) for part in (A, B))
    return file.scale * b @ a


def change_of(tensors: Mapping[str, Tensor], linear: str) -> Tensor:
    return mean.SCALE * tensors[f"{linear}{B}"] @ tensors[f"{linear}{A}"]


def test_with_enough_rank_it_is_the_mean_of_the_changes(tmp_path: Path):
    one = adapter(tmp_path / "one.safetensors", 1, (FIRST, SECOND))
    two = adapter(tmp_path / "two.safetensors", 2, (FIRST,), rank=2, scale=1.0)
    tensors = mean.mean([one, two], 8)
    assert {tensor.shape for tensor in tensors.values()} == {(8, IN), (OUT, 8)}
    torch.testing.assert_close(change_of(tensors, FIRST), (change(one, FIRST) + change(two, FIRST)) / 2)
    torch.testing.assert_close(change_of(tensors, SECOND), change(one, SECOND) / 2)  # `two` leaves it alone


def test_the_command_writes_an_adapter_and_its_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = [tmp_path / f"{seed}.safetensors" for seed in range(2)]
    parts = [adapter(path, seed, (FIRST,)) for seed, path in enumerate(files)]
    assert mean.main(["both", *map(str, files), "--rank", "6", "--out", str(tmp_path)]) == 0
    made = adapters.read_file(tmp_path / "both.safetensors")
    assert (made.rank, made.scale, made.weights_sha256) == (6, mean.SCALE, "0" * 64)
    wanted = torch.stack([change(part, FIRST) for part in parts]).mean(0)
    assert float((change(made, FIRST) - wanted).norm() / wanted.norm()) < 0.02  # int8
    assert 'weights = "qwen2.5-coder-0.5b-instruct"' in (tmp_path / "both.toml").read_text("utf-8")
    assert str(made.path) in capsys.readouterr().out
