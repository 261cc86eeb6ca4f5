"""The model for `model = "auto"`: the largest one that fits the free memory and, on a CPU, answers in time.

Base weights come first, because instruct weights were not trained for fill-in-the-middle:

    base      where they are on this machine, also in another program's cache, or the hub answers
    instruct  otherwise: the package index has them

On a CPU the hub is not asked while a model that suits is here: a start makes no connection and downloads nothing.

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
from speclsp.weights import hub, store
from speclsp.weights.cards import MARGIN_MIB, WITHOUT_GPU, Card, Weights, load, names

FILE = "cpu-speed.json"
MAX_BYTES = 4096
NEW_TOKENS, FIRST_TOKENS = 24, 300  # of a prompt: at the next key, and at the first one in a file
ANSWER_TOKENS, TOKENS_A_STEP = 12, 1.7  # of a usual suggestion; the latter measured with n-gram drafts
MAX_USUAL_MS = 250  # of a suggestion at the next key, on a CPU
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
        parameters, read_bytes = card.target.parameters, self.int4_bytes if prefers_int4(card) else 1.0
        prefill_ms = new_tokens * parameters / self.int8_g_s / 1e6
        return prefill_ms + ANSWER_TOKENS / TOKENS_A_STEP * parameters * read_bytes / self.read_gb_s / 1e6

    def usual_ms(self, card: Card) -> float:
        """Predicted time of a suggestion at the next key."""
        return self.suggestion_ms(card, NEW_TOKENS)

    def suits(self, card: Card) -> bool:
        """True if the usual and the first suggestion of a model stay within their limits."""
        return self.usual_ms(card) <= MAX_USUAL_MS and self.suggestion_ms(card, FIRST_TOKENS) <= MAX_FIRST_MS


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
    here: Availability = lambda weights: False,
    gb_per_s: float | None = None,
    can_nf4: bool | None = None,
) -> tuple[Card, str]:
    """The model for `model = "auto"`, and why, in sentences for people.

    Args:
        free_mib: free memory of the device.
        fetchable: True when the weights are here or can be fetched.
        speed: of the CPU, where that is the device; None: not measured.
        here: True when the weights need no download.
        gb_per_s: bandwidth of the GPU, where that is the device; None: not measured.
        can_nf4: the model may be loaded in nf4; None: if bitsandbytes is installed.
    """
    machine = _Machine(free_mib, device, speed, gb_per_s, can_nf4)
    small = load(WITHOUT_GPU)
    cards = [card for name in names() if (card := load(name)).auto and machine.can_use(card, here)]
    cards.sort(key=lambda card: machine.preference(card, here), reverse=True)
    passed_over = ""
    for card in cards:
        larger = card.auto > small.auto
        problem = machine.obstacle(card, larger)
        if card.name == small.name:
            break
        if not problem and not all(map(fetchable, card.weights())):
            problem = f"the weights of {card.name} are not on this machine and cannot be downloaded"
        if not problem:
            return card, f"{machine.reason(card, larger, passed_over)} {_kind(card, here)}"
        passed_over = problem
    return small, f"{machine.reason(small, False, passed_over)} {_kind(small, here)}"


@dataclass(frozen=True, slots=True)
class _Machine:
    """The device that a model must fit."""

    free_mib: int
    device: str
    speed: CpuSpeed | None
    gb_per_s: float | None = None  # of a GPU
    can_nf4: bool | None = None

    @property
    def is_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def can_use(self, card: Card, here: Availability) -> bool:
        """False on a CPU for files of 16 bits that are not here: twice the download for the same int8."""
        return self.is_gpu or card.target.format == "gguf" or all(map(here, card.weights()))

    def preference(self, card: Card, here: Availability) -> tuple[bool, int, bool, bool]:
        """Sort key, the best card highest: base weights, the size, no download, the device's usual format."""
        usual = card.target.format == ("safetensors" if self.is_gpu else "gguf")
        return not card.instruct, card.auto, all(map(here, card.weights())), usual

    def obstacle(self, card: Card, larger: bool) -> str:
        """The reason against a card, in part of a sentence; "" without one. The speed limit is for larger models."""
        if larger and not self.is_gpu and self.speed is None:
            return "the speed of this CPU was not measured"
        if larger and not self.is_gpu and self.speed and not self.speed.suits(card):
            return f"{card.name} would take {self.speed.usual_ms(card):.0f} ms"
        if self.is_gpu:
            return gpu_obstacle(card, self.free_mib, self.gb_per_s, self.can_nf4)
        need_mib = card.memory_mib["int8"] + MARGIN_MIB
        return f"{card.name} needs {need_mib} MiB" if need_mib > self.free_mib else ""

    def reason(self, card: Card, larger: bool, passed_over: str) -> str:
        """The sentence for the size."""
        kind = "instruct" if card.instruct else "base"
        note = f"; {passed_over}" if passed_over else ""
        if not self.is_gpu and self.speed is None:
            return f"{card.name}, because there is no GPU and the speed of this CPU was not measured."
        if larger and self.speed and not self.is_gpu:
            predicted = f"{self.speed.usual_ms(card):.0f} ms predicted"
            limit = f"whose usual suggestion takes at most {MAX_USUAL_MS} ms here"
            return f"{card.name}, the largest available {kind} model {limit} ({predicted}{note})."
        note = f" ({passed_over})" if passed_over else ""
        if larger:
            fits = f"that fits the {self.free_mib} MiB free on {self.device}"
            return f"{card.name}, the largest available {kind} model {fits}{note}."
        where = f"can run on {self.device}" if self.is_gpu else "suits this CPU"
        return f"{card.name}, because no larger {kind} model {where} with {self.free_mib} MiB free{note}."


