"""The model for `model = "auto"`: the largest one that fits the free memory and, on a CPU, answers in time.

The CPU's speed is measured once per machine and kept. A suggestion's time is predicted from it:

    a token of prefill   parameters / int8 multiply-adds a second
    a decoding step      parameters / bytes read a second, one byte a parameter

Both count a model's embedding as a weight, which makes up for the difference between a kernel and the peak.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from speclsp import config as settings
from speclsp import private_files
from speclsp.weights.cards import MARGIN_MIB, WITHOUT_GPU, Card, Weights, load, names

FILE = "cpu-speed.json"
MOST_BYTES = 4096
NEW_TOKENS, FIRST_TOKENS = 24, 300  # of a prompt: at the next key, and at the first one in a file
ANSWER_TOKENS, TOKENS_A_STEP = 12, 1.7  # of a usual suggestion; the latter measured with n-gram drafts
FIRST_TO_USUAL = 6  # a first suggestion may take so many times the limit of a usual one: 1.5 s for 250 ms


@dataclass(frozen=True, slots=True)
class CpuSpeed:
    """Peaks of the CPU, and the machine on which they were measured."""

    machine: str
    read_gb_s: float
    int8_g_s: float  # 10^9 multiply-adds a second

    def suggestion_ms(self, parameters: int, new_tokens: int) -> float:
        """Predicted time of a suggestion after `new_tokens` tokens that are not in the KV cache."""
        prefill_ms = new_tokens * parameters / self.int8_g_s / 1e6
        return prefill_ms + ANSWER_TOKENS / TOKENS_A_STEP * parameters / self.read_gb_s / 1e6

    def usual_ms(self, parameters: int) -> float:
        """Predicted time of a suggestion at the next key."""
        return self.suggestion_ms(parameters, NEW_TOKENS)

    def first_ms(self, parameters: int) -> float:
        """Predicted time of the first suggestion in a file."""
        return self.suggestion_ms(parameters, FIRST_TOKENS)

    def suits(self, parameters: int, limit_ms: float) -> bool:
        """True if the usual and the first suggestion of a model stay within their limits."""
        return self.usual_ms(parameters) <= limit_ms and self.first_ms(parameters) <= FIRST_TO_USUAL * limit_ms


def machine_name(threads: int = 0) -> str:
    """The machine that a measurement holds for: processor, cores and threads."""
    processor = cpuinfo_field("model name") or platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {threads or 'all'} threads"


def cpuinfo_field(field: str) -> str:
    """The first value of a field of /proc/cpuinfo; "" where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == field), "")


def path() -> Path:
    """The file of the measurement."""
    return settings.stats_path().with_name(FILE)


def recorded(threads: int = 0) -> CpuSpeed | None:
    """The measurement of this machine; None if there is none, or it is of another machine."""
    try:
        speed = CpuSpeed(**json.loads(private_files.read_bytes(path(), MOST_BYTES)))
        usable = speed.machine == machine_name(threads) and min(speed.read_gb_s, speed.int8_g_s) > 0
    except (OSError, ValueError, TypeError):  # none, or one that a person has edited
        return None
    return speed if usable else None


def record(speed: CpuSpeed) -> None:
    """Keep a measurement. Where that fails, the next start measures again."""
    with contextlib.suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        private_files.replace(path(), json.dumps(asdict(speed)).encode())


def choose(
    free_mib: int,
    device: str,
    fetchable: Callable[[Weights], bool] = lambda weights: True,
    speed: CpuSpeed | None = None,
    limit_ms: int = 0,
) -> tuple[Card, str]:
    """The pair for `model = "auto"`, and why, in a sentence for people.

    Args:
        free_mib: free memory of the device.
        fetchable: True when the weights are here or can be fetched.
        speed: of the CPU, where that is the device; None: not measured.
        limit_ms: for a usual suggestion on a CPU.
    """
    small = load(WITHOUT_GPU)
    on_gpu = device.startswith("cuda")
    if not on_gpu and speed is None:
        return small, f"{small.name}, because there is no GPU and the speed of this CPU was not measured."
    cpu = None if on_gpu else speed
    passed_over = ""
    for card in sorted((load(name) for name in names()), key=lambda card: -card.auto):
        if not card.auto or card.name == small.name:
            continue
        if cpu and card.target.format != "gguf":
            continue  # files of 16 bits are a download of three times the size
        usual_ms = cpu.usual_ms(card.target.parameters) if cpu else 0.0
        need_mib = card.memory_mib["int8" if cpu else "bf16"] + MARGIN_MIB
        if cpu and not cpu.suits(card.target.parameters, limit_ms):
            passed_over = f"{card.name} would take {usual_ms:.0f} ms"
        elif need_mib > free_mib:
            passed_over = f"{card.name} needs {need_mib} MiB"
        elif not all(fetchable(weights) for weights in card.weights()):
            passed_over = f"the weights of {card.name} are not on this machine and cannot be downloaded"
        elif cpu:
            reason = f"{card.name}, the largest available model whose usual suggestion takes at most {limit_ms} ms here"
            return card, f"{reason} ({usual_ms:.0f} ms predicted{'; ' if passed_over else ''}{passed_over})."
        else:
            reason = f"{card.name}, the largest available model that fits the {free_mib} MiB free on {device}"
            return card, f"{reason} ({passed_over})." if passed_over else f"{reason}."
    where = "suits this CPU" if cpu else f"can run on {device}"
    return small, f"{small.name}, because nothing larger {where} with {free_mib} MiB free ({passed_over})."


def choose_by_settings(
    config: settings.Config, free_mib: int, device: str, fetchable: Callable[[Weights], bool] = lambda weights: True
) -> tuple[Card, str]:
    """`choose` with the recorded speed of this machine's CPU and the limit of the settings."""
    speed = recorded(config.engine.threads) if device == "cpu" else None
    return choose(free_mib, device, fetchable, speed, config.engine.auto_model_ms)
