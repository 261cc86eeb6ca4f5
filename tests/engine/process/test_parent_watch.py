"""Start and end of the engine process: signals, the end of its parent, long loads and long computations."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from support.engine.engine_process import ABC, ANSWER, COMMAND, EngineProcess, engine_starter
from support.waiting import wait_until

Start = Callable[..., EngineProcess]

# An engine whose "model" is {body}: only the loader is replaced.
PROGRAM = """
import sys, threading, time
from speclsp.config import Config
from speclsp.engine.process import server_process as process
from speclsp.engine.api import Piece
from speclsp.engine.api import Result
from speclsp.errors import WeightsError
{body}
process.model_loader = lambda config: load
sys.exit(process.main(Config(model="tiny"), sys.argv[1]))
"""
NEVER_LOADED = "def load(progress): progress(0.25, 'fetching weights'); time.sleep(60)"
CANNOT_LOAD = (
    "def load(progress): raise WeightsError('model.safetensors is cut short: run `speclsp models pull tiny`.')"
)
NEVER_DONE = """
class Deaf:  # a round that cancel cannot reach
    model = target = 'deaf'; draft = device = ''; result = Result()
    def truncate(self, request): return request
    def complete(self, request, cancel): return self
    def __iter__(self): time.sleep(60); yield
def load(progress): return Deaf()
"""


@pytest.fixture
def asking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def start(isolated: Path) -> Iterator[Start]:
    """Starts engines, with the model loaded by `body`'s `load`, or as they are."""
    with engine_starter(isolated / "run") as started:
        yield lambda *more, body="", **how: started(*more, program=body and PROGRAM.format(body=body), **how)


def test_the_socket_answers_quickly_without_importing_torch(start: Start):
    took_s = []  # of the processor: other programs do not count
    for _ in range(3):
        engine = start().wait()
        took_s.append(sum(psutil.Process(engine.process.pid).cpu_times()[:2]))
        assert engine.http.get("/health").json()["status"] == "ok"
        assert "torch" not in Path(f"/proc/{engine.process.pid}/maps").read_text()
        engine.close()
    assert min(took_s) < 2


def test_while_the_model_loads_health_reports_progress_and_completions_are_refused(start: Start):
    engine = start(body=NEVER_LOADED).wait()
    wait_until(lambda: engine.http.get("/health").json().get("progress") == 0.25)
    reply = engine.http.get("/health")
    assert reply.status_code == 503
    assert reply.json().items() >= {"status": "loading", "message": "fetching weights", "pair": "tiny"}.items()
    refused = engine.http.post("/infill", json=ABC)
    assert refused.status_code == 503
    assert "loading (25%, fetching weights)" in refused.json()["error"]["message"]
    engine.process.terminate()
    assert engine.ended(2.0) == (0, "")


def test_a_model_that_cannot_be_loaded_is_reported_by_an_engine_that_keeps_running(start: Start):
    engine = start(body=CANNOT_LOAD).wait()
    wait_until(lambda: engine.http.get("/health").json()["status"] == "error")
    reply = engine.http.get("/health")
    message = "model.safetensors is cut short: run `speclsp models pull tiny`."
    assert (reply.status_code, reply.json()["error"]["message"]) == (503, message)
    assert engine.http.post("/v1/completions", json={"prompt": ""}).json()["error"]["message"] == message
    engine.process.terminate()
    code, stderr = engine.ended(2.0)
    assert (code, stderr) == (0, f"speclsp engine: could not load tiny: {message}\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_engine_within_two_seconds_midway_through_a_round(
    start: Start, asking: ThreadPoolExecutor, number: signal.Signals
):
    engine = start(round_ms=60_000).wait()
    stream = asking.submit(engine.infill)
    wait_until(lambda: engine.busy() == (1, 0))
    engine.process.send_signal(number)
    assert engine.ended(2.0) == (0, "")
    assert not engine.socket.exists()
    assert stream.result()["stop_type"] == "cancelled", "who waited is answered"


