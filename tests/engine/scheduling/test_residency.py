"""State machine of model residency: every transition between loading, ok, asleep, degraded and error. No test waits."""

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
from speclsp.engine.scheduling.loaded_model import LoadedModel, PendingTarget
from speclsp.engine.scheduling.memory_ladder import CHECK_S, NO_DRAFT, WAIT_S, ReleaseStep
from speclsp.engine.scheduling.residency import NO_ROOM_RETRY_S, PAUSE_S, QUIESCE_S, RETRY_S, Residency
from speclsp.errors import OutOfMemory, WeightsError
from speclsp.observability.metrics import Metrics

IDLE_S = 900.0
KEEP_MIB = 500
TARGET_MIB, DRAFT_MIB, CACHE_MIB = 2000, 700, 300


class Completer:
    """A completer that is only loaded and never completes."""

    device = "cpu"

    def __init__(self, name: str = "pair") -> None:
        self.model = self.target = name
        self.draft = "draft"

    def complete(self, request: Request, cancel: threading.Event) -> Any:
        raise NotImplementedError


@dataclass
class World:
    """A clock, a machine with fixed memory, other programs that use it, and a model that loads as the test sets."""

    total_mib: int = 8000
    others_mib: int = 0
    now_s: float = 1000.0
    parts_mib: dict[str, int] = field(default_factory=dict)  # MiB of each part in memory
    loads: list[bool] = field(default_factory=list)  # each load: with the draft or without
    error: Exception | None = None  # raised by the next loads
    restore_error: Exception | None = None  # raised by restoring the draft
    takes: int = 0  # attempts to restore the draft
    release_error: Exception | None = None  # raised by shrinking the cache
    changes: list[tuple[str, str]] = field(default_factory=list)  # (state, memory) at each change
    has_draft: bool = True
    has_small_cache: bool = True
    answers: bool = True  # whether the device responds

    def new_residency(self, **given: Any) -> Residency:
        """A Residency in this world."""
        settings = {"idle_s": IDLE_S, "min_free_memory_mib": KEEP_MIB} | given
        load = settings.pop("load", self.load)
        residency = Residency(load, "pair", clock=lambda: self.now_s, memory_of=lambda device: self, **settings)
        residency.on_change = lambda: self.changes.append((residency.state, residency.memory))
        return residency

    def load(self, progress: Callable[[float, str], None], with_draft: bool = True) -> LoadedModel:
        self.loads.append(with_draft)
        progress(0.5, "loading weights")
        if self.error is not None:
            raise self.error
        self.parts_mib = {"target": TARGET_MIB, "cache": CACHE_MIB}
        if with_draft and self.has_draft:
            self.parts_mib["draft"] = DRAFT_MIB
        small = ReleaseStep(
            name="small cache",
            release=self.release_cache,
            restore=lambda: self.parts_mib.update(cache=CACHE_MIB),
        )
        none = ReleaseStep(name=NO_DRAFT, release=lambda: self.parts_mib.update(draft=0), restore=self.restore_draft)
        self.made = Completer()
        finalizer = weakref.finalize(self.made, lambda: self.parts_mib.clear())
        finalizer.atexit = False
        steps = [step for step, has in ((small, self.has_small_cache), (none, self.has_draft)) if has]
        return LoadedModel(completer=self.made, device="cpu", steps=tuple(steps))

    def release_cache(self) -> None:
        if self.release_error is not None:
            raise self.release_error
        self.parts_mib["cache"] = CACHE_MIB // 3

    def restore_draft(self) -> None:
        self.takes += 1
        if self.restore_error is not None:
            raise self.restore_error
        self.parts_mib["draft"] = DRAFT_MIB

    # the interface of device_memory.DeviceMemory

    def free_mib(self) -> int:
        return max(0, self.total_mib - self.others_mib - self.held_mib())

    def held_mib(self) -> int:
        return sum(self.parts_mib.values())

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
    assert (residency.state, residency.refusal(), residency.memory, residency.model) == ("ok", "", "full", "pair")
    assert residency.ready_event.is_set()


def test_a_first_load_that_fails_stays_an_error_and_says_why(world: World):
    world.error = WeightsError("model.safetensors is cut short: pull again.")
    residency = world.new_residency()
    residency.maintain()
    for _ in range(3):
        world.now_s += 2 * RETRY_S
        world.ask(residency)
        assert (residency.state, residency.completer) == ("error", None)
        assert residency.refusal() == residency.message == "model.safetensors is cut short: pull again."
    assert world.loads == [True] and residency.next_due_s() is None


