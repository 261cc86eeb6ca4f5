"""Measures the CPU's speed for `model = "auto"`, at moments without other programs, and keeps the median.

While no speed is recorded, it is measured at a start, and at an unload because no request comes. A figure that was
taken while the processor was busy is not kept. A new one takes effect at the next start.
"""

from __future__ import annotations

import statistics
import time

from speclsp.config import Config
from speclsp.engine.loading.load_plan import cpu_threads
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.peaks import Peaks, undisturbed_peaks
from speclsp.weights import auto_choice
from speclsp.weights.cards import Card

INT4_BYTES = 0.67  # that a step reads for a parameter in int4, beside int8, as measured
MOMENTS, GAP_S = 5, 0.3  # whose median counts, and the time between two
TRIES = 8  # moments, disturbed ones included
BUSY = "Other programs use the processor, so its speed was not kept; it is measured again when the engine is idle."


def choose_card(config: Config, download: bool = False) -> tuple[Card, str]:
    """The model of these settings, and the reason; see `auto_choice.auto`. A speed that is not known is measured."""
    busy = measure_if_needed(config)
    card, why = auto_choice.auto(config, download)
    return card, f"{why} {busy}".rstrip()


def measure_if_needed(config: Config) -> str:
    """Record the CPU's speed if "auto" needs it; BUSY where other programs prevent that, else ""."""
    if config.model != "auto" or auto_choice.device_of(config.device) != "cpu":
        return ""
    if auto_choice.recorded(config.engine.threads):
        return ""
    native.use(config.engine.cpu_path)
    path = native.best_path()
    if not path:
        return ""  # without the compiled forward every model is slow
    moments: list[Peaks] = []
    for _ in range(TRIES):
        try:
            peaks = undisturbed_peaks(path, cpu_threads(config))
        except MemoryError:
            return ""  # too little memory for a larger model as well
        moments += [peaks] if peaks else []
        if len(moments) == MOMENTS:
            machine = auto_choice.machine_name(config.engine.threads)
            read_gb_s = statistics.median(peaks.read_gb_s for peaks in moments)
            int8_g_s = statistics.median(peaks.int8_g_s for peaks in moments)
            int4_bytes = INT4_BYTES if path in native.FASTER_IN_INT4 else 1.0
            auto_choice.record(auto_choice.CpuSpeed(machine, read_gb_s, int8_g_s, int4_bytes))
            return ""
        time.sleep(GAP_S)
    return BUSY
