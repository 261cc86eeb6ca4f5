"""Clocks on a device, graphs keyed by name, and the law of possible times.

No work that reads B bytes from memory takes less than B divided by the device's bandwidth. A measurement below that
time is an error of the benchmark, so it is refused: its row says so and has no share. Two allowances keep true times:
the cache may hold a part of the data between two repeats, and the measured bandwidth is below the memory's peak. Rows
whose data fits the cache have no share of the limit.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from speclsp.engine.model.cuda.decoder_warm_up import elapsed_ms
from speclsp.engine.model.cuda.graphs import CudaGraphs

Work = Callable[[], Any]
TOLERANCE = 1.1  # the memory's peak over the measured bandwidth: 4.8 over 4.3 TB/s on an H200
CACHES = 2.0  # data of at least this many times the cache's size is read from memory
MAX_GIB = 64.0  # that this benchmark may allocate on a device
MANY_BYTES, FEW_BYTES = 2**31, 2**24  # copied to measure the bandwidth, on a GPU and on a CPU


@dataclass(frozen=True, slots=True)
class Limit:
    """The memory of a device: its bandwidth, and the cache in front of it."""

    gb_per_s: float
    cache_bytes: float = 0.0

    def least_ms(self, read_bytes: float) -> float:
        """The time in which the device can read that many bytes."""
        return read_bytes / self.gb_per_s / 1e6

    def row(self, ms: float, read_bytes: float) -> dict[str, Any]:
        """A result: the time, the least time, and the share of the limit; or why the time is refused."""
        figures: dict[str, Any] = {"ms": round(ms, 5)}
        if not read_bytes or read_bytes < CACHES * self.cache_bytes:
            return figures
        least_ms = self.least_ms(read_bytes)
        figures["least_ms"] = round(least_ms, 5)
        if ms * TOLERANCE < least_ms * (1 - self.cache_bytes / read_bytes):
            return {**figures, "refused": f"impossible: {read_bytes / 1e6:.1f} MB in {ms * 1e3:.2f} us"}
        return {**figures, "percent_of_limit": round(100 * least_ms / ms, 1)}


def fixed_cost(device_ms: Mapping[int, float], verify_ms: float) -> dict[str, float]:
    """A round's time split by a line through the times at γ guesses: verify + γ · draft + fixed.

    `worst_ms` is the largest distance of a time from the line.
    """
    slope, intercept = statistics.linear_regression(list(device_ms), list(device_ms.values()))
    worst = max(abs(intercept + slope * gamma - ms) for gamma, ms in device_ms.items())
    return {
        "verify_ms": round(verify_ms, 4),
        "draft_step_ms": round(slope, 4),
        "fixed_ms": round(intercept - verify_ms, 4),
        "worst_ms": round(worst, 4),
    }


class NotCaptured(Exception):
    """Work that the device refuses to capture: its time would include its launches."""


@dataclass(slots=True)
class Bench:
    """The device of a run, and the size of its shapes."""

    device: str
    tiny: bool  # the test of the script
    limit: Limit
    repeats: int

    def on_gpu(self) -> bool:
        return self.device != "cpu"


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────────────────


def idle(device: str) -> None:
    """Wait until the device has done all submitted work."""
    if device != "cpu":
        torch.cuda.synchronize()


def wall_ms(device: str, work: Work, repeats: int) -> float:
    """The median time from call to the device being idle."""
    return elapsed_ms(device, work, repeats)


def device_ms(device: str, work: Work, repeats: int) -> float:
    """The time on the device, between two events around `repeats` of them in a row; on a CPU, by the clock."""
    work()
    idle(device)
    if device == "cpu":
        return wall_ms(device, work, repeats)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(repeats):
        work()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / repeats


def captured_ms(graphs: CudaGraphs, name: str, work: Work, device: str, repeats: int) -> float:
    """Device time of captured work, without its launches. `name` is the graph's key: two works never share one."""
    key = ("bench", name)
    if key in graphs.replays or key in graphs.uses:
        raise ValueError(f"{name!r} was measured before: its graph would replay other work")

    def quiet() -> None:
        with torch.inference_mode():
            work()

    def once() -> None:
        graphs.run(key, quiet)

    once()
    graphs.capture_pending()
    if graphs.record is not None and key not in graphs.replays:
        raise NotCaptured(f"{name}: its graph was not captured")
    return device_ms(device, once, repeats)  # the graph stays: PyTorch cannot add to a pool whose graphs are all freed


# ── the device ───────────────────────────────────────────────────────────────────────────────────────────────


def bandwidth(device: str, repeats: int, progress: Callable[[str, float], None]) -> Limit:
    """The higher of two rates of large arrays: a copy (bytes read and written), and a sum (bytes read)."""
    size = MANY_BYTES if device != "cpu" else FEW_BYTES
    source = torch.zeros(size // 4, dtype=torch.int32, device=device)
    into = torch.empty_like(source)
    rates = {
        "copy_gb_per_s": 2 * size / device_ms(device, lambda: into.copy_(source), repeats) / 1e6,
        "read_gb_per_s": size / device_ms(device, lambda: source.view(torch.float32).sum(), repeats) / 1e6,
    }
    for name, rate in rates.items():
        progress(name, round(rate, 1))
    cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) if device != "cpu" else 0
    return Limit(max(rates.values()), cache)


def release(device: str) -> None:
    """Return the memory of freed tensors to the device."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def guard_memory(device: str) -> None:
    """Limit this process to MAX_GIB, or nine tenths of a smaller device: beyond it an allocation fails."""
    if device != "cpu":
        total_gib = torch.cuda.get_device_properties(device).total_memory / 2**30
        torch.cuda.set_per_process_memory_fraction(min(0.9, MAX_GIB / total_gib))


def allocated_mib(device: str) -> float:
    """Memory of this process's tensors on the device; 0 on a CPU."""
    return 0.0 if device == "cpu" else round(torch.cuda.memory_allocated() / 2**20, 1)
