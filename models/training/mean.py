"""Averages adapters of the same weights into one (model soups: Wortsman et al. 2022, arXiv 2203.05482).

    python -m models.training.mean qwen2.5-coder-0.5b-fill-9 one.safetensors two.safetensors [--rank 12]

    A, B of each file ─► mean of scale * B @ A, for each linear ─► its nearest matrix of that rank ─► NAME.safetensors

Trainings of the same model with other data make different mistakes, and the mean of their changes makes fewer. A file
that leaves a linear alone counts as no change of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from models.training.adapter_file import AdapterFacts
from models.training.export import OUT, check_name, save
from models.training.train import MODEL
from speclsp.engine.loading import adapter_merge
from speclsp.errors import InputError, SpeclspError
from speclsp.weights import adapters
from speclsp.weights.adapters import AdapterFile

SCALE = 2.0  # as models.training.train writes it
A, B = "lora_A.weight", "lora_B.weight"


def mean(files: Sequence[AdapterFile], rank: int) -> dict[str, Tensor]:
    """The tensors of the mean, with scale SCALE. Raises InputError for files of different weights."""
    if len({file.weights_sha256 for file in files}) != 1:
        raise InputError(
            f"{files[0].path} and the other files are adapters of different weights: average those of one."
        )
    names = sorted({name.removesuffix(A) for file in files for name in file.tensors if name.endswith(A)})
    tensors = {}
    for name in names:
        changing = [file for file in files if f"{name}{A}" in file.tensors]
        a = torch.cat([torch.from_numpy(adapter_merge.decode(file, f"{name}{A}")) for file in changing])  # [ranks, in]
        b = torch.cat(
            [torch.from_numpy(adapter_merge.decode(file, f"{name}{B}")) * file.scale for file in changing], dim=1
        )  # [out, ranks]
        tensors[f"{name}{A}"], tensors[f"{name}{B}"] = nearest(a, b / (SCALE * len(files)), rank)
    return tensors


def nearest(a: Tensor, b: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """(A [rank, in], B [out, rank]) whose product B @ A is nearest to `b @ a`, by the squares of its elements."""
    out, outer = torch.linalg.qr(b)
    inside, inner = torch.linalg.qr(a.T)
    left, sizes, right = torch.linalg.svd(outer @ inner.T)  # no matrix of [out, in] is made
    root, missing = sizes[:rank].sqrt(), max(0, rank - len(sizes))
    near_a, near_b = root[:, None] * (right[:rank] @ inside.T), (out @ left[:, :rank]) * root
    return F.pad(near_a, (0, 0, 0, missing)), F.pad(near_b, (0, missing))


def main(arguments: Sequence[str]) -> int:
    """Exit code 0; 1 with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m models.training.mean", description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("files", nargs="+", type=Path, help=".safetensors of models.training.export")
    parser.add_argument("--rank", type=int, default=12)
    parser.add_argument("--model", default=MODEL, help=f"the weights, for the card (default: {MODEL})")
    parser.add_argument("--out", type=Path, default=OUT, help="default: models/adapters")
    options = parser.parse_args(arguments)
    try:
        check_name(options.name)
        if options.rank < 1:
            raise InputError(f"--rank {options.rank}: expected 1 or more.")
        files = [adapters.read_file(path) for path in options.files]
        facts = AdapterFacts(
            name=options.name,
            rank=options.rank,
            scale=SCALE,
            weights_sha256=files[0].weights_sha256,
        )
        file = save(mean(files, options.rank), facts, options.model, options.out)
    except (SpeclspError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
