"""`model = "auto"`: on a CPU, the largest judged model that answers in time; its speed, measured when idle."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from speclsp.config import Config, EngineConfig
from speclsp.engine.loading import cpu_speed, load_plan
from speclsp.engine.model.int8 import native, peaks
from speclsp.engine.model.int8.peaks import Peaks
from speclsp.errors import OutOfMemory
from speclsp.process_resources import Cpus, gpus
from speclsp.weights import auto_choice, cards, hub, store
from speclsp.weights.auto_choice import CpuSpeed
from speclsp.weights.cards import Weights

SMALL, MIDDLE = "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"
CARDS = [cards.load(name) for name in cards.names()]


def mirrored(weights: Weights) -> bool:
    """Only what the package index has: the two instruct models."""
    return weights.mirror is not None


# Read GB/s and G int8 multiply-adds/s. The first two were measured; the others follow from cores and memory.
MACHINES = {
    "EPYC Zen 5, 2 cores, AVX-512": (CpuSpeed("a", 40.0, 544.0), SMALL),
    "EPYC Zen 4, 2 cores, AVX-512": (CpuSpeed("b", 19.0, 430.0), SMALL),
    "desktop, 8 cores, 60 GB/s": (CpuSpeed("c", 60.0, 1900.0), MIDDLE),
    "laptop, 4 cores, AVX2, 25 GB/s": (CpuSpeed("d", 25.0, 250.0), SMALL),
    "workstation, 32 cores, 250 GB/s": (CpuSpeed("e", 250.0, 9000.0), MIDDLE),
    "desktop, 4 cores, 45 GB/s, int8": (CpuSpeed("f", 45.0, 800.0), SMALL),
    "desktop, 4 cores, 45 GB/s, int4": (CpuSpeed("g", 45.0, 800.0, 0.67), MIDDLE),
}
FAST = MACHINES["desktop, 8 cores, 60 GB/s"][0]
SPEEDS = st.sampled_from([row[0] for row in MACHINES.values()])


@pytest.mark.parametrize("machine", MACHINES)
def test_auto_picks_the_largest_model_that_answers_in_time(machine: str):
    speed, expected = MACHINES[machine]
    card, why = auto_choice.choose("cpu", 24_000, speed, mirrored)
    assert card.name == expected
    assert why.startswith(expected) and why.endswith(f": {card.judged}.")


@pytest.mark.parametrize(
    ("device", "free_mib", "gb_per_s", "available", "model"),
    [
        ("cuda", 7 * 1024, 272, None, "qwen2.5-coder-1.5b"),  # RTX 4060
        ("cuda", 11 * 1024, 360, None, "qwen2.5-coder-7b"),  # RTX 3060
        ("cuda", 15 * 1024, 288, None, "qwen2.5-coder-7b"),  # RTX 4060 Ti
        ("cuda", 23 * 1024, 1008, None, "qwen2.5-coder-14b"),  # RTX 4090
        ("cuda", 47 * 1024, 864, None, "qwen2.5-coder-14b"),  # L40S
        ("cuda:1", 79 * 1024, 2039, None, "qwen2.5-coder-32b"),  # A100
        ("cuda", 80_000, 300, None, "qwen2.5-coder-7b"),
        ("cuda", 1_000, 2039, None, SMALL),
        ("cuda", 140_000, 2039, mirrored, MIDDLE),
        ("cuda", 140_000, 2039, lambda weights: weights.name != "qwen2.5-coder-0.5b", MIDDLE),
        ("cuda", 140_000, 2039, lambda weights: False, SMALL),
    ],
)
def test_a_gpu_gets_the_largest_model_for_its_memory_and_bandwidth(
    device: str,
    free_mib: int,
    gb_per_s: float,
    available: Callable[[Weights], bool] | None,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
):
    """Others use a GiB of it."""
    monkeypatch.setattr(auto_choice, "find_spec", lambda name: object())  # bitsandbytes
    card, why = auto_choice.choose(device, free_mib, gb_per_s, available or (lambda weights: True))
    assert card.name == model and why.startswith(model) and why.endswith(f": {card.figures}.")


@given(
    st.sampled_from(["cpu", "cuda"]),
    st.integers(0, 200_000),
    SPEEDS,
    st.floats(50.0, 8_000.0),
    st.sets(st.sampled_from([weights.name for card in CARDS for weights in card.weights()])),
)
def test_a_choice_fits_is_available_and_has_a_free_licence(
    device: str, free_mib: int, speed: CpuSpeed, gb_per_s: float, here: set[str]
):
    """A CPU gets a judged model. A GPU gets instruct weights only where no base weights can be had."""

    def available(weights: Weights) -> bool:
        return weights.name in here or weights.mirror is not None

    on_device = speed if device == "cpu" else gb_per_s
    card, why = auto_choice.choose(device, free_mib, on_device, available)
    problem = auto_choice.obstacle(card, device, free_mib, on_device)
    assert ("that fits the" in why) == (not problem)
    assert f"because no model suits {device} with {free_mib} MiB free ({problem})" in why or not problem
    assert card.licence == "Apache-2.0" and card.fim.middle and all(map(available, card.weights(device != "cpu")))
    assert card.judged or device != "cpu"
    bases = [
        card for card in auto_choice.candidates("cuda") if not card.instruct and all(map(available, card.weights()))
    ]
    fits = [card for card in bases if not auto_choice.obstacle(card, device, free_mib, on_device)]
    assert device == "cpu" or not (card.instruct and fits)


@given(st.integers(2_000, 90_000), st.floats(50.0, 8_000.0), st.floats(1.0, 3.0))
def test_more_memory_or_more_bandwidth_never_gives_a_smaller_model(free_mib: int, gb_per_s: float, factor: float):
    card, _ = auto_choice.choose("cuda", free_mib, gb_per_s)
    more_memory, _ = auto_choice.choose("cuda", int(free_mib * factor), gb_per_s)
    faster, _ = auto_choice.choose("cuda", free_mib, gb_per_s * factor)
    assert card.auto <= min(more_memory.auto, faster.auto)


@pytest.mark.parametrize(
    ("quantization", "has_bitsandbytes", "model", "formats"),
    [
        ("auto", True, "qwen2.5-coder-7b", ("nf4",)),
        ("auto", False, "qwen2.5-coder-1.5b", ("bf16",)),
        ("bf16", True, "qwen2.5-coder-1.5b", ("bf16", "nf4")),
    ],
)
def test_a_gpu_gets_a_model_for_its_size_in_nf4_only_where_that_is_loaded(
    quantization: str, has_bitsandbytes: bool, model: str, formats: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(auto_choice, "find_spec", lambda name: object() if has_bitsandbytes else None)
    monkeypatch.setattr(gpus, "measured_gb_per_s", lambda device: 360.0)
    monkeypatch.setattr(auto_choice, "device_of", lambda wanted: "cuda")
    monkeypatch.setattr(auto_choice.process_resources, "free_mib", lambda device: 11 * 1024)
    config = Config(engine=EngineConfig(quantization=quantization))
    card = auto_choice.auto(config, hub_answers=lambda: True)[0]
    assert card.name == model and auto_choice.gpu_formats(card, 360.0) == formats
    if quantization == "auto":
        assert load_plan.gpu_formats(config, card, "cuda", "bf16") == formats, "as it was chosen"
        named = replace(config, model=card.name)
        assert load_plan.gpu_formats(named, card, "cuda", "bf16") == ("bf16", "nf4")


# ── the weights on this machine ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests to the hub, which answers."""
    requests: list[str] = []
    monkeypatch.setattr(hub, "is_reachable", lambda: bool(requests.append("hub") or True))
    return requests