# ── unloaded ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_model_is_unloaded_after_the_idle_time(world: World, residency: Residency):
    reference, idle_s = weakref.ref(residency.completer), []
    residency.on_idle = lambda: idle_s.append(world.now_s)
    world.run(residency, IDLE_S - 1)
    assert residency.state == "ok"
    world.run(residency, 1)
    assert (residency.state, residency.completer, reference(), world.held_mib()) == ("asleep", None, None, 0)
    assert residency.message == "no request for 15 min; the next request loads the model again"
    assert residency.next_due_s() is None, "only a request wakes it"
    assert idle_s == [world.now_s], "a moment for the measurement of the CPU's speed"


def test_a_failed_measurement_of_the_speed_leaves_the_model_to_the_next_request(
    world: World, residency: Residency, monkeypatch: pytest.MonkeyPatch
):
    def fail(*words: object) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr(cpu_speed, "measure_if_needed", fail)
    measure_speed_when_idle(Config(), SimpleNamespace(residency=residency, metrics=Metrics()))  # type: ignore[arg-type]
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


def test_an_idle_time_of_zero_never_unloads(world: World):
    residency = world.new_residency(idle_s=0.0, min_free_memory_mib=0)
    residency.maintain()
    assert residency.next_due_s() is None
    world.run(residency, 10**7)
    residency.maintain()
    assert residency.state == "ok"


def test_a_request_reloads_the_model_and_waits_for_it(world: World, residency: Residency):
    world.run(residency, IDLE_S)
    changes = []
    residency.on_change = lambda: changes.append((residency.state, residency.message, residency.refusal()))
    assert residency.refusal() == "", "it may queue"
    world.ask(residency)
    assert changes == [("loading", "waking up", ""), ("loading", "waking up: loading weights", ""), ("ok", "", "")]
    assert residency.completer is not None and world.loads == [True, True]
    world.run(residency, IDLE_S)
    assert residency.state == "asleep", "and it falls asleep again"


def test_a_failed_reload_reports_why_and_a_later_request_tries_again(world: World, residency: Residency):
    world.run(residency, IDLE_S)
    world.error = WeightsError("model.safetensors is cut short: pull again.")
    world.ask(residency)
    assert (residency.state, residency.completer) == ("error", None)
    assert residency.message == "model.safetensors is cut short: pull again."
    assert residency.refusal() == residency.message, "a key that is typed now does not load again"
    world.ask(residency)
    assert len(world.loads) == 2
    world.error = None
    world.now_s += RETRY_S
    assert residency.refusal() == ""
    world.ask(residency)
    assert (residency.state, residency.refusal(), len(world.loads)) == ("ok", "", 3)


@pytest.mark.parametrize(
    "error",
    [OutOfMemory("pair", 3000, 2900, "cpu", "small"), MemoryError("no room"), RuntimeError("CUDA out of memory")],
)
def test_a_reload_without_room_stays_unloaded_and_soon_tries_a_smaller_level(
    world: World, residency: Residency, error: Exception
):
    world.run(residency, IDLE_S)
    world.error = error
    world.ask(residency)
    assert (residency.state, residency.completer) == ("asleep", None)
    assert str(error) in residency.message and residency.refusal() == residency.message
    world.ask(residency)
    assert world.loads == [True, True], "a key that is typed now does not load again"
    world.error = None
    world.now_s += NO_ROOM_RETRY_S
    assert residency.refusal() == ""
    world.ask(residency)
    assert (residency.state, residency.memory, world.loads[2:]) == ("ok", NO_DRAFT, [False])
    assert world.parts_mib["cache"] < CACHE_MIB
    residency.note_request()
    world.run(residency, IDLE_S - 1)
    assert residency.memory == "full", "and bit by bit all of it is there again"


def test_a_reload_waits_for_memory_that_other_programs_need(world: World, residency: Residency):
    world.run(residency, IDLE_S)
    world.others_mib = world.total_mib - TARGET_MIB - DRAFT_MIB - CACHE_MIB - KEEP_MIB + 1
    world.ask(residency)
    assert (residency.state, residency.completer, world.loads) == ("asleep", None, [True])
    assert "3499 MiB of main memory are free, the model needs 3000 and 500 stay free for others" in residency.message
    world.others_mib -= 1
    world.ask(residency)
    assert residency.state == "ok"