def _kind(card: Card, here: Availability) -> str:
    """The sentence for base or instruct weights."""
    if card.instruct:
        return (
            "Its weights were not trained for fill-in-the-middle; base weights were, and `speclsp setup` downloads "
            "them where the hub answers."
        )
    source = "are on this machine" if all(map(here, card.weights())) else "come from the hub"
    return f"These are base weights, trained for fill-in-the-middle; they {source}."


def choose_by_settings(
    config: settings.Config, free_mib: int, device: str, hub_answers: Callable[[], bool], ask_hub: bool = False
) -> tuple[Card, str]:
    """`choose` with the weights on this machine and the recorded speed of its CPU.

    `ask_hub`: also on a CPU with a model that suits. Elsewhere `hub_answers` is called only if it decides.
    """

    @cache
    def here(weights: Weights) -> bool:
        return store.is_here(weights, config.models_dir)

    speed = recorded(config.engine.threads) if device == "cpu" else None
    gb_per_s = None if device == "cpu" else process_resources.measured_gb_per_s(device)
    can_nf4 = None if config.engine.quantization in ("auto", "nf4") else False

    def choose_with(hub_answers: Callable[[], bool]) -> tuple[Card, str]:
        can = fetchable(config.models_dir, config.engine.offline, hub_answers)
        return choose(free_mib, device, can, speed, here, gb_per_s, can_nf4)

    if device == "cpu" and not ask_hub:
        card, why = choose_with(lambda: False)
        if all(map(here, card.weights())):
            return card, why
    return choose_with(hub_answers)


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
    others = [other for name in names() if (other := load(name)).target.parameters < card.target.parameters]
    fitting = [other for other in others if other.auto and 0 < other.needed_mib(device, free_mib, "auto") <= most_mib]
    return max(fitting, key=lambda other: (other.auto, not other.instruct, other.target.format)).name if fitting else ""


def auto(config: settings.Config, ask_hub: bool = False) -> tuple[Card, str]:
    """The model for these settings, and the reason: the named one, or the choice for this machine.

    `ask_hub`: for a command whose purpose is a download. On a CPU, the choice needs its speed:
    `engine.loading.cpu_speed` measures it.
    """
    if config.model != "auto":
        return load(config.model), "as asked"
    device = device_of(config.device)
    return choose_by_settings(config, process_resources.free_mib(device), device, hub.is_reachable, ask_hub)


def device_of(wanted: str) -> str:
    """The device for `device = wanted`: "cpu" or a GPU by torch's name (process_resources.pick_device)."""
    return process_resources.pick_device(wanted)[0]


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
