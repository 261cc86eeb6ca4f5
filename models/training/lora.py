"""Low-rank adapters (LoRA, Hu et al. 2021) on a decoder of transformers: W' = W + scale * B @ A, only A and B learn.

    layers[first_layer:] ─► q k v o gate up down, each a LoraLinear ─► gradients for A [rank, in] and B [out, rank]
    layers[:first_layer] ─► frozen, so autograd records nothing there

The model keeps its own number format; A and B are float32 and are rounded to it in the forward pass. B starts at zero:
the first forward pass is the model's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from speclsp.engine.loading import checkpoint, checkpoint_checks, model_config
from speclsp.engine.loading.model_config import quiet_imports
from speclsp.engine.loading.torch_checkpoint import tensor
from speclsp.errors import WeightsError

PROJECTIONS = {
    "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraShape:
    """The size of an adapter."""

    rank: int = 16
    scale: float = 2.0
    first_layer: int = 0  # layers below it are left alone


class LoraLinear(nn.Module):
    """A frozen linear layer and its low-rank change."""

    def __init__(self, linear: nn.Linear, rank: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        device, deviation = linear.weight.device, linear.in_features**-0.5
        a = torch.randn(rank, linear.in_features, generator=generator) * deviation
        self.linear, self.scale = linear, scale
        self.a = nn.Parameter(a.to(device))  # [rank, in]
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank, device=device))  # [out, rank]

    def forward(self, x: Tensor) -> Tensor:
        change = F.linear(F.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype))
        return torch.add(self.linear(x), change, alpha=self.scale)


def read_trainable(directory: Path, device: str, dtype: torch.dtype) -> Any:
    """A model as transformers computes it, through which autograd goes. Its weights have no adapter.

    Raises:
        WeightsError: not a supported model, or one without a gated MLP, which no adapter's file can describe.
    """
    config = model_config.read_config(directory)
    shape = model_config.read_shape(config, config.vocab_size)
    if not shape.gated:
        raise WeightsError(f"{directory.name} is a {config.model_type} model, and an adapter has no form for its MLP.")
    checkpoint_checks.check_tensors(directory, model_config.expected_tensors(config, shape))
    with quiet_imports():
        from transformers import AutoConfig, AutoModelForCausalLM

        published = AutoConfig.for_model(**config.raw)
        model = AutoModelForCausalLM.from_config(published, attn_implementation="sdpa", dtype=dtype)
    with checkpoint.open_tensors(directory) as get, torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensor(get(name)))
    return model.eval().to(device)


Adapter = Mapping[str, LoraLinear]  # by PEFT's name of the layer, in the order of the layers


def attach(model: Any, shape: LoraShape, seed: int = 0) -> Adapter:
    """Freeze `model` and put a LoraLinear in the place of each linear layer from `first_layer` on.

    Args:
        model: a decoder of transformers with `model.layers[i].self_attn` and `.mlp`.
    """
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    adapter: dict[str, LoraLinear] = {}
    for number, layer in enumerate(model.model.layers):
        if number < shape.first_layer:
            continue
        for part, names in PROJECTIONS.items():
            parent = getattr(layer, part)
            for name in names:
                lora = LoraLinear(getattr(parent, name), shape.rank, shape.scale, generator)
                setattr(parent, name, lora)
                adapter[f"base_model.model.model.layers.{number}.{part}.{name}"] = lora
    return adapter


def parameters(adapter: Adapter) -> dict[str, nn.Parameter]:
    """The tensors that learn, by PEFT's names."""
    tensors: dict[str, nn.Parameter] = {}
    for name, lora in adapter.items():
        tensors |= {f"{name}.lora_A.weight": lora.a, f"{name}.lora_B.weight": lora.b}
    return tensors


@torch.no_grad()
def merge(model: Any, adapter: Adapter) -> None:
    """Add the changes to the model's own weights, rounded to their number format, and remove the adapter."""
    for name, lora in adapter.items():
        number, part, projection = name.removeprefix("base_model.model.model.layers.").split(".")
        weight = lora.linear.weight
        weight.copy_((weight.float() + lora.scale * (lora.b @ lora.a)).to(weight.dtype))
        setattr(getattr(model.model.layers[int(number)], part), projection, lora.linear)
