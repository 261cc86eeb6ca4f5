"""Training of a draft's adapter on the target's predictions: a step at a time, stoppable, to the same bits.

The order of the examples is a function of the step alone, and the learning rate follows the seconds that the steps
took. A training that goes on from its state therefore takes the steps that it would have taken without the stop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from speclsp.engine.training import lora, training_state
from speclsp.engine.training.learning import Diverged, Example, Learner
from speclsp.engine.training.lora import LoraShape
from speclsp.errors import WeightsError

STEP_EXAMPLES = 2
WARM_UP_STEPS = 4
SAVE_EVERY_S = 30.0


class DraftTraining:
    """An adapter that is trained for `budget_s` seconds of steps; `state` is its file.

    Args:
        clock: seconds, of any origin.
    """

    def __init__(
        self,
        model: Any,
        examples: Sequence[Example],
        shape: LoraShape,
        peak_rate: float,
        seed: int,
        budget_s: float,
        state: Path,
        clock: Callable[[], float],
    ) -> None:
        self.examples, self.seed, self.budget_s, self.state, self.clock = examples, seed, budget_s, state, clock
        self.learner = Learner(model, lora.attach(model, shape, seed), peak_rate, warm_up_steps=WARM_UP_STEPS)
        self.trained_s = float(training_state.restore(self.learner, state).get("trained_s", 0.0))
        self.diverged = False

    @property
    def progress(self) -> float:
        """The trained part, 0 to 1."""
        return min(1.0, self.trained_s / self.budget_s)

    def run(self, stop: Callable[[], bool]) -> bool:
        """Train to the end, or until `stop` answers True. Returns True at the end.

        A step without a finite loss ends the training before it. Raises WeightsError: the state cannot be written.
        """
        saved_s = self.clock()
        while self.progress < 1 and not self.diverged and not stop():
            began_s = self.clock()
            try:
                self.learner.step(self.chosen(self.learner.step_count), self.progress)
            except Diverged:
                self.diverged = True
            now_s = self.clock()
            self.trained_s += now_s - began_s
            if now_s - saved_s > SAVE_EVERY_S:
                self.save()
                saved_s = now_s
        self.save()
        return self.progress >= 1 or self.diverged

    def save(self) -> None:
        """Write the state. Raises WeightsError; the former state is then kept."""
        training_state.save(self.learner, self.state, {"trained_s": self.trained_s})

    def chosen(self, step: int) -> list[Example]:
        """The examples of a step: each example once, in an order of its epoch, before any comes again."""
        count = len(self.examples)
        numbers = range(step * STEP_EXAMPLES, (step + 1) * STEP_EXAMPLES)
        return [self.examples[order(count, self.seed, number // count)[number % count]] for number in numbers]


def order(count: int, seed: int, epoch: int) -> list[int]:
    """The order of the examples in an epoch."""
    numbers = list(range(count))
    random.Random(f"{seed} {epoch}").shuffle(numbers)
    return numbers


def stored_tensors(training: DraftTraining) -> dict[str, Any]:
    """The adapter's tensors. Raises WeightsError: no step was taken."""
    if not training.learner.step_count:
        raise WeightsError("the first step of the training has no finite loss, so there is no adapter to judge.")
    return dict(training.learner.tensors)
