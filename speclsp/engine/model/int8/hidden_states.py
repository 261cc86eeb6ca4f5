"""Hidden states of a decoder after three of its layers, for a draft head and for its training."""

from __future__ import annotations

import torch
from torch import Tensor

from speclsp.engine.model.int8.native import PASS_ROWS, NativeDecoder

STATES = 3  # of a position


def layers_of(layers: int) -> tuple[int, int, int]:
    """The numbers of layers after which a model's states are taken: a sixth, a half and all of them."""
    return max(1, layers // 6), max(1, layers // 2), layers


class HiddenStates:
    """The states of the last pass. The decoder writes them until its reader is detached."""

    def __init__(self, decoder: NativeDecoder, layers: tuple[int, int, int]) -> None:
        self.rows = torch.zeros(PASS_ROWS, STATES * decoder.shape.hidden)  # [row of the pass, STATES * hidden]
        decoder.keep_states(self.rows, layers)


class StateRecorder:
    """Keeps the states of a whole text. See kv_cache.StateReader.

    Use it for one completion at a time, after `forget`.
    """

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder, self.parts = decoder, list[Tensor]()
        decoder.attach(self)
        self.states = HiddenStates(decoder, layers_of(decoder.layers))

    def close(self) -> None:
        """Detach it."""
        self.decoder.detach()

    def text(self) -> tuple[list[int], Tensor]:
        """The tokens that the cache holds, and their states, [T, STATES * hidden] bfloat16."""
        return list(self.decoder.ids), torch.cat(self.parts)[: len(self.decoder.ids)]

    def passed(self, rows: int, again: int) -> None:
        """See StateReader."""
        start = len(self.decoder.ids) - rows
        known = torch.cat(self.parts)[:start] if start else self.states.rows[:0].bfloat16()
        self.parts = [known, self.states.rows[:rows].bfloat16()]

    def lacks(self, start: int) -> bool:
        """See StateReader."""
        return False

    def fill(self, slot: int) -> None:
        """See StateReader: there are no entries."""

    def restored(self, slot: int, tokens: int) -> None:
        """See StateReader: there are no entries."""
