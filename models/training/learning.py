"""One optimizer step at a time: weighted cross-entropy of answers, gradient accumulation, warm-up and decay.

    examples of a step ─► rows ─► a pass for each, `workers` at a time: forward, backward ─► clipped gradient ─► AdamW

The head is evaluated on the answers' positions only: a vocabulary of 150,000 on a prompt of 700 tokens would cost more
than a quarter of the pass. A step's loss is the mean over its answers' tokens, not over its answers: each token weighs
the same, whatever the length of its answer. On a CPU each example has a pass of its own: at some hundred tokens it is
bound by arithmetic, so a longer pass saves nothing. Workers share no barrier within a pass, so a core that another
program uses delays one example and not each product. On a GPU a pass of one example is bound by its launches: there a
row has several examples (packed_row.py). Gradients are added in the order of the passes: the number of workers changes
no bit.
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

from models.training import packed_row
from models.training.lora import Adapter, parameters
from speclsp.errors import EngineError

T = TypeVar("T")

MAX_GRADIENT = 1.0  # its norm; longer ones are scaled down
WARM_UP_STEPS = 10
LAST_RATE = 0.05  # of the peak


class Diverged(EngineError):
    """The loss or its gradient is not a number."""


def rate_at(progress: float, step: int, peak: float) -> float:
    """The learning rate after `step` steps: linear warm-up, then linear decay over `progress` 0..1."""
    return peak * min(1.0, (step + 1) / WARM_UP_STEPS) * max(LAST_RATE, 1.0 - progress)


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
    """Weighted mean cross-entropy of each example's answer, [examples], in one pass over a row of all of them."""
    device, ids, options = model.lm_head.weight.device, list[int](), dict[str, Any]()
    numbers, places, labels, weights = [], [], [], []  # of the tokens that count
    for number, example in enumerate(examples):
        first = len(ids) + len(example.prompt) - 1  # the logits there predict the answer's first token
        ids += [*example.prompt, *example.answer]
        for token, weight in enumerate(example.weights):
            if weight > 0:
                numbers.append(number)
                places.append(first + token)
                labels.append(example.answer[token])
                weights.append(weight)
    if len(examples) > 1:
        packed_row.enable(model)
        packing = packed_row.Packing.of([example.tokens for example in examples], device)
        options = {"packing": packing, "position_ids": packing.positions}
    row = torch.tensor([ids], device=device)
    hidden = model.model(input_ids=row, use_cache=False, **options).last_hidden_state[0]
    number_of, place_of, label_of = torch.tensor([numbers, places, labels], dtype=torch.int64, device=device)
    weight_of = torch.tensor(weights, device=device)
    logits = model.lm_head(hidden[place_of]).float()  # [tokens that count, vocabulary]
    losses = F.cross_entropy(logits, label_of, reduction="none") * weight_of
    zeros = torch.zeros(len(examples), device=device)
    return zeros.index_add(0, number_of, losses) / zeros.index_add(0, number_of, weight_of)


def in_rows(lengths: Sequence[int], row_tokens: int) -> Iterator[slice]:
    """Examples with these numbers of tokens, in their order, as many in a row as `row_tokens` holds, at least one."""
    first, room = 0, row_tokens
    for number, length in enumerate(lengths):
        if number > first and length > room:
            yield slice(first, number)
            first, room = number, row_tokens
        room -= length
    if lengths:
        yield slice(first, len(lengths))


class Learner:
    """A model, its adapter and its optimizer.

    `row_tokens`: the most tokens of a pass with several examples. `workers`: passes at the same time.
    """

    def __init__(
        self,
        model: Any,
        adapter: Adapter,
        peak_rate: float = 3e-4,
        *,
        workers: int = 1,
        row_tokens: int = 0,
    ) -> None:
        self.model, self.peak_rate, self.workers, self.row_tokens = model, peak_rate, workers, row_tokens
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
        shares, mean = [weight / total for weight in weights], 0.0
        rows = list(in_rows([example.tokens for example in examples], self.row_tokens))
        with ThreadPoolExecutor(self.workers) as pool:
            passes = pool.map(self._gradients, [examples[row] for row in rows], [shares[row] for row in rows])
            for loss, gradients in passes:
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

    def _gradients(self, row: Sequence[Example], shares: Sequence[float]) -> tuple[float, Sequence[Tensor]]:
        """The sum of losses of a row, each times its share, and its gradient for each tensor of the adapter."""
        losses = losses_of(self.model, row)
        loss = (losses * torch.tensor(shares, device=losses.device)).sum()
        return float(loss.detach()), torch.autograd.grad(loss, list(self.tensors.values()))

    def losses(self, examples: Iterable[Example], stop: Callable[[], bool] = lambda: False) -> list[float]:
        """The loss of each held-out example before `stop` answers True."""
        losses, listed = list[float](), list(examples)
        rows = [listed[row] for row in in_rows([example.tokens for example in listed], self.row_tokens)]
        with ThreadPoolExecutor(self.workers) as pool:
            for first in range(0, len(rows), self.workers):
                for of_row in pool.map(self._losses, rows[first : first + self.workers]):
                    losses += of_row
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
