"""Measures the CPU's speed for `model = "auto"`, once per machine."""

from __future__ import annotations

from speclsp.config import Config
from speclsp.engine.loading import loading
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.peaks import measure_peaks
from speclsp.weights import auto_choice

INT4_BYTES = 0.67  # that a step reads for a parameter in int4, beside int8 (benchmarks/speed/int4.py)


def measure_if_needed(config: Config) -> None:
    """Measure and record the CPU's speed if "auto" chooses a model for it and this machine was not measured yet."""
    if config.model != "auto" or auto_choice.device_of(config.device) != "cpu":
        return
    if auto_choice.recorded(config.engine.threads):
        return
    native.use(config.engine.cpu_path)
    path = native.best_path()
    if not path:
        return  # without the compiled forward every model is slow
    try:
        peaks = measure_peaks(path, loading.cpu_threads(config))
    except MemoryError:
        return  # too little memory for a larger model as well
    machine = auto_choice.machine_name(config.engine.threads)
    int4_bytes = INT4_BYTES if path in native.FASTER_IN_INT4 else 1.0
    auto_choice.record(auto_choice.CpuSpeed(machine, peaks.read_gb_s, peaks.int8_g_s, int4_bytes))
