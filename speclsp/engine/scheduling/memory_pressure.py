"""When to give memory back because another program needs it, and when to take it again: the decision alone.

    free < keep                              one step down; another at the next look, if that was not enough
    free >= keep + what the step took        for WAIT_S on end: one step up
    between                                  stay

Going down is quick and coming back slow, each step is judged by itself, and what a step would take must be free
beyond what is to stay free: so the level cannot swing by its own doing. Nothing is measured here and nothing freed
(memory.py, holding.py): a level goes down or up because somebody says how much was free when.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOOK_S = 2.0  # between two looks
WAIT_S = 30.0  # there must have been room for so long before anything is taken again


@dataclass(slots=True)
class MemoryPressure:
    """How much has been given back, step by step; level 0 is nothing.

    Args:
        keep_mib: is to stay free for others.
        steps: how many there are.
    """

    keep_mib: int
    steps: int
    given_mib: list[int] = field(default_factory=list)  # what each step gave, the first one first
    roomy_since_s: float | None = None  # since when there has been room for the last step to be taken back

    @property
    def level(self) -> int:
        """How many steps down it is."""
        return len(self.given_mib)

    def judge(self, now_s: float, free_mib: int) -> int:
        """At a look: 1, one more step is to be given; -1, the last is to be taken again; 0, neither."""
        if free_mib < self.keep_mib:
            self.roomy_since_s = None
            return 1 if self.level < self.steps else 0
        if not self.given_mib or free_mib < self.keep_mib + self.given_mib[-1]:
            self.roomy_since_s = None
            return 0
        if self.roomy_since_s is None:
            self.roomy_since_s = now_s
        return -1 if now_s - self.roomy_since_s >= WAIT_S else 0

    def gave(self, mib: int) -> None:
        """A step down was made, and gave back so much."""
        self.given_mib.append(max(0, mib))

    def took(self) -> None:
        """The last step was taken back."""
        self.given_mib.pop()
        self.roomy_since_s = None

    def failed(self) -> None:
        """The last step could not be taken back: there must be room for as long again."""
        self.roomy_since_s = None

    def settle(self, free_mib: int) -> None:
        """All was loaded, and left so much free: our own weights do not count as another's need.

        On a machine that has less than `keep_mib` left then, only a further fall, by half, is another program's.
        """
        self.keep_mib = min(self.keep_mib, free_mib // 2) if free_mib < self.keep_mib else self.keep_mib
