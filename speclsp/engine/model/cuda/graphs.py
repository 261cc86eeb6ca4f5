"""CUDA graphs by key: work that was captured is replayed, other work runs eagerly and is captured after some uses."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

MAX_GRAPHS = 64  # each has kernels' arguments and its part of the pool: about 1 MiB
MAX_COUNTED = 256  # keys of work that is not captured; every temperature that a client sends makes some
CAPTURE_AT = 3  # work is captured at its third use, unless the warm-up has captured it

Work = Callable[[], None]
OWNERS = itertools.count()  # numbers for the keys of an object's graphs: an id is used again after the object is freed
log = logging.getLogger("speclsp.engine.cuda")


class CudaGraphs:
    """Captured graphs by key.

    Args:
        make_recorder: returns a function from work to its replay; None where nothing can be captured.
    """

    def __init__(self, make_recorder: Callable[[], Callable[[Work], Work]] | None = None) -> None:
        self.make_recorder = make_recorder
        self.record = make_recorder() if make_recorder else None
        self.replays: dict[Hashable, Work] = {}
        self.pending: dict[Hashable, Work] = {}  # requested, and neither captured nor refused
        self.uses: Counter[Hashable] = Counter()

    def run(self, key: Hashable, work: Work) -> None:
        """Do `work`, which reads and writes the same memory every time."""
        if key in self.replays:
            self.replays[key] = replay = self.replays.pop(key)  # the last one is the newest in use
            replay()
        else:
            work()
            self.count_use(key, work)

    def count_use(self, key: Hashable, work: Work) -> None:
        """Count a use of work that is not captured; use number CAPTURE_AT captures it."""
        if len(self.uses) >= MAX_COUNTED and key not in self.uses:
            self.uses.clear()
            self.pending.clear()
        self.pending[key] = work
        self.uses[key] += 1
        if self.uses[key] == CAPTURE_AT:
            self.capture(key)

    def capture_pending(self) -> None:
        """Capture all work that was requested so far."""
        for key in list(self.pending):
            self.capture(key)

    def capture(self, key: Hashable) -> None:
        """Capture work whose kernels have all run before. If the device refuses, the work keeps running eagerly."""
        work = self.pending.pop(key, None)
        if self.record is None or work is None:
            return
        try:
            with torch.inference_mode():
                replay = self.record(work)
            while len(self.replays) >= MAX_GRAPHS:  # the least recently used; it may be captured again
                dropped = next(iter(self.replays))
                del self.replays[dropped]
                self.uses.pop(dropped, None)
            self.replays[key] = replay
        except RuntimeError as error:
            log.warning("%s is not captured and stays slower: %s", key, str(error).splitlines()[0])

    def forget(self) -> None:
        """Drop all graphs: they read and write memory that is about to be freed."""
        for by_key in (self.replays, self.pending, self.uses):
            by_key.clear()
        if self.record is not None and self.make_recorder is not None:
            self.record = self.make_recorder()  # with a new memory pool: the old pool is freed with its graphs


def graphs_for(device: str) -> CudaGraphs:
    """CUDA graphs that share one memory pool: no two run at once, and none leaves results in the pool."""

    def make_recorder() -> Callable[[Work], Work]:
        with on(device):
            pool = torch.cuda.graph_pool_handle()

        def record(work: Work) -> Work:
            graph = torch.cuda.CUDAGraph()
            with on(device), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                work()
            return graph.replay

        return record

    return CudaGraphs(make_recorder if device.startswith("cuda") else None)


def on(device: str) -> AbstractContextManager[Any]:
    """Make `device` this thread's current device: some kernels use it instead of their arguments' device."""
    return torch.cuda.device(device) if device.startswith("cuda") else nullcontext()
