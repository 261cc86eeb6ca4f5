"""Training of a draft head on the target's answers: steps in a fixed order, and its state on disk.

A text is a prompt with the target's answer, and the states of its tokens. A step takes a few texts. Of each, all
positions of the answer and some of the prompt begin a chain of guesses (layer.py). A training that was stopped
goes on from its state with the same steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.training import training_state
from models.training.draft_head.layer import HeadLayer, losses
from models.training.learning import MAX_GRADIENT, Diverged, rate_at

STEPS = 3  # of a chain in training
POSITIONS = 96  # of a text in a step
MAX_TOKENS = 384  # of a text: the last ones
STEP_TEXTS = 6
SAVE_EVERY_S = 60.0
PEAK_RATE = 1.5e-3


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt of `prompt` tokens with an answer, [T], and the states of its tokens, [T or T-1, STATES * hidden]."""

    ids: Sequence[int]
    states: Tensor
    prompt: int


class HeadTraining:
    """A training of `head` on `texts`, of `steps` steps or, if 0, of `budget_s` seconds.

    Raises WeightsError: `state` belongs to another head, or cannot be read.

    Args:
        plan: everything else that the steps depend on; a state of another plan is refused.
    """

    def __init__(
        self, head: HeadLayer, texts: Sequence[Text], state: Path, plan: Mapping[str, Any],
        *, steps: int = 0, budget_s: float = 0.0, seed: int = 0, peak_rate: float = PEAK_RATE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.head, self.state, self.plan = head, state, dict(plan)
        self.texts = [text for text in texts if len(text.states) >= STEPS]
        self.steps, self.budget_s, self.seed, self.peak_rate, self.clock = steps, budget_s, seed, peak_rate, clock
        target = head.target
        self.rows = target.embedding[target.vocabulary].float(), target.teacher[target.vocabulary].float()
        self.tensors = dict(head.weight.items())
        self.optimizer = torch.optim.AdamW(
            list(self.tensors.values()), lr=peak_rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        self.step_count = 0
        self.trained_s = training_state.restore(self, state, self.plan) or 0.0

    @property
    def progress(self) -> float:
        """The trained part, 0 to 1."""
        return min(1.0, self.step_count / self.steps if self.steps else self.trained_s / self.budget_s)

    def run(self, stop: Callable[[], bool], report: Callable[[dict[str, Any]], None] = lambda line: None) -> bool:
        """Train to the end, or until `stop` answers True; `report` gets a line a step. Returns True at the end.

        Raises:
            Diverged: a step without a finite loss; the state before it is kept.
            WeightsError: the state cannot be written.
        """
        saved_s = self.clock()
        while self.progress < 1 and not stop():
            began_s = self.clock()
            numbers = self.chosen(self.step_count)
            loss, agreed = self.step([self.texts[number] for number in numbers])
            now_s = self.clock()
            self.trained_s += now_s - began_s
            report({
                "step": self.step_count, "loss": round(loss, 4), "agreed": [round(share, 3) for share in agreed],
                "epochs": round(self.step_count * STEP_TEXTS / len(self.texts), 2),
                "trained_s": round(self.trained_s, 1),
            })  # fmt: skip
            if now_s - saved_s > SAVE_EVERY_S:
                self.save()
                saved_s = now_s
        self.save()
        return self.progress >= 1

    def save(self) -> None:
        """Write the state. Raises WeightsError; the former state is then kept."""
        training_state.save(self, self.state, self.plan, self.trained_s)

    def chosen(self, step: int) -> list[int]:
        """The texts of a step: each once, in an order of its epoch, before any comes again."""
        count = len(self.texts)
        numbers = []
        for number in range(step * STEP_TEXTS, (step + 1) * STEP_TEXTS):
            order = list(range(count))
            random.Random(f"{self.seed} {number // count}").shuffle(order)
            numbers.append(order[number % count])
        return numbers

    def step(self, texts: Sequence[Text]) -> tuple[float, list[float]]:
        """One optimizer step. Returns the mean loss, and the shares of right guesses by their place in a chain."""
        dice = random.Random(f"{self.seed} {self.step_count}")
        self.optimizer.zero_grad()
        loss, shares = 0.0, []
        for text in texts:
            ids, states, at = (part.to(self.head.device) for part in chosen_positions(text, dice))
            of_text, agreed = losses(self.head, self.rows, ids, states, at, STEPS)
            (of_text / len(texts)).backward()
            loss += float(of_text.detach()) / len(texts)
            shares.append(agreed)
        norm = float(torch.nn.utils.clip_grad_norm_(list(self.tensors.values()), MAX_GRADIENT))
        if not torch.isfinite(torch.tensor([loss, norm])).all():
            raise Diverged(f"step {self.step_count + 1} has a loss of {loss:.3g}: lower the learning rate.")
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.progress, self.step_count, self.peak_rate)
        self.optimizer.step()
        self.step_count += 1
        return loss, [sum(column) / len(column) for column in zip(*shares, strict=True)]


def chosen_positions(text: Text, dice: random.Random) -> tuple[Tensor, Tensor, Tensor]:
    """The last tokens of a text, their states, and where chains begin: in the answer first."""
    cut = max(0, len(text.states) - MAX_TOKENS)
    states = text.states[cut:].float()
    ids, first = torch.tensor(text.ids[cut : cut + len(states)]), max(0, text.prompt - cut)
    last = len(ids) - STEPS
    answer, prompt = list(range(first, last + 1)), list(range(min(8, first), min(first, last + 1)))
    at = answer[:POSITIONS]
    at += dice.sample(prompt, min(len(prompt), POSITIONS - len(at)))
    return ids, states, torch.tensor(sorted(at) or [last])
