"""Models simple enough to predict by hand, with the decoder's own face."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from speclsp.engine.draft import Guess, Pick
from speclsp.engine.slots import Cancelled, common_prefix

VOCAB = 64


class CountingLM:
    """After n it says n + 1, and after any of `wrong_after` it says 0. Counts the passes it makes."""

    def __init__(self, wrong_after: Collection[int] = (), context_tokens: int = 10_000) -> None:
        self.wrong_after = wrong_after
        self.context_tokens = context_tokens
        self.ids: list[int] = []
        self.cached_tokens = 0
        self.passes: list[int] = []  # rows of each

    def catch_up(self, ids: Sequence[int], cancel: threading.Event | None = None) -> int:
        if cancel is not None and cancel.is_set():
            raise Cancelled
        self.cached_tokens = common_prefix(self.ids, ids)
        self.ids = list(ids)
        return self.cached_tokens

    prepare = catch_up
    ride_tokens = 0

    def forward(self, new: Sequence[int]) -> Tensor:
        self.ids += new
        self.passes.append(len(new))
        logits = torch.zeros(len(new), VOCAB)
        for row, token in enumerate(new):
            logits[row, 0 if token in self.wrong_after else (token + 1) % VOCAB] = 10.0
        return logits

    def ride(self, new: Sequence[int], wanted: int, cancel: threading.Event | None = None) -> Tensor:
        return self.forward(new)[-wanted:]

    def rewind(self, length: int) -> None:
        del self.ids[length:]


class Script:
    """A drafter that proposes what a function says: right, wrong, or silent, on purpose."""

    source = "script"
    free = True

    def __init__(self, propose) -> None:
        self.say = propose

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        return Guess(list(self.say(list(ids), k))[:k])
