"""Fake models that can be predicted by hand, with the interface of CachedModel."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import numpy as np

from speclsp.engine.decoding.drafters import FreeDrafter, Guess, Pick
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.kv_cache import CachedModel

VOCAB = 64


class CountingLM(CachedModel):
    """Predicts n + 1 after n, and 0 after any of `wrong_after`. Records its passes."""

    def __init__(
        self, wrong_after: Collection[int] = (), context_tokens: int = 10_000, prefill_tokens: int = 10_000
    ) -> None:
        super().__init__(context_tokens, prefill_tokens, slots=1)
        self.wrong_after = wrong_after
        self.passes: list[int] = []  # rows of each

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        self.ids.extend(new)

    def forward(self, new: Sequence[int]) -> Floats:
        self.ids.extend(new)
        self.passes.append(len(new))
        logits = np.zeros((len(new), VOCAB), np.float32)
        for row, token in enumerate(new):
            logits[row, 0 if token in self.wrong_after else (token + 1) % VOCAB] = 10.0
        return logits


class Script(FreeDrafter):
    """A drafter whose guesses come from a function."""

    source = "script"

    def __init__(self, propose) -> None:
        self.guesses = propose

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        return Guess(list(self.guesses(list(ids), k))[:k])