def on_disk(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(store, "is_here", lambda weights, models_dir="": weights.name in names)


CPU = Config(device="cpu")


def test_a_start_downloads_nothing_while_a_judged_model_that_suits_is_here(
    monkeypatch: pytest.MonkeyPatch, asked: list[str]
):
    monkeypatch.setattr(auto_choice, "recorded", lambda threads=0: FAST)
    on_disk(monkeypatch)
    assert auto_choice.auto(CPU)[0].name == MIDDLE
    on_disk(monkeypatch, SMALL)
    card, why = auto_choice.auto(CPU)
    assert card.name == SMALL
    assert "qwen2.5-coder-1.5b-instruct is not on this machine: `speclsp setup` downloads it where it can" in why
    assert auto_choice.auto(CPU, download=True)[0].name == MIDDLE
    on_disk(monkeypatch, SMALL, MIDDLE)
    assert auto_choice.auto(CPU)[0].name == MIDDLE
    assert asked == [], "the package index has the judged models, so the choice needs no connection"


def test_offline_the_choice_is_among_the_models_on_this_machine(monkeypatch: pytest.MonkeyPatch, asked: list[str]):
    monkeypatch.setattr(auto_choice, "recorded", lambda threads=0: FAST)
    offline = replace(CPU, engine=replace(CPU.engine, offline=True))
    for here, expected in ((), SMALL), ((SMALL,), SMALL), ((SMALL, MIDDLE), MIDDLE):
        on_disk(monkeypatch, *here)
        assert auto_choice.auto(offline, download=True)[0].name == expected
    assert asked == []


def test_a_named_model_keeps_its_name_and_its_figures():
    assert auto_choice.auto(replace(CPU, model=SMALL))[1] == f"{SMALL}, as you chose: {cards.load(SMALL).judged}."
    base = "qwen2.5-coder-0.5b"
    assert auto_choice.auto(replace(CPU, model=base))[1] == f"{base}, as you chose: its suggestions were not judged."


# ── advice ───────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    name=st.sampled_from(cards.names()),
    free_mib=st.integers(0, 90_000),
    device=st.sampled_from(["cpu", "cuda", "cuda:1"]),
)
def test_advice_names_a_smaller_model_that_fits_now_or_none(name: str, free_mib: int, device: str):
    card = cards.load(name)
    smaller = auto_choice.smaller(card, free_mib, device)
    need_mib = card.needed_mib(device, free_mib, "auto")
    if smaller:
        other_mib = cards.load(smaller).needed_mib(device, free_mib, "auto")
        assert smaller != name and 0 < other_mib <= free_mib and other_mib < need_mib
    error = str(OutOfMemory(name, need_mib, free_mib, device, smaller))
    assert (f'or set model = "{smaller}"' in error) == bool(smaller) != ("no smaller model fits now" in error)


