"""Leases: clients see an engine's state, keep it running, and it ends soon after the last of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from promises import Measured
from support.engine.engine_process import ABC, ANSWER
from support.engine.shared_engines import (
    ENDS_S,
    FILES,
    HASTY,
    NEVER_DONE,
    NEVER_LOADED,
    ask,
    engines_of,
    found,
    lease,
    log_lines,
    started,
    strange,
    wait_for_its_end,
)  # fmt: skip
from support.waiting import wait_until

from speclsp import __version__, config
from speclsp.cli import entry as cli
from speclsp.config import Config, EchoConfig, EngineConfig
from speclsp.daemon import control, engine_files
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from speclsp.engine.http import leases
from speclsp.errors import EngineError

HOLDS_A_LEASE = """
import os, sys
from speclsp.config import Config
from speclsp.daemon import engine_files
connection = engine_files.connect(engine_files.EngineFiles.of(Config(model="echo")).find(), 20)
connection.sendall(b"GET /lease?client=mortal&pid=%d HTTP/1.0\\r\\n\\r\\n" % os.getpid())
print(connection.recv(100)[:15], flush=True)
sys.stdin.read()
"""
LOADS_IN_1000_STEPS = """
class Silent:
    model = target = 'silent'; draft = device = ''
def load(progress):
    for step in range(1000): progress(step / 1000, f'step {step}'); time.sleep(0.001)
    return Silent()
