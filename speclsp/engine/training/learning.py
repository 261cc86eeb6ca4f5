"""One optimizer step at a time: weighted cross-entropy of answers, gradient accumulation, warm-up and decay.

    examples of a step ─► forward, backward, `workers` at a time ─► clipped gradient ─► AdamW

The head is evaluated on the answers' positions only: a vocabulary of 150,000 on a prompt of 700 tokens would cost more
than a quarter of the pass. A step's loss is the mean over its answers' tokens, not over its answers: each token weighs
the same, whatever the length of its answer. Examples of a step are not padded into a batch: at some hundred tokens each
a pass is bound by arithmetic, so a batch saves nothing and padding costs. Workers share no barrier within a pass, so a
core that another program uses delays one example and not each product. Gradients are added in the order of the
examples: the number of workers changes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from speclsp.engine.training.lora import Adapter, parameters
from speclsp.errors import EngineError

LARGEST_GRADIENT = 1.0  # its norm; longer ones are scaled down
WARM_UP_STEPS = 10
LAST_RATE = 0.05  # of the peak


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and its answer in tokens. `weights` has the weight of each of the answer's tokens in the loss.

    `labels` has the tokens that are learned at the answer's positions, where they are not the answer's own: another
    model's predictions.
    """

    prompt: Sequence[int]
    answer: Sequence[int]
    weights: Sequence[float]
    labels: Sequence[int] = ()

    @property
    def tokens(self) -> int:
        return len(self.prompt) + len(self.answer)


class Diverged(EngineError):
    """The loss or its gradient is not a number."""


def rate_at(progress: float, step: int, peak: float, warm_up_steps: int = WARM_UP_STEPS) -> float:
    """The learning rate after `step` steps: linear warm-up, then linear decay over `progress` 0..1."""
    return peak * min(1.0, (step + 1) / warm_up_steps) * max(LAST_RATE, 1.0 - progress)


def loss_of(model: Any, example: Example) -> Tensor:
    """Weighted mean cross-entropy of the answer's tokens."""
    device = model.lm_head.weight.device
    ids = torch.tensor([[*example.prompt, *example.answer]], device=device)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[0, len(example.prompt) - 1 : -1]
    weights = torch.tensor(example.weights, device=device)
    counted = weights > 0
    answer = torch.tensor(example.labels or example.answer, device=device)[counted]
    losses = F.cross_entropy(model.lm_head(hidden[counted]).float(), answer, reduction="none")
    return (losses * weights[counted]).sum() / weights.sum()


class Learner:
    """A model, its adapter and its optimizer. `workers`: examples that are computed at the same time."""

    def __init__(
        self,
        model: Any,
        adapter: Adapter,
        peak_rate: float = 3e-4,
        *,
        workers: int = 1,
        warm_up_steps: int = WARM_UP_STEPS,
    ) -> None:
        self.model, self.peak_rate, self.workers, self.warm_up_steps = model, peak_rate, workers, warm_up_steps
        self.tensors = parameters(adapter)
        self.optimizer = torch.optim.AdamW(list(self.tensors.values()), lr=peak_rate, weight_decay=0.0)
        self.step_count = 0

    def step(self, examples: Sequence[Example], progress: float) -> float:
        """One optimizer step. Returns the mean loss. Raises Diverged; the tensors are then as they were."""
        parameters = list(self.tensors.values())
        for tensor in parameters:
            tensor.grad = torch.zeros_like(tensor)
        mean, weights = 0.0, [sum(example.weights) for example in examples]
        total = sum(weights) or math.nan
        with ThreadPoolExecutor(self.workers) as pool:
            for weight, (loss, gradients) in zip(weights, pool.map(self._gradients, examples), strict=True):
                share = weight / total
                mean += loss * share
                for tensor, gradient in zip(parameters, gradients, strict=True):
                    assert tensor.grad is not None
                    tensor.grad += gradient * share
        norm = float(nn.utils.clip_grad_norm_(parameters, LARGEST_GRADIENT))
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise Diverged(
                f"step {self.step_count + 1} has a loss of {mean:.3g} and a gradient of {norm:.3g}, "
                f"so training stopped before it; lower the learning rate ({self.peak_rate:g}) or look at its examples."
            )
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(progress, self.step_count, self.peak_rate, self.warm_up_steps)
        self.optimizer.step()
        self.step_count += 1
        return mean

    def _gradients(self, example: Example) -> tuple[float, Sequence[Tensor]]:
        """The loss of an example, and its gradient for each tensor of the adapter."""
        loss = loss_of(self.model, example)
        return float(loss.detach()), torch.autograd.grad(loss, list(self.tensors.values()))

    def loss(self, examples: Iterable[Example], stop: Callable[[], bool] = lambda: False) -> float:
        """The mean loss of held-out examples; of those before `stop` answers True."""
        losses: list[float] = []
        listed = list(examples)
        with ThreadPoolExecutor(self.workers) as pool:
            for first in range(0, len(listed), self.workers):
                losses += pool.map(self._loss, listed[first : first + self.workers])
                if stop():
                    break
        return sum(losses) / len(losses) if losses else math.nan

    def _loss(self, example: Example) -> float:
        with torch.no_grad():  # a property of the thread
            return float(loss_of(self.model, example))
