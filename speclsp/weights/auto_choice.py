"""The model for `model = "auto"`: the largest one that fits the free memory and, on a CPU, answers in time.

On a CPU it is a judged model: its card has figures of its suggestions, measured with these weights. A start downloads
nothing while a judged model that suits is on this machine.

On a GPU no model was judged. Base weights come first there, because instruct weights were not trained for
fill-in-the-middle.

The CPU's speed is measured once per machine and kept. A suggestion's time is predicted from it:

    a token of prefill   parameters / int8 multiply-adds a second
    a decoding step      parameters / bytes read a second, one byte a parameter; fewer in 4 bits

On a GPU, a pass takes the time to read all weights at the measured bandwidth (`gpu_obstacle`). A larger model in nf4
comes before a smaller one in bf16.

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
from speclsp.process_resources import gpus
from speclsp.weights import hub, store
from speclsp.weights.cards import MARGIN_MIB, WITHOUT_GPU, Card, Weights, load, names

FILE = "cpu-speed.json"
MAX_BYTES = 4096
NEW_TOKENS, FIRST_TOKENS = 24, 300  # of a prompt: at the next key, and at the first one in a file
ANSWER_TOKENS, TOKENS_A_STEP = 12, 1.7  # of a usual suggestion; the latter measured with n-gram drafts
MAX_USUAL_MS = 250  # of a suggestion at the next key, on a CPU; a slower 1.5B saves no more keys than the 0.5B
MAX_FIRST_MS = 1500  # of the first suggestion in a file
MAX_PASS_MS = 25.0  # of a target on a GPU: twelve tokens in seven rounds take at most 175 ms then
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

    def suggestion_ms(self, card: Card, new_tokens: int) -> float:
        """Predicted time of a suggestion after `new_tokens` tokens that are not in the KV cache."""
        prefill_ms = new_tokens * card.target.parameters / self.int8_g_s / 1e6
        return prefill_ms + ANSWER_TOKENS / TOKENS_A_STEP * self.step_ms(card)

    def step_ms(self, card: Card) -> float:
        """Predicted time of a decoding step."""
        read_bytes = self.int4_bytes if prefers_int4(card) else 1.0
        return card.target.parameters * read_bytes / self.read_gb_s / 1e6

    def usual_ms(self, card: Card) -> float:
        """Predicted time of a suggestion at the next key."""
        return self.suggestion_ms(card, NEW_TOKENS)


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


def choose(
    free_mib: int,
    device: str,
    fetchable: Availability = lambda weights: True,
    speed: CpuSpeed | None = None,
    gb_per_s: float | None = None,
    can_nf4: bool | None = None,
) -> tuple[Card, str]:
    """The model for `model = "auto"`, and why, in a sentence for people.

    Args:
        free_mib: free memory of the device.
        fetchable: True when the weights are here or can be fetched.
        speed: of the CPU, where that is the device; None: not measured.
        gb_per_s: bandwidth of the GPU, where that is the device; None: not measured.
        can_nf4: the model may be loaded in nf4; None: if bitsandbytes is installed.
    """
    passed_over = ""
    for card in candidates(device):
        if device == "cpu":
            problem = cpu_obstacle(card, free_mib, speed)
        else:
            problem = gpu_obstacle(card, free_mib, gb_per_s, can_nf4)
        if not problem and not all(map(fetchable, card.weights(with_draft=device != "cpu"))):
            problem = f"{card.name} is not on this machine: `speclsp setup` downloads it where it can"
        if not problem or card.name == WITHOUT_GPU:
            break
        passed_over = problem
    return card, reason(card, free_mib, device, speed, passed_over, problem)


def candidates(device: str) -> list[Card]:
    """The models that "auto" may choose, the best first: judged ones on a CPU; on a GPU all, base weights first."""
    cards = [card for name in names() if (card := load(name)).auto and (device != "cpu" or card.judged)]
    return sorted(cards, key=lambda card: (device != "cpu" and not card.instruct, card.auto), reverse=True)


def cpu_obstacle(card: Card, free_mib: int, speed: CpuSpeed | None) -> str:
    """The reason against a card on a CPU, in part of a sentence; "" without one."""
    if speed is None:
        return "the speed of this CPU was not measured"
    for tokens, most_ms, name in ((NEW_TOKENS, MAX_USUAL_MS, "usual"), (FIRST_TOKENS, MAX_FIRST_MS, "first")):
        if (ms := speed.suggestion_ms(card, tokens)) > most_ms:
            return f"{card.name} would take {ms:.0f} ms for a {name} suggestion, and {most_ms} ms is the limit"
    need_mib = card.memory_mib["int8"] + MARGIN_MIB
    return f"{card.name} needs {need_mib} MiB" if need_mib > free_mib else ""


def reason(card: Card, free_mib: int, device: str, speed: CpuSpeed | None, passed_over: str, problem: str) -> str:
    """The sentence for a choice: the model, why no larger one, and its figures. `problem`: against the model itself."""
    if device == "cpu" and speed is None:
        return f"{card.name}, because there is no GPU and the speed of this CPU was not measured: {card.figures}."
    if problem:
        return f"{card.name}, because no model suits {device} with {free_mib} MiB free ({problem}): {card.figures}."
    kind = "judged" if device == "cpu" else "available instruct" if card.instruct else "available base"
    predicted = f"{speed.usual_ms(card):.0f} ms predicted for a usual suggestion" if speed else ""
    note = "; ".join(filter(None, (predicted, passed_over)))
    fits = f"the largest {kind} model that fits the {free_mib} MiB free on {device}{f' ({note})' if note else ''}"
    return f"{card.name}, {fits}: {card.figures}."


def choose_by_settings(
    config: settings.Config, free_mib: int, device: str, hub_answers: Callable[[], bool], download: bool = False
) -> tuple[Card, str]:
    """`choose` with the weights on this machine and the recorded speed of its CPU.

    `download`: also of a larger model than the one on this machine. `hub_answers` is called only if it decides.
    """

    @cache
    def here(weights: Weights) -> bool:
        return store.is_here(weights, config.models_dir)

    speed = recorded(config.engine.threads) if device == "cpu" else None
    gb_per_s = None if device == "cpu" else gpus.measured_gb_per_s(device)
    can_nf4 = None if config.engine.quantization in ("auto", "nf4") else False

    def choose_among(available: Availability) -> tuple[Card, str]:
        return choose(free_mib, device, available, speed, gb_per_s, can_nf4)

    if device == "cpu" and not download:
        card, why = choose_among(here)
        if here(card.target):
            return card, why
    return choose_among(fetchable(config.models_dir, config.engine.offline, hub_answers))


def fetchable(
    models_dir: str = "", offline: bool = False, hub_answers: Callable[[], bool] | None = None
) -> Availability:
    """A predicate for `choose`: the weights are here or can be fetched. Contacts the hub once at most."""
    answers: list[bool] = []

    def can(weights: Weights) -> bool:
        if store.is_here(weights, models_dir):
            return True
        if offline or weights.format not in ("safetensors", "gguf"):
            return False
        if weights.mirror is None and not answers:
            answers.append((hub_answers or hub.is_reachable)())
        return weights.mirror is not None or answers[0]

    return can


def smaller(card: Card, free_mib: int, device: str) -> str:
    """The best model that "auto" may pick, needs less than `card` and fits into `free_mib`; "" when there is none."""
    most_mib = min(free_mib, card.needed_mib(device, free_mib, "auto") - 1)
    others = (other for other in candidates(device) if other.target.parameters < card.target.parameters)
    return next((other.name for other in others if 0 < other.needed_mib(device, free_mib, "auto") <= most_mib), "")


def auto(config: settings.Config, download: bool = False) -> tuple[Card, str]:
    """The model for these settings, and the reason in a sentence: the named one, or the choice for this machine.

    `download`: for a command whose purpose is a download. On a CPU, the choice needs its speed:
    `engine.loading.cpu_speed` measures it.
    """
    if config.model != "auto":
        card = load(config.model)
        return card, f"{card.name}, as you chose: {card.figures}."
    device = device_of(config.device)
    return choose_by_settings(config, process_resources.free_mib(device), device, hub.is_reachable, download)


def uses_draft(config: settings.Config, device: str) -> bool:
    """True if a draft model is loaded on the device: on a GPU always, on a CPU by `engine.draft`."""
    return config.engine.draft or device != "cpu"


def device_of(wanted: str) -> str:
    """The device for `device = wanted`: "cpu" or a GPU by torch's name (gpus.pick_device)."""
    return gpus.pick_device(wanted)[0]


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pass_ms(card: Card, number_format: str, gb_per_s: float) -> float:
    """Predicted time of one pass of the target."""
    return card.target.parameters * GPU_BYTES[number_format] / gb_per_s / GPU_SHARE / 1e6


