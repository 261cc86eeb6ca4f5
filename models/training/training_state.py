"""State of a training that can stop at any moment: tensors, optimizer and place, in one safetensors file.

The file is replaced in one step, so it is always a whole one. A training that goes on from it takes the same steps, bit
for bit, as one that was never stopped, on the same machine with the same number of threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from speclsp import private_files
from speclsp.errors import InputError, WeightsError
from speclsp.private_files import os_errors

MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's, by the names of torch


class Training(Protocol):
    """A training in memory: the tensors that learn, by name, their optimizer, and the number of steps."""

    step_count: int

    @property
    def tensors(self) -> Mapping[str, nn.Parameter]: ...

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...


def save(learner: Training, path: Path, plan: Mapping[str, Any], trained_s: float) -> None:
    """Write the state, its plan and the time that was trained. Raises WeightsError; the file is then as it was."""
    tensors = {}
    for name, tensor in learner.tensors.items():
        tensors[name] = tensor.detach().cpu().contiguous()
        moments = learner.optimizer.state.get(tensor, {})
        tensors |= {f"{name}#{moment}": moments[moment].cpu().contiguous() for moment in MOMENTS if moment in moments}
    facts = {"plan": dict(plan), "trained_s": trained_s}
    metadata = {"step": str(learner.step_count), "facts": json.dumps(facts)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        private_files.replace(path, to_bytes(tensors, metadata), sync=True)
    except OSError as error:
        raise WeightsError(
            f"the training state cannot be written to {path} ({os_errors.reason(error)}): make room and start "
            "again; it goes on from the last state that was written."
        ) from None


def restore(learner: Training, path: Path, plan: Mapping[str, Any]) -> float | None:
    """Load a state into `learner`. Returns the time that was trained; None where there is no file.

    Raises:
        WeightsError: the file is damaged, or belongs to an adapter of another shape.
        InputError: it belongs to a training with another plan.
    """
    if not path.exists():
        return None
    fix = f"Remove {path} to train from the beginning."
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            # Copies: Windows replaces no file that is mapped into a process.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            facts: dict[str, Any] = json.loads(metadata["facts"])
            step, before, trained_s = int(metadata["step"]), facts["plan"], float(facts["trained_s"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise WeightsError(f"{path} is no training state ({type(error).__name__}: {error}). {fix}") from None
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if "#" not in name}
    if shapes != {name: tuple(tensor.shape) for name, tensor in learner.tensors.items()}:
        raise WeightsError(f"{path} is the state of an adapter of another shape. {fix}")
    if differing := [key for key in {**before, **plan} if before.get(key) != plan.get(key)]:
        raise InputError(
            f"the state in {path.parent} belongs to another training ({', '.join(differing)} differ): choose another "
            "--work folder, or remove this one."
        )
    with torch.no_grad():
        for name, tensor in learner.tensors.items():
            tensor.copy_(tensors[name])
            if f"{name}#{MOMENTS[0]}" in tensors:
                moments = {moment: tensors[f"{name}#{moment}"].to(tensor.device) for moment in MOMENTS}
                learner.optimizer.state[tensor] = {"step": torch.tensor(float(step)), **moments}
    learner.step_count = step
    return trained_s