"""
IS_NOT_WAITED_FOR = """
from speclsp.engine.http import leases
leases.FIRST_USE_S = 0.05
def load(progress): time.sleep(600)
"""


@pytest.fixture(autouse=True)
def no_engine_stays(isolated: Path) -> Iterator[None]:
    """Ends all processes that a test has started, whatever its result."""
    yield
    for process in engines_of(isolated):
        process.kill()
    wait_until(lambda: not engines_of(isolated))


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """`speclsp engine` in this process: its exit code, stdout and stderr."""
    code = cli.main(["engine", *words])
    return code, *capsys.readouterr()


def test_a_lease_reports_the_state_of_the_engine_and_its_clients():
    running = started()
    with lease("Neovim") as first:
        assert first.head.split()[1] == "200"
        event = first.next()
        assert event == {
            "status": "ok",
            "model": "echo",
            "target": "echo",
            "draft": "",
            "device": "cpu",
            "version": __version__,
            "pid": running.pid,
            "clients": 1,
        }
        assert ask("GET", "/health") == event
        with lease("x%0ay%1b[31m" + "z" * 500):
            first.until(clients=2)
            names = [entry["client"] for entry in ask("GET", "/status")["leases"]]
            assert names == ["Neovim", "xy[31m" + "z" * (leases.MAX_NAME_CHARS - 6)], "a name is a short line"
        first.until(clients=1)
    wait_until(lambda: ask("GET", "/health")["clients"] == 0)
    invalid: list[Any] = [[], {"anyway": 1}, "yes", {"anyway": "x" * 5000}]
    assert [ask("POST", "/leave", body)["error"]["code"] for body in invalid] == [400, 400, 400, 413]
    assert ask("POST", "/leave") == {"leaving": True, "clients": 0}
    wait_for_its_end()


@pytest.mark.promise(20)
def test_after_the_last_lease_the_engine_ends_after_the_delay_and_logs_its_freed_memory(promise: Measured):
    running = started(HASTY)
    with lease("Neovim", pid=4711) as first:
        first.next()
        with lease():
            first.until(clients=2)
        first.until(clients=1)
        time.sleep(0.2)  # longer than the delay: without the lease the engine would have ended
        assert ask("GET", "/health")["status"] == "ok"
    began_s = time.monotonic()
    wait_for_its_end()
    assert FILES.find() is None
    assert [path.suffix for path in config.runtime_dir().iterdir()] == [".lock"]
    assert running is not None
    wait_until(lambda: not psutil.pid_exists(running.pid))
    took_s = time.monotonic() - began_s
    promise.measured(f"the last client gone: no process {took_s:.2f} s later, with a grace of 0.05 s", holds=took_s < 5)
    log = log_lines()
    assert "Neovim (pid 4711) connected; 1 client" in log
    assert "Neovim (pid 4711) disconnected; no clients" in log
    assert "shutting down: no client for 0.05 s" in log


@pytest.mark.promise(20)
def test_a_killed_client_loses_its_lease():
    started(HASTY)
    client = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_LEASE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    assert "200" in client.stdout.readline()
    assert ask("GET", "/status")["leases"][0] | {"seconds": 0} == {"client": "mortal", "pid": client.pid, "seconds": 0}
    client.kill()
    client.communicate()
    wait_for_its_end()
    assert f"mortal (pid {client.pid}) disconnected; no clients" in log_lines()


@pytest.mark.promise(20)
def test_an_engine_without_any_client_ends_too():
    strange(IS_NOT_WAITED_FOR)
    wait_for_its_end()
    assert log_lines()[-1].startswith("shutting down: no client for 0.05 s")


def test_a_request_without_a_lease_keeps_the_engine_until_its_answer():
    slow = Config(model="echo", engine=EngineConfig(shutdown_delay_seconds=0.05), echo=EchoConfig(round_ms=30))
    files = EngineFiles.of(slow)
    started(slow)
    assert ask("POST", "/infill", ABC, files)["content"] == ANSWER, "20 rounds of 30 ms, with a grace of 50"
    wait_for_its_end(files)


@pytest.mark.promise(20)
@pytest.mark.parametrize("body", [NEVER_LOADED, NEVER_DONE], ids=["loading", "in a round that does not end"])
def test_the_engine_ends_during_a_load_and_during_an_endless_round(body: str):
    running = strange(body)
    with lease() as client:
        client.until(status="ok" if body is NEVER_DONE else "loading")
        if body is NEVER_DONE:
            busy = engine_files.connect(running)
            words = json.dumps(ABC).encode()
            head = f"POST /infill HTTP/1.1\r\nHost: x\r\nContent-Length: {len(words)}\r\n\r\n"
            busy.sendall(head.encode() + words)
            wait_until(lambda: "speclsp_running_requests 1" in text_of("/metrics"))
            busy.close()
    wait_for_its_end()


def text_of(path: str) -> str:
    """The engine's raw answer to a GET."""
    running = found()
    with engine_files.connect(running, 20) as connection, connection.makefile("rb") as file:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        return file.read().decode()


def test_progress_events_come_at_most_ten_times_a_second_and_always_at_the_end():
    strange(LOADS_IN_1000_STEPS)
    began, events = time.monotonic(), []
    with lease() as client:
        while (progress := client.next()) is not None:
            events.append(progress)
            if progress["status"] == "ok":
                break
    assert events[-1]["model"] == "silent"
    progress = [event["progress"] for event in events[:-1]]
    assert progress == sorted(progress)
    assert len(progress) <= (time.monotonic() - began) / leases.THROTTLE_S + 2


def test_a_leave_request_is_refused_with_clients_unless_it_is_forced():
    running = started()
    with lease() as client:
        client.next()
        assert ask("POST", "/leave", {}) == {"leaving": False, "clients": 1}
        assert ask("POST", "/leave", {"anyway": True, "pid": running.pid + 1}) == {"leaving": False, "clients": 1}
        assert ask("POST", "/leave", {"anyway": True}) == {"leaving": True, "clients": 1}
        assert client.until(status="leaving")["clients"] == 1
        assert client.next() is None, "an end in order, which is no crash"
    wait_for_its_end()


# ── speclsp engine ───────────────────────────────────────────────────────────────────────────────────────────


