"""`model = "auto"`: on a CPU, the largest judged model that answers in time; its speed, measured when idle."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from speclsp.cli.complete import choose_card
from speclsp.config import Config, EngineConfig
from speclsp.engine.loading import cpu_speed, load_plan
from speclsp.engine.model.int8 import native, peaks
from speclsp.engine.model.int8.peaks import Peaks
from speclsp.errors import OutOfMemory, memory_fix
from speclsp.observability.metrics import Metrics
from speclsp.process_resources import Cpus, Memory
from speclsp.weights import auto_choice, cards, hub, store
from speclsp.weights.auto_choice import CpuSpeed
from speclsp.weights.cards import Weights

SMALL, MIDDLE = "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"


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


@pytest.mark.parametrize("machine", MACHINES)
def test_auto_picks_the_largest_model_that_answers_in_time(machine: str):
    speed, expected = MACHINES[machine]
    card, why = auto_choice.choose(24_000, "cpu", mirrored, speed)
    assert card.name == expected
    assert why.startswith(expected) and why.endswith(".")


FAST = MACHINES["desktop, 8 cores, 60 GB/s"][0]


CARDS = [cards.load(name) for name in cards.names()]
IN_CACHES = st.sets(st.sampled_from([weights.name for card in CARDS for weights in card.weights()]))


@given(
    st.integers(0, 200_000),
    IN_CACHES,
    st.booleans(),
    st.none() | st.sampled_from([row[0] for row in MACHINES.values()]),
)
def test_a_cpu_gets_a_judged_model_whatever_else_is_on_the_machine(
    free_mib: int, here: set[str], hub: bool, speed: CpuSpeed | None
):
    def can(weights: Weights) -> bool:
        return weights.name in here or weights.mirror is not None or hub

    chosen, why = auto_choice.choose(free_mib, "cpu", can, speed)
    assert chosen.judged and why.endswith(f": {chosen.judged}.")
    assert chosen == auto_choice.choose(free_mib, "cpu", mirrored, speed)[0]


@given(st.sampled_from(["cpu", "cuda"]), st.integers(0, 10_000), st.sampled_from([row[0] for row in MACHINES.values()]))
def test_the_reason_claims_that_the_model_fits_only_where_it_does(device: str, free_mib: int, speed: CpuSpeed):
    speed_there = speed if device == "cpu" else None
    card, why = auto_choice.choose(free_mib, device, speed=speed_there)
    obstacle = auto_choice.cpu_obstacle if device == "cpu" else auto_choice.gpu_obstacle
    problem = obstacle(card, free_mib, speed_there)
    assert ("that fits the" in why) == (not problem)
    assert not problem or f"because no model suits {device} with {free_mib} MiB free ({problem})" in why


@given(st.integers(0, 200_000), IN_CACHES, st.booleans())
def test_a_gpu_gets_instruct_weights_only_where_no_base_weights_that_fit_can_be_had(
    free_mib: int, here: set[str], hub: bool
):
    def can(weights: Weights) -> bool:
        return weights.name in here or weights.mirror is not None or hub

    chosen, why = auto_choice.choose(free_mib, "cuda", can)
    bases = [card for card in CARDS if card.auto and not card.instruct]
    fits = [card for card in bases if card.memory_mib["bf16"] + cards.MARGIN_MIB <= free_mib]
    assert not (chosen.instruct and any(all(map(can, card.weights())) for card in fits))
    assert chosen.judged or why.endswith(": its suggestions were not judged.")


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


def test_a_model_that_does_not_fit_the_memory_is_passed_over():
    card, why = auto_choice.choose(2_000, "cpu", mirrored, FAST)
    assert card.name == SMALL
    assert "qwen2.5-coder-1.5b-instruct needs" in why


def test_without_a_measurement_auto_picks_the_small_model_and_says_so():
    card, why = auto_choice.choose(24_000, "cpu", mirrored)
    assert card.name == SMALL and "was not measured" in why


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


def test_predictions_grow_with_the_model_and_the_prompt():
    speed = CpuSpeed("m", 20.0, 400.0)
    small, middle = auto_choice.load(SMALL), auto_choice.load(MIDDLE)
    assert speed.usual_ms(small) < speed.usual_ms(middle)
    assert speed.usual_ms(small) < speed.suggestion_ms(small, auto_choice.FIRST_TOKENS)


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


@given(name=st.sampled_from(cards.names()), need_mib=st.integers(1, 9000), limit_mib=st.none() | st.integers(1, 9000))
def test_advice_to_close_programs_is_given_only_where_that_can_help(name: str, need_mib: int, limit_mib: int | None):
    fix = memory_fix("", Memory(0, limit_mib).limit_fix(need_mib))
    limited = limit_mib is not None and limit_mib < need_mib
    assert ("close other programs" in fix) != limited == (f"memory limit of its control group ({limit_mib} MiB)" in fix)


# ── the speed of the processor ────────────────────────────────────────────────────────────────────────────────────────


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
        choose_card(Config())
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
    card, why = choose_card(Config())
    assert recorded_gb_s() == (None if busy else statistics.median(undisturbed))
    assert why.endswith(cpu_speed.BUSY) == busy
    assert not busy or card.name == SMALL


def test_a_busy_start_is_followed_by_a_measurement_when_idle(moments: list[Peaks | None]):
    moments[:] = [None] * cpu_speed.TRIES
    choose_card(Config())
    assert recorded_gb_s() is None
    moments[:] = [None, *(Peaks(gb_s, 900.0) for gb_s in (50.0, 10.0, 40.0, 30.0, 90.0))]
    assert cpu_speed.measure_if_needed(Config(), SMALL) == ""
    assert recorded_gb_s() == 40.0


@given(factor=st.floats(0.1, 10.0), busy=st.booleans(), known=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_speed_that_served_rounds_disagree_with_is_replaced_at_an_idle_moment(
    moments: list[Peaks | None], factor: float, busy: bool, known: bool
):
    kept, now = 10.0, 10.0 / factor
    auto_choice.record(CpuSpeed(auto_choice.machine_name(), kept, 100.0))
    moments[:] = [None if busy else Peaks(now, 100.0)] * cpu_speed.TRIES
    round_ms = CpuSpeed("m", now, 100.0).step_ms(cards.load(SMALL)) if known else None
    cpu_speed.measure_if_needed(Config(), SMALL, round_ms)
    disagrees = not 1 / cpu_speed.MOST_FACTOR <= factor <= cpu_speed.MOST_FACTOR
    assert recorded_gb_s() == (now if known and disagrees and not busy else kept)


@given(st.lists(st.floats(1.0, 1000.0), max_size=2 * cpu_speed.SERVED_REQUESTS))
def test_rounds_count_after_some_dozens_of_requests(rounds_ms: list[float]):
    metrics = Metrics()
    for ms in rounds_ms:
        metrics.time("round_ms", ms)
    median_ms = metrics.median_ms("round_ms", cpu_speed.SERVED_REQUESTS)
    enough = len(rounds_ms) >= cpu_speed.SERVED_REQUESTS
    assert median_ms == (statistics.median_low(rounds_ms) if enough else None)


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
