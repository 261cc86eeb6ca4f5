"""Hidden states of whole texts, for the training of a draft head."""

from __future__ import annotations

import numpy as np

from speclsp.engine.model.bfloat16 import BFloat16, narrow
from speclsp.engine.model.int8.draft_head import HiddenStates
from speclsp.engine.model.int8.native import NativeDecoder


def layers_of(layers: int) -> tuple[int, int, int]:
    """The numbers of layers after which a model's states are taken: a sixth, a half and all of them."""
    return max(1, layers // 6), max(1, layers // 2), layers


class StateRecorder:
    """Keeps the states of a whole text. See kv_cache.StateReader.

    Use it for one completion at a time, after `forget`.
    """

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder
        decoder.attach(self)
        self.states = HiddenStates(decoder, layers_of(decoder.layers))
        self.known = narrow(self.states.rows[:0])

    def close(self) -> None:
        """Detach it."""
        self.decoder.detach()

    def text(self) -> tuple[list[int], BFloat16]:
        """The tokens that the cache holds, and their states, [T, STATES * hidden]."""
        return list(self.decoder.ids), self.known[: len(self.decoder.ids)]

    def passed(self, rows: int, again: int) -> None:
        """See StateReader."""
        start = len(self.decoder.ids) - rows
        self.known = np.concatenate([self.known[:start], narrow(self.states.rows[:rows])])

    def lacks(self, start: int) -> bool:
        """See StateReader."""
        return False

    def fill(self, slot: int) -> None:
        """See StateReader: there are no entries."""

    def restored(self, slot: int, tokens: int) -> None:
        """See StateReader: there are no entries."""
