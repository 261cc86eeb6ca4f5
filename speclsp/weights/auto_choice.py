"""The model for `model = "auto"`: the largest one that fits the free memory and answers in time.

On a CPU it is a judged model: its card has figures of its suggestions, measured with these weights. A start downloads
nothing while a judged model that suits is on this machine.

On a GPU no model was judged. Base weights come first there, because instruct weights were not trained for
fill-in-the-middle. A larger model in nf4 comes before a smaller one in bf16.

The speed is measured, and a time is predicted from it:

    CPU   a usual suggestion   prefill: parameters / int8 multiply-adds a second, and
                               steps:   parameters / bytes read a second, one byte a parameter; fewer in 4 bits
    GPU   a pass               bytes of the weights / bandwidth

Both count a model's embedding as a weight, which makes up for the difference between a kernel and the peak.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from speclsp import config as settings
from speclsp import private_files, process_resources
from speclsp.process_resources import gpu_extra, gpus
from speclsp.weights import hub, store
from speclsp.weights.cards import MARGIN_MIB, WITHOUT_GPU, Card, Weights, load, names

FILE = "cpu-speed.json"
MAX_BYTES = 4096
NEW_TOKENS = 24  # of a prompt, at the next key
ANSWER_TOKENS, TOKENS_A_STEP = 12, 1.7  # of a usual suggestion; the latter measured with n-gram drafts
MAX_USUAL_MS = 250  # of a suggestion at the next key, on a CPU; a slower 1.5B saves no more keys than the 0.5B
MAX_PASS_MS = 25  # of a target on a GPU: twelve tokens in seven rounds take at most 175 ms then
GPU_SHARE = 0.75  # of the bandwidth that a pass reaches: an estimate; 72 % for the 7B in bf16 on an H200
GPU_BYTES = {"bf16": 2.0, "nf4": 0.62}  # of a parameter; nf4 with its scales, and a head of 16 bits

Availability = Callable[[Weights], bool]


@dataclass(frozen=True, slots=True)
class CpuSpeed:
    """Peaks of the CPU, and the machine on which they were measured."""

    machine: str
    read_gb_s: float
    int8_g_s: float  # 10^9 multiply-adds a second
    int4_bytes: float = 1.0  # that a step reads for a parameter of a model in int4

    def step_ms(self, card: Card) -> float:
        """Predicted time of a decoding step."""
        read_bytes = self.int4_bytes if prefers_int4(card) else 1.0
        return card.target.parameters * read_bytes / self.read_gb_s / 1e6

    def usual_ms(self, card: Card) -> float:
        """Predicted time of a suggestion at the next key."""
        prefill_ms = NEW_TOKENS * card.target.parameters / self.int8_g_s / 1e6
        return prefill_ms + ANSWER_TOKENS / TOKENS_A_STEP * self.step_ms(card)


def prefers_int4(card: Card) -> bool:
    """True if "auto" is int4 where its steps are faster: the card has a memory figure for it."""
    return "int4" in card.memory_mib


def machine_name(threads: int = 0) -> str:
    """The machine that a measurement holds for: processor, CPUs of this process, and threads."""
    processor = cpuinfo_field("model name") or platform.processor() or platform.machine()
    return f"{processor}, {process_resources.cpus().usable:g} cores, {threads or 'all'} threads"


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
        speed = CpuSpeed(**json.loads(private_files.read_bytes(path(), MAX_BYTES)))
        usable = speed.machine == machine_name(threads) and min(speed.read_gb_s, speed.int8_g_s) > 0
    except (OSError, ValueError, TypeError):  # none, or one that a person has edited
        return None
    return speed if usable else None


def record(speed: CpuSpeed) -> None:
    """Keep a measurement. Where that fails, the next start measures again."""
    with contextlib.suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        private_files.replace(path(), json.dumps(asdict(speed)).encode())


def auto(
    config: settings.Config, download: bool = False, hub_answers: Callable[[], bool] | None = None
) -> tuple[Card, str]:
    """The model for these settings, and the reason in a sentence: the named one, or the choice for this machine.

    On a CPU, the choice needs its speed: `engine.loading.cpu_speed` measures it.

    Args:
        download: also of a larger model than the one on this machine.
        hub_answers: called only if it decides, and once at most; by default the hub is asked.
    """
    if config.model != "auto":
        card = load(config.model)
        return card, f"{card.name}, as you chose: {card.figures}."
    device = device_of(config.device)
    free_mib = process_resources.free_mib(device)
    speed = recorded(config.engine.threads) if device == "cpu" else gpus.measured_gb_per_s(device)
    with_nf4 = config.engine.quantization in ("auto", "nf4")
    has_hub = cache(hub_answers or hub.is_reachable)

    @cache
    def here(weights: Weights) -> bool:
        return store.is_here(weights, config.models_dir)

    def fetchable(weights: Weights) -> bool:
        return here(weights) or (not config.engine.offline and (weights.mirror is not None or has_hub()))

    if device == "cpu" and not download:
        card, why = choose(device, free_mib, speed, here, with_nf4)
        if here(card.target):
            return card, why
    return choose(device, free_mib, speed, fetchable, with_nf4)


def choose(
    device: str,
    free_mib: int,
    speed: CpuSpeed | float | None,
    available: Availability = lambda weights: True,
    with_nf4: bool = True,
) -> tuple[Card, str]:
    """The model for `model = "auto"`, and why, in a sentence for people.

    Args:
        free_mib: free memory of the device.
        speed: of the CPU, or the GPU's bandwidth in GB/s; None: not measured.
        available: True when the weights are here or can be fetched.
        with_nf4: the model may be loaded in nf4.
    """
    passed_over = ""
    for card in candidates(device):
        problem = obstacle(card, device, free_mib, speed, with_nf4)
        if not problem and not all(map(available, card.weights(with_draft=device != "cpu"))):
            problem = f"{card.name} is not on this machine: `speclsp setup` downloads it where it can"
        if not problem or card.name == WITHOUT_GPU:
            break
        passed_over = problem
    if problem:
        why = f"because no model suits {device} with {free_mib} MiB free ({problem})"
        if device == "cpu" and speed is None:
            why = "because there is no GPU and the speed of this CPU was not measured"
        return card, f"{card.name}, {why}: {card.figures}."
    kind = "judged" if device == "cpu" else "available instruct" if card.instruct else "available base"
    predicted = f"{speed.usual_ms(card):.0f} ms predicted for a usual suggestion" if isinstance(speed, CpuSpeed) else ""
    note = "; ".join(filter(None, (predicted, passed_over)))
    fits = f"the largest {kind} model that fits the {free_mib} MiB free on {device}{f' ({note})' if note else ''}"
    return card, f"{card.name}, {fits}: {card.figures}."


def candidates(device: str) -> list[Card]:
    """The models that "auto" may choose, the best first: judged ones on a CPU; on a GPU all, base weights first."""
    cards = [card for name in names() if (card := load(name)).auto and (device != "cpu" or card.judged)]
    return sorted(cards, key=lambda card: (device != "cpu" and not card.instruct, card.auto), reverse=True)


def obstacle(card: Card, device: str, free_mib: int, speed: CpuSpeed | float | None, with_nf4: bool = True) -> str:
    """The reason against a card on a device, in part of a sentence; "" without one."""
    if speed is None:
        return "its speed was not measured"
    if isinstance(speed, CpuSpeed):
        formats: tuple[str, ...] = ("int8",)
        ms, most_ms, unit = speed.usual_ms(card), MAX_USUAL_MS, "for a usual suggestion"
    else:
        formats = gpu_formats(card, speed, with_nf4)
        ms, most_ms, unit = min(pass_ms(card, name, speed) for name in formats), MAX_PASS_MS, "a pass"
    if ms > most_ms:
        return f"{card.name} would take {ms:.0f} ms {unit}, and {most_ms} ms is the limit"
    need_mib = min(card.memory_mib[name] for name in formats) + MARGIN_MIB
    return f"{card.name} needs {need_mib} MiB" if need_mib > free_mib else ""


def gpu_formats(card: Card, gb_per_s: float | None, with_nf4: bool = True) -> tuple[str, ...]:
    """The number formats in which the card's passes are fast enough, best first; all that there are if none is."""
    with_nf4 = with_nf4 and find_spec("bitsandbytes") is not None
    known = tuple(name for name in GPU_BYTES if name in card.memory_mib and (name == "bf16" or with_nf4))
    fast = (name for name in known if gb_per_s is None or pass_ms(card, name, gb_per_s) <= MAX_PASS_MS)
    return tuple(fast) or known