def test_an_open_stream_gets_its_text_so_far_when_the_engine_ends(start: Start):
    engine = start(round_ms=150).wait()
    stream = engine.stream()
    assert next(stream)["content"] == "E"
    engine.process.terminate()
    *_, final = stream
    assert (final["stop"], final["stop_type"]) == (True, "cancelled")
    assert engine.ended(2.0) == (0, "")


@pytest.mark.promise(4)
def test_a_computation_that_ignores_cancellation_cannot_keep_the_engine_alive(start: Start):
    engine = start(body=NEVER_DONE).wait()
    with pytest.raises(httpx.TimeoutException):
        engine.http.post("/infill", json=ABC, timeout=0.1)
    assert engine.busy() == (1, 0)
    engine.process.terminate()
    assert engine.ended(2.0)[0] == 0
    assert not engine.socket.exists()


@pytest.mark.promise(4)
def test_the_engine_ends_with_its_watched_process_even_if_that_is_a_zombie(start: Start):
    parent = subprocess.Popen(["sleep", "60"])
    engine = start("--watch-parent", str(parent.pid), round_ms=60_000).wait()
    with pytest.raises(httpx.TimeoutException):
        engine.http.post("/infill", json=ABC, timeout=0.05)
    time.sleep(0.6)
    assert engine.process.poll() is None
    parent.kill()
    assert engine.ended(2.5) == (0, ""), "killed and not yet waited for"
    assert not engine.socket.exists()
    parent.wait()


def test_a_watched_process_that_has_already_ended_ends_the_engine(start: Start):
    parent = subprocess.Popen(["true"])
    parent.wait()
    assert start("--watch-parent", str(parent.pid)).ended(3.0) == (0, "")


@pytest.mark.promise(4)
def test_a_watched_engine_ends_with_its_standard_input(start: Start):
    engine = start("--watch-parent", str(os.getpid()), stdin=subprocess.PIPE).wait()
    engine.process.stdin.write("means nothing\n")
    engine.process.stdin.flush()
    assert engine.infill()["content"] == ANSWER
    engine.process.stdin.close()
    engine.process.stdin = None
    assert engine.ended(2.0) == (0, "")


def test_an_engine_started_by_hand_keeps_running_with_a_closed_standard_input(start: Start):
    engine = start(stdin=subprocess.PIPE).wait()
    engine.process.stdin.close()
    engine.process.stdin = None
    time.sleep(0.2)
    assert engine.infill()["content"] == ANSWER


def test_a_private_engine_keeps_running_after_its_last_lease(start: Start):
    engine = start("--set", "engine.shutdown_delay_seconds=0").wait()
    with engine.http.stream("GET", "/lease", params={"client": "a test"}) as lease:
        assert '"clients":1' in next(lease.iter_lines()).replace(" ", "")
    wait_until(lambda: engine.http.get("/health").json()["clients"] == 0)
    time.sleep(0.2)  # with an idle shutdown delay it would have ended
    assert engine.infill()["content"] == ANSWER


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "qwen2.5-codr", "--socket", "{run}/e"], "unknown model 'qwen2.5-codr'"),
        (["--model", "echo", "--socket", "/proc/none/e"], "/proc/none cannot be used for the socket"),
    ],
)
def test_an_engine_that_cannot_serve_is_refused_in_one_line(isolated: Path, words: list[str], says: str):
    words = [word.format(run=isolated / "run") for word in words]
    ended = subprocess.run([*COMMAND, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert says in ended.stderr


def test_no_text_of_a_request_is_ever_logged(start: Start):
    engine = start().wait()
    secret = "canary_5e1f"
    for body in ({"prompt": secret}, {"prompt": secret, "n_predict": secret}, {"prompt": [secret]}, [secret]):
        for address in ("/infill", "/v1/completions", f"/{secret}"):
            engine.http.post(address, json=body)
    engine.http.post("/infill", content=b'{"prompt": "' + secret.encode())
    assert secret not in engine.http.get("/metrics").text
    engine.process.terminate()
    assert engine.ended(2.0) == (0, "")