# ── pressure ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_pressure_releases_step_by_step_and_only_as_far_as_needed(
    world: World, residency: Residency, caplog: pytest.LogCaptureFixture
):
    world.changes.clear()
    world.others_mib = world.free_mib() - KEEP_MIB + 100
    world.run(residency, CHECK_S)
    assert (residency.memory, residency.state, world.free_mib()) == ("small cache", "ok", KEEP_MIB + 100)
    assert residency.message == "another program needs main memory: small cache"
    world.run(residency, 10 * CHECK_S)
    assert residency.memory == "small cache", "that was enough"
    world.others_mib += 200
    world.run(residency, 10 * CHECK_S)
    assert (residency.memory, world.parts_mib["draft"]) == (NO_DRAFT, 0)
    world.others_mib += 2000
    world.run(residency, CHECK_S)
    assert (residency.state, residency.completer, world.held_mib()) == ("asleep", None, 0)
    assert world.changes == [("ok", "small cache"), ("ok", NO_DRAFT), ("asleep", NO_DRAFT)]
    why = "another program needs memory ({} MiB of main memory were free, the reserve is 500): {}"
    assert [record.getMessage() for record in caplog.records] == [
        why.format(400, "small cache, 200 MiB released"),
        why.format(400, "no draft, 700 MiB released"),
        why.format(0, "unloaded, 2100 MiB released"),
    ]


def test_steps_are_restored_one_by_one_after_lasting_room(world: World, residency: Residency):
    world.others_mib = world.total_mib
    world.run(residency, 3 * CHECK_S)
    assert residency.state == "asleep"
    residency.note_request()
    world.others_mib = 0
    world.changes.clear()
    world.run(residency, 4 * (WAIT_S + 2 * CHECK_S))
    kept = list(dict.fromkeys(world.changes))
    assert kept == [
        ("asleep", NO_DRAFT),
        ("loading", NO_DRAFT),
        ("ok", NO_DRAFT),
        ("ok", "small cache"),
        ("ok", "full"),
    ]
    assert world.loads == [True, False], "the draft is read when there is room for it as well"
    assert world.parts_mib == {"target": TARGET_MIB, "cache": CACHE_MIB, "draft": DRAFT_MIB}
    assert residency.message == ""


def test_a_request_while_unloaded_for_others_is_refused_with_the_measured_memory(world: World, residency: Residency):
    world.others_mib = world.total_mib - 123
    world.run(residency, 3 * CHECK_S)
    assert residency.refusal() == "", "it queues, and the engine's thread fails it with the message"
    world.others_mib -= 200
    world.ask(residency)
    assert residency.completer is None
    assert "323 MiB of main memory are free" in residency.message and "engine.min_free_memory_mib" in residency.message
    world.others_mib = 0
    world.ask(residency)
    assert residency.message.endswith("memory is free again, and the model reloads if it stays free for 30 s")


def test_with_room_again_an_idle_model_stays_unloaded_until_a_request(world: World, residency: Residency):
    world.others_mib = world.total_mib
    world.run(residency, IDLE_S + 100)
    world.others_mib = 0
    world.run(residency, WAIT_S + 2 * CHECK_S)
    assert (residency.state, world.loads) == ("asleep", [True])
    assert residency.next_due_s() is None
    world.ask(residency)
    assert (residency.state, residency.memory, world.loads) == ("ok", NO_DRAFT, [True, False])


