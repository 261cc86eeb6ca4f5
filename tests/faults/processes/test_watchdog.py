"""Watchdog: after a hung step or a lost device every client gets an error, the engine exits and another starts.

The engines are real. Their computation is this file's, and hangs or fails on demand. An engine whose step holds the
interpreter's lock cannot detect that itself: see test_engine_hangs.py.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from promises import Measured
from support.engine.engine_process import ABC, EngineProcess, engine_starter
from support.waiting import wait_until

from speclsp.engine.scheduling.watchdog import FLOOR_S, TICK_S

HUNG = 75
PROGRAM = """
import sys, time
from speclsp.config import Config
from speclsp.engine.scheduling import device_memory as memory
from speclsp.engine.process import server_process as process
from speclsp.engine.process import shared_engine
from speclsp.engine.scheduling import watchdog
from speclsp.engine.api import Piece
from speclsp.engine.api import Result

watchdog.TICK_S, watchdog.FLOOR_S = {tick_s}, {floor_s}
memory.DeviceMemory.works = lambda self: {answers}

class Steps:
    # a request's own text says what its one step does
    model = target = "steps"
    draft = device = ""
    step_ms, passes = {step_ms}, 0

    def truncate(self, request):
        return request

    def complete(self, request, cancel):
        return Completion(self, request.prefix + request.line_prefix)

class Completion:
    def __init__(self, steps, what):
        self.steps, self.what, self.result = steps, what, Result()

    def __iter__(self):
        what, _, seconds = self.what.partition(" ")
        if what == "raise":
            import torch
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")
        if what in ("work", "compute"):  # in many short passes, or in one
            for _ in range(int(float(seconds) / 0.02)):
                time.sleep(0.02)
                self.steps.passes += what == "work"
        elif seconds:
            time.sleep(float(seconds))
        self.result.text, self.result.rounds, self.result.stop_type = "done", 1, "eos"
        yield Piece(text="done", tokens=(1,), source="", drafted=0, accepted=0, ms=1.0)

process.model_loader = lambda config: lambda progress: Steps()
shared_engine.run_foreground(Config(model="tiny"))
"""


Start = Callable[..., EngineProcess]


@pytest.fixture
def start(isolated: Path) -> Iterator[Start]:
    """Starts such engines, and ends them after the test."""
    usual = {"tick_s": 0.05, "floor_s": 0.5, "step_ms": 1.0, "answers": True}
    with engine_starter(isolated / "run") as started:

        def ready(**values: object) -> EngineProcess:
            engine = started(program=PROGRAM.format(**usual | values)).wait()
            wait_until(lambda: engine.http.get("/health").json()["status"] != "loading")
            return engine

        yield ready


@pytest.fixture
def asking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def ask(engine: EngineProcess, what: str) -> tuple[int, str, float]:
    """The status code, the text or the error's message, and the duration in seconds."""
    began_s = time.monotonic()
    reply = engine.http.post("/infill", json=ABC | {"input_prefix": what, "prompt": ""})
    body = reply.json()
    return reply.status_code, body.get("content") or body["error"]["message"], time.monotonic() - began_s


def hold_a_lease(engine: EngineProcess) -> None:
    """Holds a lease until the engine closes it."""
    with engine.http.stream("GET", "/lease", params={"client": "a test"}) as lease:
        for _ in lease.iter_lines():
            pass


@pytest.mark.promise(19)
def test_a_hung_step_fails_every_request_and_ends_the_process(
    start: Start, asking: ThreadPoolExecutor, promise: Measured, soak: bool
):
    """The long run keeps the product's own minimum time."""
    floor_s = FLOOR_S if soak else 0.5
    engine = start(floor_s=floor_s, tick_s=TICK_S if soak else 0.05)
    assert ask(engine, "well")[:2] == (200, "done")
    lease = asking.submit(hold_a_lease, engine)
    hanging = asking.submit(ask, engine, "sleep 600")
    wait_until(lambda: engine.busy() == (1, 0))
    waiting = [asking.submit(ask, engine, f"well {n}") for n in range(3)]
    wait_until(lambda: engine.busy() == (1, 3))
    results = [future.result() for future in (hanging, *waiting)]
    code, log = engine.ended(5.0)
    after_s = results[0][2]
    assert {status for status, _, _ in results} == {503}
    assert all("a step of steps hangs" in sentence and "starts another" in sentence for _, sentence, _ in results)
    assert code == HUNG
    assert log.count("hangs") == 1
    with pytest.raises(httpx.RemoteProtocolError):  # the connection is cut: a client with a lease sees a crash
        lease.result()
    assert floor_s <= after_s < floor_s + 15
    promise.measured(
        f"a step that hangs: 4 of 4 requests told after {after_s:.1f} s (least: {floor_s:g} s) and exit code {code}",
        holds=after_s < floor_s + 2,
    )


def test_a_step_may_take_twenty_times_its_expected_time(start: Start):
    engine = start(step_ms=150.0)
    assert ask(engine, "sleep 2")[:2] == (200, "done"), "four times the floor"
    assert engine.process.poll() is None


def test_a_step_of_many_passes_gets_time_for_each_pass(start: Start):
    engine = start()
    assert ask(engine, "work 2")[:2] == (200, "done")
    assert engine.process.poll() is None


def test_time_in_which_the_process_was_stopped_does_not_count(start: Start, asking: ThreadPoolExecutor):
    engine = start(floor_s=2.0)
    future = asking.submit(ask, engine, "compute 0.4")
    wait_until(lambda: engine.busy() == (1, 0))
    for _ in range(2):
        os.kill(engine.process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(engine.process.pid, signal.SIGCONT)
        time.sleep(0.05)
    assert future.result()[:2] == (200, "done")
    assert ask(engine, "well")[:2] == (200, "done")


@pytest.mark.promise(19)
def test_a_lost_device_ends_the_process(start: Start, asking: ThreadPoolExecutor, promise: Measured):
    engine = start(answers=False, floor_s=60.0)
    slow = asking.submit(ask, engine, "sleep 1.5")
    wait_until(lambda: engine.busy() == (1, 0))
    futures = [asking.submit(ask, engine, text) for text in ("raise", "raise 2", "raise 3")]
    results = [future.result() for future in futures]
    code, log = engine.ended(5.0)
    assert {status for status, _, _ in results} == {503}
    assert all("no longer responds (AcceleratorError)" in sentence for _, sentence, _ in results)
    assert code == HUNG and slow.result()[0] in (200, 503)
    assert log.count("no longer responds") == 1 and "Traceback" not in log
    promise.measured(f"a device that is lost: everybody told, exit code {code}", holds=True)


def test_work_refused_by_the_device_fails_only_its_request(start: Start):
    engine = start(floor_s=60.0)
    status, sentence, _ = ask(engine, "raise")
    assert status == 500 and "AcceleratorError" in sentence
    for _ in range(20):  # the connection of the failed request stays open
        assert ask(engine, "raise")[0] == 500
        assert ask(engine, "well")[:2] == (200, "done")
    assert engine.metric("errors_total") == 21
