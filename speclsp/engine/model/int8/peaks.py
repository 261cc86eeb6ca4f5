"""Measures the machine's peaks with the instructions of one path: no pass of the int8 decoder can be faster."""

from __future__ import annotations

import time
from dataclasses import dataclass

from speclsp import process_resources
from speclsp.engine.model.int8.native import PATHS, library_of

READ_BYTES, INT8_PRODUCTS, ATTENTION_PRODUCTS = range(3)  # as in peaks.h
NEEDED_MIB = 512 + 32  # peaks.h reads 512 MiB; the rest is for what the process allocates beside them
MOMENT_S = 0.1  # of each measurement at a moment
LEAST_SHARE = 0.85  # of their processors that the threads get at an undisturbed moment
NO_MEMORY = "the CPU's speed is not measured, because 512 MiB are not free"


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peaks of the machine with the instructions of one path, all threads together."""

    read_gb_s: float  # of weights from memory
    int8_g_s: float  # 10^9 multiply-adds a second of the linears


def undisturbed_peaks(path: str, threads: int) -> Peaks | None:
    """Measure at one moment; None if other programs take processor time from the threads. Raises MemoryError."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    products = measure(path, INT8_PRODUCTS, threads, MOMENT_S, turns=1)
    possible_s = (time.perf_counter() - began_s) * min(threads, process_resources.cpus().usable)
    if time.process_time() - began_cpu_s < LEAST_SHARE * possible_s:
        return None
    return Peaks(measure(path, READ_BYTES, threads, MOMENT_S, turns=1), products)


def measure(path: str, what: int, threads: int, seconds: float = 0.5, turns: int = 2) -> float:
    """10^9 operations a second of READ_BYTES, INT8_PRODUCTS or ATTENTION_PRODUCTS.

    The best turn counts: other programs only slow it. Raises MemoryError: there are no 512 MiB to read. Free memory is
    read first, because a control group's limit kills the process instead of refusing the allocation.
    """
    if process_resources.memory().free_mib < NEEDED_MIB:
        raise MemoryError(NO_MEMORY)
    peak, number = library_of(path).speclsp_peak, PATHS[path][1]
    best: float = max(peak(number, what, threads, seconds) for _ in range(turns)) / 1e9
    if not best:
        raise MemoryError(NO_MEMORY)
    return round(best, 1)
