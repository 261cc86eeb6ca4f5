"""What of a loaded pair can be given back, what of it has been, and the way back. No torch.

The steps have an order, the least missed first. Another program's need takes those that cost no more than time, our own
all of them; whoever gave a step back, the last one given is the first to be taken again.
"""

from __future__ import annotations

from collections.abc import Iterable

from speclsp.engine.scheduling.loaded_model import NO_DRAFT, ReleaseStep
from speclsp.engine.scheduling.memory_pressure import MemoryPressure

UNLOADED = "unloaded"  # the last step, for another program's sake


class MemorySteps:
    """The steps of what is loaded, and the names of those given back, which are known while nothing is.

    Args:
        courtesy: is told what each step gave.
    """

    def __init__(self, courtesy: MemoryPressure) -> None:
        self.steps: dict[str, ReleaseStep] = {}  # by name
        self.given: list[str] = []  # the last one last
        self._courtesy = courtesy
        self._names: tuple[str, ...] = ()

    @property
    def memory(self) -> str:
        """The last step that was given back; "full" when none was."""
        return next((name for name in reversed(self.given) if name != UNLOADED), "full")

    def settle(self, steps: Iterable[ReleaseStep]) -> None:
        """All was loaded, and has these steps: what had been given back of it is given again."""
        self.steps = {step.name: step for step in steps}  # not always the same: a GPU may be fuller now
        self._names = tuple(self.steps)
        given = [pair for pair in zip(self.given, self._courtesy.given_mib, strict=True) if pair[0] in self.steps]
        self.given, self._courtesy.given_mib = [name for name, _ in given], [mib for _, mib in given]
        self._courtesy.steps = len(self.steps) + 1
        for name in self.given:
            if name != NO_DRAFT:  # loaded without
                self.steps[name].give()

    def next(self, for_others: bool) -> ReleaseStep | None:
        """What is to be given back next; None: all of it."""
        left = [step for step in self.steps.values() if step.name not in self.given]
        return next((step for step in left if step.for_others or not for_others), None)

    def down(self, name: str, given_mib: int) -> None:
        """That was given back."""
        self.given.append(name)
        self._courtesy.gave(given_mib)

    def to_the_bottom(self) -> None:
        """What is loaded next begins with as little as there can be."""
        for name in self._names:
            if name not in self.given:
                self.down(name, 0)

    def up(self) -> None:
        """The last step was taken again."""
        self.given.pop()
        self._courtesy.took()