def pass_ms(card: Card, number_format: str, gb_per_s: float) -> float:
    """Predicted time of one pass of the target on a GPU."""
    return card.target.parameters * GPU_BYTES[number_format] / gb_per_s / GPU_SHARE / 1e6


def smaller(card: Card, free_mib: int, device: str) -> str:
    """The best model that "auto" may pick, needs less than `card` and fits into `free_mib`; "" when there is none."""
    most_mib = min(free_mib, card.needed_mib(device, free_mib, "auto") - 1)
    others = (other for other in candidates(device) if other.target.parameters < card.target.parameters)
    return next((other.name for other in others if 0 < other.needed_mib(device, free_mib, "auto") <= most_mib), "")


def uses_draft(config: settings.Config, device: str) -> bool:
    """True if a draft model is loaded on the device: on a GPU always, on a CPU by `engine.draft`."""
    return config.engine.draft or device != "cpu"


def torch_problem(card: Card, device: str) -> str:
    """A sentence about a model that a CPU computes with PyTorch only, where it is not installed; "" otherwise."""
    return gpu_extra.problem(f"{card.name} on a CPU") if card.needs_torch and device == "cpu" else ""


def device_of(wanted: str) -> str:
    """The device for `device = wanted`: "cpu" or a GPU by torch's name (gpus.pick_device)."""
    return gpus.pick_device(wanted)[0]