# ── the speed of the processor ───────────────────────────────────────────────────────────────────────────────


def test_a_measurement_is_kept_for_this_machine_only():
    assert auto_choice.recorded() is None
    speed = CpuSpeed(auto_choice.machine_name(), 20.0, 400.0)
    auto_choice.record(speed)
    assert auto_choice.recorded() == speed
    assert auto_choice.recorded(threads=1) is None, "measured with all threads"
    auto_choice.record(replace(speed, machine="another"))
    assert auto_choice.recorded() is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"machine": 1, "read_gb_s": "fast", "int8_g_s": 1}', "x" * 9999])
def test_a_file_that_a_person_has_edited_counts_as_none(content: str):
    auto_choice.record(CpuSpeed(auto_choice.machine_name(), 20.0, 400.0))
    auto_choice.path().write_text(content)
    assert auto_choice.recorded() is None


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> list[Peaks | None]:
    """The moments to come; None: other programs use the processor. No time passes between them."""
    coming: list[Peaks | None] = []
    monkeypatch.setattr(auto_choice, "device_of", lambda device: "cpu")
    monkeypatch.setattr(native, "best_path", lambda: "avx2")
    monkeypatch.setattr(cpu_speed, "undisturbed_peaks", lambda path, threads: coming.pop(0))
    monkeypatch.setattr(cpu_speed.time, "sleep", lambda seconds: None)
    return coming


def recorded_gb_s() -> float | None:
    speed = auto_choice.recorded()
    return None if speed is None else speed.read_gb_s


def test_the_processor_is_measured_once_and_again_after_the_record_is_deleted(moments: list[Peaks | None]):
    for gb_s, expected in (10.0, 10.0), (20.0, 10.0), (60.0, 60.0):
        if gb_s == 60.0:
            auto_choice.path().unlink()
        moments[:] = [Peaks(gb_s, 2000.0)] * cpu_speed.MOMENTS
        cpu_speed.choose_card(Config())
        assert recorded_gb_s() == expected


MOMENT = st.none() | st.floats(1.0, 100.0)


@given(figures=st.lists(MOMENT, min_size=cpu_speed.TRIES, max_size=cpu_speed.TRIES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_median_of_undisturbed_moments_is_kept_and_no_figure_of_a_busy_machine(
    moments: list[Peaks | None], figures: list[float | None]
):
    auto_choice.path().unlink(missing_ok=True)
    moments[:] = [None if gb_s is None else Peaks(gb_s, 100.0) for gb_s in figures]
    undisturbed = [gb_s for gb_s in figures if gb_s is not None][: cpu_speed.MOMENTS]
    busy = len(undisturbed) < cpu_speed.MOMENTS
    card, why = cpu_speed.choose_card(Config())
    assert recorded_gb_s() == (None if busy else statistics.median(undisturbed))
    assert why.endswith(cpu_speed.BUSY) == busy
    assert not busy or card.name == SMALL


@given(share=st.floats(0.0, 1.0), threads=st.integers(1, 16), usable=st.integers(1, 16))
def test_a_moment_is_undisturbed_if_the_threads_get_their_processors(share: float, threads: int, usable: int):
    computing = min(threads, usable)

    @dataclass
    class Clock:
        wall_s: float = 0.0
        cpu_s: float = 0.0

        def measure(self, path: str, what: int, threads: int, seconds: float, turns: int) -> float:
            self.wall_s += seconds
            self.cpu_s += seconds * share * computing
            return 7.0

    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peaks, "measure", clock.measure)
        patch.setattr(peaks.time, "perf_counter", lambda: clock.wall_s)
        patch.setattr(peaks.time, "process_time", lambda: clock.cpu_s)
        patch.setattr(peaks.process_resources, "cpus", lambda: Cpus(usable, usable))
        moment = peaks.undisturbed_peaks("avx2", threads)
    assume(abs(share - peaks.LEAST_SHARE) > 1e-6)
    assert moment == (Peaks(7.0, 7.0) if share > peaks.LEAST_SHARE else None)


@pytest.mark.parametrize("tokens", [256, 2048, 16_384, 32_768, 131_072])
@pytest.mark.parametrize("name", ["tiny", "qwen2.5-coder-0.5b-instruct"])
def test_a_context_above_the_trained_one_is_shortened_with_a_sentence(name: str, tokens: int):
    card = cards.load(name)
    wanted = Config(engine=EngineConfig(context_tokens=tokens))
    config, note = load_plan.within_training(wanted, card)
    if tokens <= card.context_tokens or name == "tiny":
        assert (config, note) == (wanted, "")
        return
    assert config.engine.context_tokens == card.context_tokens
    assert f"engine.context_tokens = {tokens} is above the {card.context_tokens} tokens" in note and name in note
