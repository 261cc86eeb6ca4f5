"""One optimizer step at a time: weighted cross-entropy of answers, gradient accumulation, warm-up and decay.

    examples of a step ─► forward, backward: `batch` in a pass, `workers` passes at a time ─► clipped gradient ─► AdamW

The head is evaluated on the answers' positions only: a vocabulary of 150,000 on a prompt of 700 tokens would cost more
than a quarter of the pass. A step's loss is the mean over its answers' tokens, not over its answers: each token weighs
the same, whatever the length of its answer. On a CPU each example has a pass of its own: at some hundred tokens it is
bound by arithmetic, so a batch saves nothing and padding costs. Workers share no barrier within a pass, so a core that
another program uses delays one example and not each product. On a GPU a pass of one example is bound by its launches:
there a batch is padded on the right, where causal attention never looks. Gradients are added in the order of the
passes: the number of workers changes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.lora import Adapter, parameters
from speclsp.cli.first_run.draft_tuning.head_learning import MAX_GRADIENT, Diverged, rate_at

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and its answer in tokens. `weights` has the weight of each of the answer's tokens in the loss."""

    prompt: Sequence[int]
    answer: Sequence[int]
    weights: Sequence[float]

    @property
    def tokens(self) -> int:
        return len(self.prompt) + len(self.answer)


def loss_of(model: Any, example: Example) -> Tensor:
    """Weighted mean cross-entropy of the answer's tokens."""
    return losses_of(model, [example])[0]


def losses_of(model: Any, examples: Sequence[Example]) -> Tensor:
    """Weighted mean cross-entropy of each example's answer, [examples], in one padded pass."""
    device, longest = model.lm_head.weight.device, max(example.tokens for example in examples)
    padded = [[*example.prompt, *example.answer, *[0] * (longest - example.tokens)] for example in examples]
    rows, positions, labels, weights = [], [], [], []  # of the tokens that count
    for row, example in enumerate(examples):
        for number, weight in enumerate(example.weights):
            if weight > 0:
                rows.append(row)
                positions.append(len(example.prompt) - 1 + number)  # the logits there predict the token
                labels.append(example.answer[number])
                weights.append(weight)
    hidden = model.model(input_ids=torch.tensor(padded, device=device), use_cache=False).last_hidden_state
    row_of, position_of, label_of = torch.tensor([rows, positions, labels], dtype=torch.int64, device=device)
    weight_of = torch.tensor(weights, device=device)
    logits = model.lm_head(hidden[row_of, position_of]).float()  # [tokens that count, vocabulary]
    losses = F.cross_entropy(logits, label_of, reduction="none") * weight_of
    zeros = torch.zeros(len(examples), device=device)
    return zeros.index_add(0, row_of, losses) / zeros.index_add(0, row_of, weight_of)


class Learner:
    """A model, its adapter and its optimizer. `batch`: examples of a pass; `workers`: passes at the same time."""

    def __init__(
        self,
        model: Any,
        adapter: Adapter,
        peak_rate: float = 3e-4,
        *,
        workers: int = 1,
        batch: int = 1,
    ) -> None:
        self.model, self.peak_rate, self.workers, self.batch = model, peak_rate, workers, batch
        self.tensors = parameters(adapter)
        self.optimizer = torch.optim.AdamW(list(self.tensors.values()), lr=peak_rate, weight_decay=0.0)
        self.step_count = 0

    def step(self, examples: Sequence[Example], progress: float) -> float:
        """One optimizer step. Returns the mean loss. Raises Diverged; the tensors are then as they were."""
        parameters = list(self.tensors.values())
        for tensor in parameters:
            tensor.grad = torch.zeros_like(tensor)
        weights = [sum(example.weights) for example in examples]
        total = sum(weights) or math.nan
        weighed = [(example, weight / total) for example, weight in zip(examples, weights, strict=True)]
        mean = 0.0
        with ThreadPoolExecutor(self.workers) as pool:
            for loss, gradients in pool.map(self._gradients, in_batches(weighed, self.batch)):
                mean += loss
                for tensor, gradient in zip(parameters, gradients, strict=True):
                    assert tensor.grad is not None
                    tensor.grad += gradient
        norm = float(nn.utils.clip_grad_norm_(parameters, MAX_GRADIENT))
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise Diverged(
                f"step {self.step_count + 1} has a loss of {mean:.3g} and a gradient of {norm:.3g}, "
                f"so training stopped before it; lower the learning rate ({self.peak_rate:g}) or look at its examples."
            )
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(progress, self.step_count, self.peak_rate)
        self.optimizer.step()
        self.step_count += 1
        return mean

    def _gradients(self, weighed: Sequence[tuple[Example, float]]) -> tuple[float, Sequence[Tensor]]:
        """The sum of losses of a batch, each times its share, and its gradient for each tensor of the adapter."""
        losses = losses_of(self.model, [example for example, _ in weighed])
        loss = (losses * torch.tensor([share for _, share in weighed], device=losses.device)).sum()
        return float(loss.detach()), torch.autograd.grad(loss, list(self.tensors.values()))

    def losses(self, examples: Iterable[Example], stop: Callable[[], bool] = lambda: False) -> list[float]:
        """The loss of each held-out example before `stop` answers True."""
        losses: list[float] = []
        batches = list(in_batches(list(examples), self.batch))
        with ThreadPoolExecutor(self.workers) as pool:
            for first in range(0, len(batches), self.workers):
                for of_batch in pool.map(self._losses, batches[first : first + self.workers]):
                    losses += of_batch
                if stop():
                    break
        return losses

    def _losses(self, examples: Sequence[Example]) -> list[float]:
        with torch.no_grad():  # a property of the thread
            return list(losses_of(self.model, examples).tolist())


def in_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in their order, `size` at a time."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
