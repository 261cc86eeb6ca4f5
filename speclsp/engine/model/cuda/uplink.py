"""Small host-to-device copies that do not wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

BUFFERS = 4  # copies that may be in flight at once


class Uplink:
    """Writes small messages of integers to a fixed buffer on the device, without waiting for the previous one.

    Messages are copied from pinned memory, each from another part of it, so that none is overwritten in flight.

    Args:
        buffer: [n] int64 on the device; a message is written to its start.
    """

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer
        self.pinned = torch.zeros((BUFFERS, *buffer.shape), dtype=buffer.dtype, pin_memory=buffer.is_cuda)
        self.copied: list[Any] = [None] * BUFFERS  # events
        self.turn = 0

    def send(self, message: Sequence[int]) -> None:
        """Write `message` to the start of the buffer."""
        turn, self.turn = self.turn, (self.turn + 1) % BUFFERS
        if self.copied[turn] is not None:
            self.copied[turn].synchronize()
        staged = self.pinned[turn, : len(message)]
        staged.copy_(torch.tensor(message))
        self.buffer[: len(message)].copy_(staged, non_blocking=True)
        self.copied[turn] = event_now(self.buffer)


def event_now(tensor: Tensor) -> Any:
    """An event after all work submitted to the tensor's device so far; None on a CPU, where no work is pending."""
    if not tensor.is_cuda:
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(tensor.device))
    return event
