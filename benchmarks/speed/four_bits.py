"""A copy of a model whose MLP weights are rounded to 4 bits, to measure what 4 bits would cost in quality.

    python -m benchmarks four-bits --model M --out DIR
    python -m benchmarks humaneval-infilling --kind single --through product --model DIR

    each 32 weights of a row: weight ~ base + step * q, q in 0..15; step and base have the least squared error of GRID

Step and base stay in float32, so the copy is a little nearer to the weights than blocks of Q4_K, which round them too.
The engine reads the copy as any model of the user's own: its int8 weights are made of the rounded ones.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks import pairs
from speclsp.cli import terminal
from speclsp.errors import InputError
from speclsp.weights import auto_choice, store

GROUP, LEVELS = 32, 16
GRID = tuple(0.80 + 0.02 * number for number in range(13))  # of the step that spans a group's values
FILE = "model.safetensors"


def rounded(weight: Tensor) -> Tensor:
    """[out, in] -> the same, each group of 32 rounded to 16 levels. `in` is a multiple of 32."""
    groups = weight.float().unflatten(-1, (-1, GROUP))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    span, middle = ((high - low) / (LEVELS - 1)).clamp_min(1e-12), (high + low) / 2
    best, least = groups, torch.full_like(low, torch.inf)
    for share in GRID:
        step = span * share
        base = middle - step * (LEVELS - 1) / 2
        candidate = base + step * ((groups - base) / step).round().clamp(0, LEVELS - 1)
        error = (candidate - groups).square().sum(-1, keepdim=True)
        best, least = torch.where(error < least, candidate, best), torch.minimum(error, least)
    values: Tensor = best.flatten(-2).to(weight.dtype)
    return values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks four-bits`."""
    pairs.add_arguments(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="a new directory for the copy")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    card, _ = auto_choice.auto(pairs.settings(options)[0])
    directory = store.path(card.target)
    if directory is None:
        raise InputError(f"the weights of {card.name} are not here: `speclsp models pull {card.name}` fetches them.")
    out = Path(options.out)
    if out.exists():
        raise InputError(f"{out} is there already: name a new directory.")
    tensors = load_file(directory / FILE) if (directory / FILE).is_file() else {}
    mlp = [key for key in tensors if ".mlp." in key and key.endswith(".weight")]
    if not mlp:
        raise InputError(f"{directory} has no MLP weights of 16 bits in one {FILE}: choose a model of that form.")
    errors = []
    with terminal.progress() as bar:
        for number, key in enumerate(mlp):
            bar.show("rounding", number / len(mlp), key)
            before, tensors[key] = tensors[key], rounded(tensors[key])
            errors.append(float((tensors[key].float() - before.float()).norm() / before.float().norm()))
    shutil.copytree(directory, out, ignore=lambda _, names: {*names} - {"config.json", "tokenizer.json"})
    save_file(tensors, out / FILE, metadata={"format": "pt"})
    print(f"{out}: {len(mlp)} of {len(tensors)} tensors rounded, mean relative error {sum(errors) / len(errors):.4f}")
    return 0
