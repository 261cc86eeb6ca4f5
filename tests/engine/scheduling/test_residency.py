"""State machine of model residency: every transition between loading, ok, asleep and error. No test waits."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from speclsp.config import Config
from speclsp.engine.api import Request
from speclsp.engine.loading import cpu_speed
from speclsp.engine.process.server_process import measure_speed_when_idle
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.loaded_model import LoadedModel
from speclsp.engine.scheduling.residency import CALM_S, RETRY_S, Residency
from speclsp.errors import OutOfMemory, WeightsError

FREEZING = {"freeze": gc.freeze, "unfreeze": gc.unfreeze}  # conftest.py replaces them once the tests are collected
IDLE_S = 900.0
MODEL_MIB, CACHE_MIB = 2700, 300


class Completer:
    """A completer that is only loaded and never completes."""

    device = "cuda"

    def __init__(self, name: str = "pair") -> None:
        self.model = self.target = name
        self.draft = "draft"

    def complete(self, request: Request, cancel: threading.Event) -> Any:
        raise NotImplementedError


@dataclass
class World(DeviceMemory):
    """A clock, a device, and a model that loads as the test sets."""

    device: str = "cuda"  # of the model
    now_s: float = 1000.0
    parts_mib: dict[str, int] = field(default_factory=dict)  # MiB of each part in memory
    loads: int = 0
    error: Exception | None = None  # raised by the next loads
    states: list[str] = field(default_factory=list)  # at each change
    answers: bool = True  # whether the device responds

    def new_residency(self, **given: Any) -> Residency:
        """A Residency in this world."""
        settings = {"idle_s": IDLE_S} | given
        load = settings.pop("load", self.load)
        residency = Residency(load, "pair", clock=lambda: self.now_s, memory_of=lambda device: self, **settings)
        residency.on_change = lambda: self.states.append(residency.state)
        return residency

    def load(self, progress: Callable[[float, str], None]) -> LoadedModel:
        self.loads += 1
        progress(0.5, "loading weights")
        if self.error is not None:
            raise self.error
        self.parts_mib = {"model": MODEL_MIB, "cache": CACHE_MIB}
        self.made = Completer()
        finalizer = weakref.finalize(self.made, lambda: self.parts_mib.clear())
        finalizer.atexit = False
        clear = lambda: self.parts_mib.update(cache=0)  # noqa: E731
        return LoadedModel(completer=self.made, device=self.device, clear_caches=clear)

    # the interface of device_memory.DeviceMemory

    def trim(self) -> None:
        self.made = None
        gc.collect()

    def works(self) -> bool:
        return self.answers

    # scheduler.py's part

    def run(self, residency: Residency, seconds: float) -> None:
        """Lets time pass and calls `maintain` exactly when it is due."""
        until_s = self.now_s + seconds
        while (due_s := residency.next_due_s()) is not None and self.now_s + due_s <= until_s:
            self.now_s += due_s
            residency.maintain()
        self.now_s = until_s

    def ask(self, residency: Residency) -> None:
        residency.note_request()
        residency.maintain()

    def run_out(self, residency: Residency, busy: bool = False) -> None:
        residency.report_out_of_memory()
        residency.maintain(busy)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def residency(world: World) -> Residency:
    """A residency whose model is loaded."""
    residency = world.new_residency()
    residency.maintain()
    assert residency.state == "ok"
    return residency


# ── loading ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_maintain_loads_and_until_then_requests_are_refused_with_the_progress(world: World):
    refused = []

    def load(progress: Callable[[float, str], None]) -> Completer:
        progress(0.4, "loading weights")
        refused.append(residency.refusal())
        return Completer()

    residency = world.new_residency(load=load)
    assert residency.next_due_s() == 0.0
    residency.maintain()
    assert refused == ["the model is loading (40%, loading weights): retry when /health reports ok."]
    assert (residency.state, residency.refusal(), residency.model) == ("ok", "", "pair")
    assert residency.ready_event.is_set()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (WeightsError("model.safetensors is cut short: pull again."), "model.safetensors is cut short: pull again."),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_a_first_load_that_fails_stays_an_error_and_says_why_in_one_line(world: World, error: Exception, line: str):
    world.error = error
    residency = world.new_residency()
    residency.maintain()
    for _ in range(3):
        world.now_s += 2 * RETRY_S
        world.ask(residency)
        assert (residency.state, residency.completer) == ("error", None)
        assert residency.refusal() == residency.message == line
    assert world.loads == 1 and residency.next_due_s() is None


# ── unloaded ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_model_is_unloaded_after_the_idle_time(world: World, residency: Residency):
    reference, idle_s = weakref.ref(residency.completer), []
    residency.on_idle = lambda: idle_s.append(world.now_s)
    world.run(residency, IDLE_S - 1)
    assert residency.state == "ok"
    world.run(residency, 1)
    assert (residency.state, residency.completer, reference(), world.parts_mib) == ("asleep", None, None, {})
    assert residency.message == "no request for 15 min; the next request loads the model again"
    assert residency.next_due_s() is None, "only a request wakes it"
    assert idle_s == [world.now_s], "a moment for the measurement of the CPU's speed"


def test_a_failed_measurement_of_the_speed_leaves_the_model_to_the_next_request(
    world: World, residency: Residency, monkeypatch: pytest.MonkeyPatch
):
    def fail(*words: object) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr(cpu_speed, "measure_if_needed", fail)
    measure_speed_when_idle(Config(), SimpleNamespace(residency=residency))  # type: ignore[arg-type]
    world.run(residency, IDLE_S)
    assert residency.state == "asleep"
    world.ask(residency)
    assert residency.state == "ok"


def test_a_request_or_a_running_completion_postpones_unloading(world: World, residency: Residency):
    world.run(residency, IDLE_S - 1)
    residency.note_request()
    world.run(residency, IDLE_S - 1)
    assert residency.state == "ok"
    world.now_s += IDLE_S  # a completion that never ends
    residency.maintain(busy=True)
    residency.maintain()
    assert residency.state == "ok"
    world.run(residency, IDLE_S)
    assert residency.state == "asleep"


def test_a_request_reloads_the_model_and_waits_for_it(world: World, residency: Residency):
    world.run(residency, IDLE_S)
    changes = []
    residency.on_change = lambda: changes.append((residency.state, residency.message, residency.refusal()))
    assert residency.refusal() == "", "it may queue"
    world.ask(residency)
    assert changes == [("asleep", "waking up", ""), ("asleep", "waking up: loading weights", ""), ("ok", "", "")]
    assert residency.completer is not None and world.loads == 2
    world.run(residency, IDLE_S)
    assert residency.state == "asleep", "and it falls asleep again"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (WeightsError("model.safetensors is cut short: pull again."), "error"),
        (OutOfMemory("pair", 3000, 2900, "cpu", "small"), "asleep"),
        (MemoryError("no room"), "asleep"),
        (RuntimeError("CUDA out of memory"), "asleep"),
    ],
)
def test_a_failed_reload_reports_why_and_a_later_request_tries_again(
    world: World, residency: Residency, error: Exception, state: str
):
    world.run(residency, IDLE_S)
    world.error = error
    world.ask(residency)
    assert (residency.state, residency.completer) == (state, None)
    assert str(error) in residency.message and residency.refusal() == residency.message
    world.ask(residency)
    assert world.loads == 2, "a key that is typed now does not load again"
    world.error = None
    world.now_s += RETRY_S
    assert residency.refusal() == ""
    world.ask(residency)
    assert (residency.state, world.loads) == ("ok", 3)


# ── a request ran out of memory ──────────────────────────────────────────────────────────────────────────────


def test_memory_that_runs_out_once_clears_the_caches_and_keeps_the_model(world: World, residency: Residency):
    for _ in range(5):
        world.run_out(residency)
        assert (residency.state, residency.message, world.parts_mib) == ("ok", "", {"model": MODEL_MIB, "cache": 0})
        world.now_s += CALM_S
    assert world.loads == 1


def test_memory_that_runs_out_again_within_a_minute_unloads_and_the_next_request_loads(
    world: World, residency: Residency, caplog: pytest.LogCaptureFixture
):
    world.run_out(residency)
    world.now_s += CALM_S - 1
    world.run_out(residency)
    assert (residency.state, residency.completer, world.parts_mib) == ("asleep", None, {})
    assert residency.message == "memory ran out again; the next request loads the model again"
    assert residency.refusal() == "" and residency.next_due_s() is None
    assert [record.getMessage() for record in caplog.records] == [
        "memory ran out in a request: the caches are cleared",
        "memory ran out in a request: the caches are cleared",
        "memory ran out again: unloaded",
    ]
    world.ask(residency)
    assert (residency.state, residency.message, world.loads) == ("ok", "", 2)
    world.run_out(residency)
    assert residency.state == "ok", "a loaded model begins anew"


# ── failures of the device ───────────────────────────────────────────────────────────────────────────────────


def test_a_device_failure_while_unloading_is_an_error_and_is_retried(world: World):
    residency = world.new_residency()
    residency.maintain()
    trim = world.trim

    def broken() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    world.trim = broken
    world.run(residency, IDLE_S)
    assert residency.state == "error" and "CUDA error" in residency.refusal() and residency.completer is None
    world.trim = trim
    world.now_s += RETRY_S
    world.ask(residency)
    assert (residency.state, residency.refusal()) == ("ok", "")


# ── returned memory ──────────────────────────────────────────────────────────────────────────────────────────


def test_trim_frees_frozen_reference_cycles(monkeypatch: pytest.MonkeyPatch):
    for name, function in FREEZING.items():
        monkeypatch.setattr(gc, name, function)

    class Cycle:
        """A reference cycle, as between a decoder and its captured passes."""

    cycle = Cycle()
    cycle.itself = cycle
    reference = weakref.ref(cycle)
    gc.collect()
    gc.freeze()
    del cycle
    DeviceMemory("cpu").trim()
    assert reference() is None