def test_status_describes_every_engine_and_stop_ends_all(
    capsys: pytest.CaptureFixture[str],
):
    assert command(capsys, "status") == (1, "no engine runs\n", "")
    assert command(capsys, "stop") == (1, "no engine runs\n", "")
    assert command(capsys, "status", "--json") == (1, '{"engines": []}\n', "")
    first, second = started(), started(Config(model="echo", echo=EchoConfig(round_ms=1)))
    with lease("Neovim", pid=4711) as client:
        client.next()
        code, shown, _ = command(capsys, "status")
        assert code == 0
        for fact in (f"process   {first.pid}", "state     ok", "model     echo", "MiB of mapped files", "engine.log"):
            assert fact in shown
        assert re.search(r"Neovim \(pid 4711, \d+ s\)", shown)
        assert f"process   {second.pid}" in shown and 'settings  model = "echo", echo.round_ms = 1' in shown
        assert len(re.findall(r"^memory    \d+ MiB", shown, re.MULTILINE)) == 2
        engines = json.loads(command(capsys, "status", "--json")[1])["engines"]
        names = {"pid", "version", "model", "status", "device", "leases", "rss_mib", "mapped_mib", "uptime_s", "log"}
        assert {engine["pid"] for engine in engines} == {first.pid, second.pid}
        assert all(engine.keys() >= names for engine in engines)
        code, output, _ = command(capsys, "stop")
    assert code == 0
    assert set(output.splitlines()) == {f"ended process {pid}" for pid in (first.pid, second.pid)}
    for pid in (first.pid, second.pid):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert control.running() == []


def test_a_silent_engine_is_reported_and_can_be_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(control, "ANSWER_S", 0.2)
    monkeypatch.setattr(control, "ENDS_S", 2.0)
    running = started()
    os.kill(running.pid, signal.SIGSTOP)
    code, shown, _ = command(capsys, "status")
    assert (code, "does not answer" in shown, str(running.pid) in shown) == (1, True, True), "a script must notice"
    code, output, _ = command(capsys, "stop")
    assert (code, output) == (0, f"ended process {running.pid}\n")
    assert not FILES.is_locked()


def test_stop_signals_only_an_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control, "ANSWER_S", 0.2)
    lock = FILES.try_lock()
    assert lock is not None
    bystander = subprocess.Popen(["sleep", "60"])
    FILES.write(EngineEndpoint(pid=bystander.pid, socket=str(FILES.socket)))
    with pytest.raises(EngineError, match="is not an engine"):
        control.stop(FILES)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    os.close(lock)


def test_a_second_start_by_hand_names_the_running_engine_and_how_to_end_it(capsys: pytest.CaptureFixture[str]):
    running = started()
    runs = f"an engine with these settings already runs (process {running.pid}, model echo)"
    assert command(capsys, "--model", "echo") == (2, "", f"speclsp: {runs}: `speclsp engine stop` ends it.\n")
    assert command(capsys, "start", "--model", "echo") == (0, f"{runs}\n", "")
    code, _, err = command(capsys, "start", "--model", "echo", "--port", "0")
    assert (code, "--port 0 needs one that starts now" in err) == (2, True)


def test_in_the_foreground_the_engine_runs_without_clients_until_it_is_stopped():
    words = [sys.executable, "-m", "speclsp", "engine", "--model", "echo"]
    words += ["--set", "engine.shutdown_delay_seconds=0"]
    service = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: control.alive(FILES) is not None, 60)
    with lease("Neovim") as client:
        client.next()
    wait_until(lambda: ask("GET", "/health")["clients"] == 0)
    time.sleep(0.2)
    assert ask("GET", "/health")["status"] == "ok"
    service.terminate()
    _, output = service.communicate(timeout=ENDS_S)
    assert service.returncode == 0
    assert "speclsp engine: Neovim (pid 7) connected; 1 client\n" in output
    assert not engine_files.log_path().exists(), "a service manager keeps what it says"
    assert not FILES.is_locked()
    assert FILES.find() is None