def test_a_reload_keeps_the_release_level(world: World, residency: Residency):
    world.others_mib = world.free_mib() - KEEP_MIB + 250
    world.run(residency, 2 * CHECK_S)
    assert residency.memory == NO_DRAFT
    world.run(residency, IDLE_S)
    assert residency.state == "asleep"
    world.ask(residency)
    assert (residency.state, residency.memory, world.loads) == ("ok", NO_DRAFT, [True, False])
    assert world.parts_mib == {"target": TARGET_MIB, "cache": CACHE_MIB // 3}


def test_pressure_during_a_completion_only_requests_quiescing(world: World, residency: Residency):
    world.others_mib = world.total_mib
    world.now_s += CHECK_S
    residency.maintain(busy=True)
    assert (residency.quiesce_requested, residency.memory) == (True, "full")
    assert residency.completer is not None and residency.next_due_s() == 0.0
    residency.maintain()
    assert (residency.quiesce_requested, residency.memory) == (False, "small cache")


def test_quiescing_is_forced_after_a_short_wait(world: World, residency: Residency):
    assert not residency.force_quiesce
    world.others_mib = world.total_mib
    world.now_s += CHECK_S
    residency.maintain(busy=True)
    assert not residency.force_quiesce, "they may end by themselves"
    world.now_s += QUIESCE_S
    residency.maintain(busy=True)
    assert residency.force_quiesce
    residency.maintain()
    assert (residency.force_quiesce, residency.memory) == (False, "small cache")


def test_the_draft_is_restored_in_a_pause_and_not_during_typing(world: World, residency: Residency):
    world.others_mib = world.free_mib() - KEEP_MIB + 250
    world.run(residency, 2 * CHECK_S)
    assert residency.memory == NO_DRAFT
    world.others_mib = 0
    for _ in range(2 * int(WAIT_S)):
        world.ask(residency)
        world.run(residency, 1.0)
    assert (residency.memory, world.takes) == (NO_DRAFT, 0)
    world.run(residency, PAUSE_S + CHECK_S)
    assert (residency.memory, world.takes) == ("small cache", 1)


def test_a_draft_that_cannot_be_restored_is_tried_again_later(world: World, residency: Residency):
    world.others_mib = world.free_mib() - KEEP_MIB + 250
    world.run(residency, 2 * CHECK_S)
    world.others_mib, world.restore_error = 0, MemoryError("no")
    world.run(residency, WAIT_S + 2 * CHECK_S)
    assert (residency.state, residency.memory, world.takes) == ("ok", NO_DRAFT, 1)
    world.restore_error = None
    world.run(residency, WAIT_S - 3 * CHECK_S)
    assert world.takes == 1, "not at every look"
    world.run(residency, WAIT_S + 6 * CHECK_S)
    assert (residency.memory, world.takes) == ("full", 2)


def test_a_reload_without_the_cache_step_still_restores_the_draft(world: World, residency: Residency):
    world.others_mib = world.total_mib
    world.run(residency, 3 * CHECK_S)
    assert residency.state == "asleep"
    world.has_small_cache = False  # it now fits only with one text's cache, so no cache step is left
    residency.note_request()
    world.others_mib = 0
    world.run(residency, WAIT_S + 3 * CHECK_S)
    assert (residency.state, residency.memory) == ("ok", NO_DRAFT)
    world.run(residency, WAIT_S + 3 * CHECK_S)
    assert (residency.memory, world.parts_mib["draft"]) == ("full", DRAFT_MIB)
    world.others_mib = world.total_mib
    world.run(residency, 2 * CHECK_S)
    assert residency.state == "asleep"


def test_nothing_is_released_when_free_memory_cannot_be_measured(world: World, residency: Residency):
    def refuse() -> int:
        raise OSError("no such device")

    world.free_mib = refuse
    world.run(residency, 10 * CHECK_S)
    assert (residency.state, residency.memory) == ("ok", "full")
    assert residency.next_due_s() == pytest.approx(IDLE_S - 10 * CHECK_S), "it is not asked again"


def test_a_release_that_fails_on_reload_is_an_error_and_unloads_everything(world: World, residency: Residency):
    world.others_mib = world.free_mib() - KEEP_MIB + 50
    world.run(residency, CHECK_S)
    world.run(residency, IDLE_S)
    assert (residency.state, residency.memory) == ("asleep", "small cache")
    world.release_error = RuntimeError("no")
    world.ask(residency)
    assert (residency.state, residency.message, residency.completer, world.held_mib()) == (
        "error",
        "RuntimeError: no",
        None,
        0,
    )


def test_a_release_that_fails_halfway_unloads_everything_and_is_retried(world: World, residency: Residency):
    world.others_mib = world.free_mib() - KEEP_MIB + 50
    world.release_error = RuntimeError("no")
    world.run(residency, CHECK_S)
    assert (residency.state, residency.completer, world.held_mib()) == ("error", None, 0)
    world.release_error, world.others_mib = None, 0
    world.run(residency, RETRY_S)
    world.ask(residency)
    assert residency.state == "ok"


def test_a_pair_without_a_draft_has_one_step_fewer(world: World):
    world.has_draft = False
    residency = world.new_residency()
    residency.maintain()
    world.others_mib = world.total_mib
    world.run(residency, 2 * CHECK_S)
    assert residency.state == "asleep"


@pytest.mark.parametrize("way", ["min_free_memory_mib = 0", "a completer that takes no memory"])
def test_without_a_reserve_the_memory_is_never_checked(world: World, way: str, monkeypatch: pytest.MonkeyPatch):
    residency = (
        world.new_residency(min_free_memory_mib=0)
        if way.startswith("min_free")
        else world.new_residency(load=lambda tell: Completer())
    )
    residency.maintain()
    world.others_mib = world.total_mib
    world.run(residency, IDLE_S - 1)
    assert (residency.state, residency.memory) == ("ok", "full")


def test_a_machine_smaller_than_the_reserve_still_runs_the_model(world: World):
    world.total_mib = TARGET_MIB + DRAFT_MIB + CACHE_MIB + 200  # 200 left, 500 wanted
    residency = world.new_residency()
    residency.maintain()
    world.run(residency, 100)
    assert residency.memory == "full"
    world.others_mib = 150
    world.run(residency, CHECK_S)
    assert residency.memory == "small cache"


def test_the_buffers_of_reading_are_released_once_the_model_is_loaded(world: World):
    residency = world.new_residency()
    trims: list[str] = []
    world.trim = lambda: trims.append(residency.state)
    residency.maintain()
    assert residency.state == "ok" and trims, "malloc would keep them"


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


# ── the draft alone ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Staged:
    """A load whose target is read when the test says so."""

    read: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    finish_error: Exception | None = None
    draft: Callable[[], Any] = lambda: None  # a weak reference
    target: Callable[[], Any] = lambda: None
    kept: dict[str, Any] = field(default_factory=dict)
    at_finish: Callable[[], Any] = lambda: None

    def __call__(self, progress: Callable[[float, str], None]) -> LoadedModel:
        alone = Completer("alone")
        self.draft = weakref.ref(alone)

        def read() -> None:
            assert self.read.wait(30)
            if self.error is not None:
                raise self.error
            self.kept["target"] = Completer("pair")
            self.target = weakref.ref(self.kept["target"])

        def finish(draft: Completer = alone) -> LoadedModel:
            assert threading.current_thread() is threading.main_thread()
            self.at_finish()
            target = self.kept.pop("target")
            if self.finish_error is not None:
                raise self.finish_error
            return LoadedModel(completer=target)

        return LoadedModel(completer=alone, pending_target=PendingTarget(read=read, finish=finish))


def maintain_until(residency: Residency, done: Callable[[], bool], busy: bool = False) -> None:
    """Calls `maintain` as scheduler.py does, a little more often, until `done()`: the reader thread has come so far."""
    for _ in range(3000):
        residency.maintain(busy)
        if done():
            return
        threading.Event().wait(0.01)
    raise AssertionError("that never came")


def test_the_draft_answers_alone_and_the_target_takes_over_between_two_completions(world: World):
    staged = Staged()
    residency = world.new_residency(load=staged)
    residency.maintain()
    assert (residency.state, residency.draft_only, residency.completer.target) == ("loading", True, "alone")
    assert residency.refusal() == "" and residency.ready_event.is_set()
    assert 0 < residency.next_due_s() < 1
    residency.maintain()
    assert residency.draft_only, "the target is not there yet"
    meanwhile: list[Any] = []
    staged.at_finish = lambda: meanwhile.extend((residency.state, residency.refusal()))
    staged.read.set()
    maintain_until(residency, lambda: residency.quiesce_requested, busy=True)
    assert residency.completer.target == "alone", "a completion is under way, and ends with what it began with"
    residency.maintain()
    assert (residency.state, residency.draft_only, residency.completer.target) == ("ok", False, "pair")
    assert not residency.quiesce_requested
    assert meanwhile == ["loading", ""], "what is asked while the target is measured waits for it"
    assert staged.draft() is None, "nothing keeps the draft alone"


@pytest.mark.parametrize("when", ["reading", "finishing"])
def test_a_target_that_cannot_be_loaded_also_unloads_the_draft(world: World, when: str):
    staged = Staged()
    error = WeightsError("the target's file is cut short: pull again.")
    staged.error, staged.finish_error = (error, None) if when == "reading" else (None, error)
    staged.read.set()
    alive: list[Any] = []
    world.trim = lambda: alive.extend((gc.collect() * 0, staged.draft(), staged.target()))
    residency = world.new_residency(load=staged)
    residency.maintain()
    maintain_until(residency, lambda: residency.state == "error")
    assert (residency.completer, residency.draft_only, residency.message) == (None, False, str(error))
    assert residency.refusal() == str(error)
    assert alive == [0, None, None], "both are out of memory when it is given back to the system"


def test_a_reload_may_start_with_the_draft_alone(world: World):
    staged = Staged()
    staged.read.set()
    residency = world.new_residency(load=staged)
    residency.maintain()
    maintain_until(residency, lambda: residency.state == "ok")
    world.run(residency, IDLE_S)
    assert residency.state == "asleep"
    staged.read.clear()
    world.ask(residency)
    assert (residency.state, residency.draft_only, residency.refusal()) == ("loading", True, "")
    staged.read.set()
    maintain_until(residency, lambda: residency.state == "ok")
    assert residency.completer.target == "pair"