def gpu_formats(card: Card, gb_per_s: float | None, can_nf4: bool | None = None) -> tuple[str, ...]:
    """The number formats in which the card's passes are fast enough, best first; all that there are if none is."""
    can_nf4 = find_spec("bitsandbytes") is not None if can_nf4 is None else can_nf4
    known = tuple(name for name in GPU_BYTES if name in card.memory_mib and (name == "bf16" or can_nf4))
    if gb_per_s is None:
        return known
    return tuple(name for name in known if pass_ms(card, name, gb_per_s) <= MAX_PASS_MS) or known


def gpu_obstacle(card: Card, free_mib: int, gb_per_s: float | None, can_nf4: bool | None = None) -> str:
    """The reason against a card on a GPU, in part of a sentence; "" without one. Without a bandwidth, bf16 must fit."""
    names = ("bf16",) if gb_per_s is None else gpu_formats(card, gb_per_s, can_nf4)
    need_mib = min(card.memory_mib[name] for name in names) + MARGIN_MIB
    if need_mib > free_mib:
        return f"{card.name} needs {need_mib} MiB"
    if gb_per_s is None:
        return ""
    fastest_ms = min(pass_ms(card, name, gb_per_s) for name in names)
    return f"{card.name} would take {fastest_ms:.0f} ms a pass" if fastest_ms > MAX_PASS_MS else ""
