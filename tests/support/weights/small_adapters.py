"""Random adapters (LoRA) of exact numbers, as a training program writes them, and the merged weights by definition.

Values are small integers times powers of two: a change B A is exact in float32, in any order of summation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load, load_file, save_file
from torch import Tensor

from speclsp.engine.model.superblocks import KINDS
from speclsp.weights import adapters, cards

RANK, SCALE = 4, 0.5
TINY = cards.models_root() / "tiny"
LINEARS = tuple(f"model.layers.{layer}.{name}" for layer, name in enumerate(("self_attn.q_proj", "mlp.down_proj")))
EVERY_LINEAR = tuple(
    f"model.layers.1.{name}_proj"
    for name in (*(f"self_attn.{x}" for x in "qkvo"), *(f"mlp.{x}" for x in ("gate", "up", "down")))
)
Tensors = dict[str, Tensor]


def matrices(directory: Path, linears: tuple[str, ...] = LINEARS, dtype: torch.dtype = torch.int8) -> Tensors:
    """An adapter's tensors for the model in `directory`."""
    base, dice = load_file(directory / "model.safetensors"), torch.Generator().manual_seed(7)
    tensors: Tensors = {}
    for linear in linears:
        out, width = base[f"{linear}.weight"].shape
        for side, shape in (("A", (RANK, width)), ("B", (out, RANK))):
            name = f"base_model.model.{linear}.lora_{side}.weight"
            values = torch.randint(-127, 128, shape, generator=dice)
            if dtype is torch.int8:
                tensors[name], tensors[f"{name}.scale"] = values.to(dtype), torch.full(shape[:1], 2**-9)
            else:
                tensors[name] = (values * 2**-9).to(dtype)
    return tensors


def metadata(directory: Path, **changes: str) -> dict[str, str]:
    """The metadata of an adapter for the weights in `directory`."""
    own = {"format": "speclsp-lora-1", "rank": str(RANK), "scale": str(SCALE)}
    return own | {"weights_sha256": adapters.sum_of_weights(directory)} | changes


def write(
    models_dir: Path,
    name: str = "mine",
    weights: str = "tiny",
    base: Path = TINY / "target",
    edit: Callable[[Tensors], object] = lambda tensors: None,
    dtype: torch.dtype = torch.int8,
    **changes: str,
) -> Path:
    """Write an adapter and its card into `models_dir`/adapters; `edit` and `changes` spoil tensors and metadata."""
    tensors, texts = matrices(base, dtype=dtype), metadata(base)
    edit(tensors)
    file = models_dir / "adapters" / f"{name}.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file, texts | changes)
    write_card(file, weights)
    return file


def write_card(file: Path, weights: str, **changes: object) -> None:
    """Write the card of an adapter's file, with the file's present sum."""
    values: dict[str, object] = {"weights": weights, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    values |= {"licence": "Apache-2.0", "data": "Random numbers."} | changes
    file.with_suffix(".toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


def merge_by_definition(directory: Path, adapter: Mapping[str, Tensor]) -> None:
    """Replace the weights in `directory` by W + scale * B A, rounded to float32 and then to their own type."""
    file = directory / "model.safetensors"
    tensors = load(file.read_bytes())  # not `load_file`: Windows does not let a mapped file be written
    for linear in {name.split(".lora_")[0].removeprefix("base_model.model.") for name in adapter}:
        a, b = (
            adapter[name].double() * adapter.get(f"{name}.scale", torch.ones(1)).double()[:, None]
            for name in (f"base_model.model.{linear}.lora_{side}.weight" for side in "AB")
        )
        weight = tensors[f"{linear}.weight"]
        for kind in KINDS:
            tensors.pop(kind.name(linear), None)
        tensors[f"{linear}.weight"] = (weight.double() + SCALE * (b @ a)).float().to(weight.dtype)
    save_file(tensors, file, {"format": "pt"})
