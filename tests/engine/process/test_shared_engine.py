"""The user's shared engine: exactly one starts, every client finds it, and it ends after the last client."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from promises import Measured
from support.engine.engine_process import ABC, ANSWER, WANT_ONE
from support.waiting import wait_until

from speclsp import __version__, config
from speclsp.cli import entry as cli
from speclsp.config import Config, EngineConfig
from speclsp.daemon import control, endpoint, launch
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.engine.http import leases, token_file
from speclsp.engine.process import unix_socket
from speclsp.errors import EngineError, SpeclspError
from speclsp.private_files import locks

ECHO = Config(model="echo")
HASTY = Config(model="echo", engine=EngineConfig(shutdown_delay_seconds=0.05))
ENDS_S = 10.0  # generous: the promise is shutdown_delay_seconds and 5 s more, on an idle machine
NOBODY = 65534

HOLDS_A_LEASE = """
import sys
from speclsp.daemon import endpoint
connection = endpoint.connect(endpoint.find(), 20)
connection.sendall(b"GET /lease?client=mortal&pid=%d HTTP/1.0\\r\\n\\r\\n" % __import__("os").getpid())
print(connection.recv(100)[:15], flush=True)
sys.stdin.read()
"""
# The command, with the model loaded by {body}'s `load`.
STRANGE = """
import sys, time
from speclsp.cli import entry as cli
from speclsp.engine.process import server_process as process
from speclsp.engine.api import Result
{body}
process.model_loader = lambda config: load
sys.exit(cli.main(["engine", "start", "--model", "tiny", "--set", "engine.shutdown_delay_seconds=0.05"]))
"""
NEVER_LOADED = "def load(progress): progress(0.25, 'fetching weights'); time.sleep(600)"
NEVER_DONE = """
class Deaf:  # a round that cancel cannot reach
    model = target = 'deaf'; draft = device = ''; result = Result()
    def truncate(self, request): return request
    def complete(self, request, cancel): return self
    def __iter__(self): time.sleep(600); yield
def load(progress): return Deaf()
"""
LOADS_IN_1000_STEPS = """
class Silent:
    model = target = 'silent'; draft = device = ''
def load(progress):
    for step in range(1000): progress(step / 1000, f'step {step}'); time.sleep(0.001)
    return Silent()
"""
LOOKS_AFTER_ITS_FILES_OFTEN = """
from speclsp.engine.decoding.echo import EchoCompleter
from speclsp.config import Config
process.TICK_S = 2.0
def load(progress): return EchoCompleter(Config())
"""
IS_NOT_WAITED_FOR = """
from speclsp.engine.http import leases
leases.FIRST_USE_S = 0.05
def load(progress): time.sleep(600)
"""
# The command on a system without Unix sockets.
WITHOUT_UNIX_SOCKETS = """
import os, sys
from speclsp.daemon import platform
from speclsp.cli import entry as cli
platform.HAS_UNIX_SOCKETS = False
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def no_engine_stays(isolated: Path) -> Iterator[None]:
    """Ends all processes that a test has started, whatever its result."""
    yield
    for process in engines_of(isolated):
        process.kill()
    wait_until(lambda: not engines_of(isolated))


def engines_of(root: Path) -> list[psutil.Process]:
    """All engine and starter processes whose runtime directory lies in `root`."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ours = process.environ().get("XDG_RUNTIME_DIR", "").startswith(f"{root}/")
            if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def log_lines() -> list[str]:
    """Messages of the engine's log, without time and process."""
    return [line.partition("engine: ")[2] for line in launch.log_path().read_text().splitlines()]


def is_gone() -> bool:
    return not endpoint.is_locked()


def wait_for_its_end() -> None:
    """A dying process frees its files one by one: the lock first, the socket a moment later."""
    wait_until(lambda: not control.is_there(), ENDS_S)


class Lease:
    """An open /lease and its events."""

    def __init__(self, client: str = "a test", pid: int = 7) -> None:
        running = endpoint.find()
        assert running is not None
        self.connection = endpoint.connect(running, 20.0)
        target = f"/lease?client={client.replace(' ', '+')}&pid={pid}"
        proof = f"Authorization: Bearer {running.token}\r\n" if running.token else ""
        self.connection.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n{proof}\r\n".encode())
        self.file = self.connection.makefile("r", encoding="utf-8")
        self.head = self.file.readline()
        while self.file.readline().strip():
            pass

    def next(self) -> dict[str, Any] | None:
        """The next event; None at the end."""
        for line in self.file:
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
        return None

    def until(self, **wanted: object) -> dict[str, Any]:
        """The first event with these fields."""
        while (event := self.next()) is not None:
            if event.items() >= wanted.items():
                return event
        raise AssertionError(f"the stream ended before {wanted}")

    def close(self) -> None:
        self.file.close()
        self.connection.close()


@contextmanager
def lease(client: str = "a test", pid: int = 7) -> Iterator[Lease]:
    """An open lease, closed at the end of the block."""
    opened = Lease(client, pid)
    try:
        yield opened
    finally:
        opened.close()


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The running engine's answer."""
    running = endpoint.find()
    assert running is not None
    return control.ask(running, method, path, body)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """`speclsp engine` in this process: its exit code, stdout and stderr."""
    code = cli.main(["engine", *words])
    return code, *capsys.readouterr()


def strange(body: str) -> None:
    """Starts an engine whose model is loaded by `body`."""
    program = STRANGE.format(body=body)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise(22)
def test_fifty_concurrent_starts_get_the_same_engine(isolated: Path, promise: Measured):
    pipe = subprocess.PIPE
    many = [
        subprocess.Popen([sys.executable, "-c", WANT_ONE], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(10)
    ]
    for process in many:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in many:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    began_s = time.monotonic()
    outputs = [process.communicate(timeout=120) for process in many]
    took_s = time.monotonic() - began_s
    running = endpoint.find()
    assert running is not None
    assert outputs == [(f"{running.pid} " * 4 + f"{running.pid}\n", "")] * 10
    assert [process.pid for process in engines_of(isolated)] == [running.pid]
    assert len([line for line in log_lines() if "listens on" in line]) == 1
    promise.measured(f"50 starts at once in 10 processes: 1 engine and 0 errors after {took_s:.1f} s", holds=True)


def test_the_state_file_describes_the_engine_and_only_its_user_can_read_it():
    """The key of another server is on no command line and in no file."""
    settings, _ = config.parse(
        {"model": "echo", "engine.threads": 2, "remote.url": "http://canary", "stats.enabled": False}
    )
    flags = ["--set", "model=echo", "--set", "engine.threads=2"]
    assert launch.engine_flags(settings) == flags
    running = launch.start(settings)
    assert running is not None and running == endpoint.find()
    assert json.loads(endpoint.state_path().read_text()) == {
        "pid": running.pid,
        "socket": str(config.runtime_dir() / "engine.sock"),
        "port": 0,
        "token": "",
        "version": __version__,
        "pair": "echo",
        "settings": {"model": "echo", "engine.threads": 2},
        "start_flags": flags,
    }
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in config.runtime_dir().iterdir()}
    assert modes == {"engine.json": 0o600, "engine.lock": 0o600, "engine.sock": 0o600}
    assert stat.S_IMODE(config.runtime_dir().stat().st_mode) == 0o700
    assert stat.S_IMODE(launch.log_path().stat().st_mode) == 0o600
    assert "canary" not in " ".join(psutil.Process(running.pid).cmdline()) + launch.log_path().read_text()


def test_the_engine_is_detached_from_its_starter_and_its_children_do_not_inherit_its_lock(isolated: Path):
    """VS Code ends a language server with all its children, by parent id; a terminal ends its process group."""
    running = launch.start(ECHO)
    assert running is not None
    assert os.getpid() not in [parent.pid for parent in psutil.Process(running.pid).parents()]
    assert os.getsid(running.pid) not in (os.getsid(0), running.pid), "in a session of its own, which it does not lead"
    assert [process.pid for process in engines_of(isolated)] == [running.pid], "who started it has gone"
    lock, handles = endpoint.lock_path().stat(), []
    for entry in Path(f"/proc/{running.pid}/fd").iterdir():
        with suppress(OSError):  # closed since
            if os.path.samestat(entry.stat(), lock):
                handles.append(int(entry.name))
    (handle,) = handles
    flags = re.search(r"flags:\s+(\d+)", Path(f"/proc/{running.pid}/fdinfo/{handle}").read_text())
    assert flags is not None and int(flags[1], 8) & os.O_CLOEXEC


def first_lease() -> Lease:
    """A lease of an engine, which is started where none runs. One whose starter is gone ends unless it is leased."""
    while True:
        if control.alive() is None:
            launch.start(ECHO)
        elif endpoint.find() is not None:
            with suppress(OSError, SpeclspError):
                opened = Lease()
                if "200" in opened.head:
                    return opened
                opened.close()
        time.sleep(0.02)


@pytest.mark.promise(22)
def test_a_starter_can_be_killed_during_the_start(isolated: Path):
    starter = subprocess.Popen([sys.executable, "-c", WANT_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdin is not None
    starter.stdin.write(b"go\n")
    starter.stdin.flush()
    wait_until(lambda: endpoint.is_locked(), 60)
    for process in [*psutil.Process(starter.pid).children(recursive=True), starter]:
        with suppress(psutil.Error):
            process.kill()
    starter.communicate()
    with closing(first_lease()):  # whether or not that start survived, an engine can be started and used now
        running = control.alive()
        assert running is not None
        assert ask("GET", "/health")["pid"] == running.pid
        wait_until(lambda: [process.pid for process in engines_of(isolated)] == [running.pid])


def test_the_engine_inherits_no_open_files_of_its_starter():
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "speclsp", "engine", "start", "--model", "echo"]
    assert subprocess.run(command, pass_fds=(writing,), check=False, timeout=60).returncode == 0
    os.close(writing)
    assert control.alive() is not None
    with os.fdopen(reading, "rb") as pipe:
        os.set_blocking(reading, False)
        assert pipe.read() == b"", "nobody can write any more"


def test_a_failed_start_is_reported_to_its_starter_and_logged():
    with pytest.raises(EngineError, match=r"^unknown model 'qwen2.5-codr'"):
        launch.start(Config(model="qwen2.5-codr"))
    assert is_gone()
    assert endpoint.find() is None
    assert log_lines()[-1].startswith("unknown model 'qwen2.5-codr'")


@pytest.mark.promise(22)
def test_a_killed_engine_is_replaced_with_its_socket_and_state():
    first = launch.start(ECHO)
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    wait_for_its_end()
    assert endpoint.find() == first, "what it left"
    assert Path(first.socket).exists()
    assert control.alive() is None
    second = launch.start(ECHO)
    assert second is not None
    assert second.pid != first.pid
    assert ask("GET", "/health")["pid"] == second.pid


def start_by_hand(*flags: str) -> tuple[int, str]:
    """Start the engine as a user does, with a port; returns the port and the command's output."""
    command = [sys.executable, "-m", "speclsp", "engine", "start", "--model", "echo", "--port", "0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    return int(re.search(r"http://127.0.0.1:(\d+)", ended.stdout)[1]), ended.stdout  # type: ignore[index]


def kill_engine() -> EngineEndpoint:
    """Kill the running engine, as an editor does when it hangs; returns what it left."""
    running = endpoint.find()
    assert running is not None
    assert control.end_hung(running)
    wait_for_its_end()
    return running


def test_a_killed_engine_is_started_again_with_its_port_and_its_settings():
    """Whoever starts it: an editor knows nothing of the port."""
    port, _ = start_by_hand("--set", "engine.idle_unload_minutes=7")
    killed = kill_engine()
    again = launch.start(ECHO)
    assert again is not None
    assert (again.pid != killed.pid, again.start_flags) == (True, killed.start_flags)
    assert "engine.idle_unload_minutes=7.0" in again.start_flags
    over_tcp = EngineEndpoint(pid=0, port=port, token=token_file.token())
    assert control.ask(over_tcp, "POST", "/infill", ABC)["content"] == ANSWER


def test_an_engine_that_served_until_it_is_stopped_does_so_again_after_it_was_killed():
    words = [sys.executable, "-m", "speclsp", "engine", "--model", "echo", "--set", "engine.shutdown_delay_seconds=0"]
    service = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    wait_until(lambda: control.alive() is not None, 60)
    service.kill()
    service.wait()
    again = launch.start(ECHO)
    assert again is not None
    with lease() as client:
        client.next()
    wait_until(lambda: ask("GET", "/health")["clients"] == 0)
    time.sleep(0.2)
    assert ask("GET", "/health")["pid"] == again.pid, "it needs no client"
    assert control.stop()


def test_an_engine_that_ends_itself_because_a_step_hangs_leaves_its_flags():
    impatient = "from speclsp.engine.scheduling import watchdog\nwatchdog.TICK_S, watchdog.FLOOR_S = 0.05, 0.2\n"
    strange(impatient + NEVER_DONE)
    running = endpoint.find()
    assert running is not None
    wait_until(lambda: ask("GET", "/health")["status"] == "ok", 60)
    answer = control.ask(running, "POST", "/infill", ABC)
    assert "hangs" in answer["error"]["message"]
    wait_for_its_end()
    assert control.alive() is None
    assert endpoint.read() == running
    assert running.start_flags


def test_an_engine_whose_port_is_taken_by_now_is_started_without_it():
    port, _ = start_by_hand()
    kill_engine()
    with socket.create_server(("127.0.0.1", port)):
        again = launch.start(ECHO)
        assert again is not None
        assert "--port" not in again.start_flags
        assert ask("GET", "/health")["pid"] == again.pid


def test_an_engine_that_was_stopped_or_has_other_settings_gives_no_flags_to_the_next():
    start_by_hand()
    assert control.stop()
    wait_for_its_end()
    plain = launch.start(ECHO)
    assert plain is not None
    assert "--port" not in plain.start_flags
    kill_engine()
    start_by_hand()
    kill_engine()
    other = launch.start(Config(model="echo", engine=EngineConfig(threads=2)))
    assert other is not None
    assert "--port" not in other.start_flags


@pytest.mark.promise(22)
def test_no_engine_starts_while_another_process_has_the_lock(isolated: Path):
    lock = endpoint.try_lock()
    assert lock is not None
    assert launch.start(ECHO) is None
    assert engines_of(isolated) == []
    os.close(lock)


def test_a_lock_on_a_removed_file_blocks_no_start():
    lock = endpoint.try_lock()
    assert lock is not None
    endpoint.lock_path().unlink()
    second = endpoint.try_lock()
    assert second is not None
    assert not locks.is_at(endpoint.lock_path(), lock)
    with pytest.raises(EngineError, match="is not the lock"):
        endpoint.inherited(lock)
    assert endpoint.inherited(second) == second
    os.close(lock)
    os.close(second)


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lease_reports_the_state_of_the_engine_and_its_clients():
    running = launch.start(ECHO)
    assert running is not None
    with lease("Neovim") as first:
        assert first.head.split()[1] == "200"
        event = first.next()
        assert event == {
            "status": "ok",
            "pair": "echo",
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
    running = launch.start(HASTY)
    with lease("Neovim", pid=4711) as first:
        first.next()
        with lease():
            first.until(clients=2)
        first.until(clients=1)
        time.sleep(0.2)  # longer than the delay: without the lease the engine would have ended
        assert ask("GET", "/health")["status"] == "ok"
    began_s = time.monotonic()
    wait_for_its_end()
    assert endpoint.find() is None
    assert sorted(path.name for path in config.runtime_dir().iterdir()) == ["engine.lock"]
    assert running is not None
    wait_until(lambda: not psutil.pid_exists(running.pid))
    took_s = time.monotonic() - began_s
    promise.measured(f"the last client gone: no process {took_s:.2f} s later, with a grace of 0.05 s", holds=took_s < 5)
    log = log_lines()
    assert "Neovim (pid 4711) connected; 1 client" in log
    assert "Neovim (pid 4711) disconnected; no clients" in log
    assert any(re.fullmatch(r"shutting down: no client for 0.05 s; frees \d+ MiB of memory", line) for line in log)


@pytest.mark.promise(20)
def test_a_killed_client_loses_its_lease():
    launch.start(HASTY)
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


@pytest.mark.promise(20)
def test_unloading_and_reloading_are_sent_to_clients_and_logged():
    launch.start(Config(model="echo", engine=EngineConfig(idle_unload_minutes=0.02)))
    with lease() as client:
        asleep = client.until(status="asleep")
        assert asleep["pair"] == "echo"
        assert ask("POST", "/infill", ABC)["content"] == ANSWER
        client.until(status="ok")
    log = log_lines()
    slept = next(index for index, line in enumerate(log) if "unloaded" in line)
    assert "echo is loaded" in log[slept:]


def test_a_removed_state_file_and_socket_are_restored_soon(isolated: Path):
    strange(LOOKS_AFTER_ITS_FILES_OFTEN)
    running = endpoint.find()
    assert running is not None
    with lease() as client:
        client.until(clients=1)
        endpoint.state_path().unlink()
        Path(running.socket).unlink()
        wait_until(lambda: control.alive() is not None)
        assert endpoint.find() == running
        with lease("another") as second:
            assert second.until(clients=2)["pid"] == running.pid
            client.until(clients=2)
        assert [process.pid for process in engines_of(isolated)] == [running.pid]
    wait_for_its_end()
    assert sorted(path.name for path in config.runtime_dir().iterdir()) == ["engine.lock"]


@pytest.mark.promise(22)
@pytest.mark.parametrize("removed", ["engine.lock", "its directory"])
def test_an_engine_whose_lock_is_removed_locks_it_again(removed: str, isolated: Path):
    strange(LOOKS_AFTER_ITS_FILES_OFTEN)
    running, there = endpoint.find(), config.runtime_dir()
    assert running is not None
    with lease() as client:
        client.until(clients=1)
        if removed == "engine.lock":
            endpoint.lock_path().unlink()
        else:
            shutil.rmtree(there)
        wait_until(lambda: endpoint.lock_path().exists() and endpoint.is_locked())
        wait_until(lambda: control.alive() == running)
        assert launch.start(ECHO) is None, "another finds it"
        assert [process.pid for process in engines_of(isolated)] == [running.pid]
    wait_for_its_end()


@pytest.mark.promise(22)
def test_an_engine_replaced_by_another_ends_and_leaves_its_files(isolated: Path):
    strange(LOOKS_AFTER_ITS_FILES_OFTEN)
    first = endpoint.find()
    assert first is not None
    with lease() as client:
        client.until(clients=1)
        os.kill(first.pid, signal.SIGSTOP)
        endpoint.lock_path().unlink()
        endpoint.state_path().unlink()
        Path(first.socket).unlink()
        second = launch.start(ECHO)
        assert second is not None and second.pid != first.pid
        os.kill(first.pid, signal.SIGCONT)
        assert client.until(status="leaving") and client.next() is None
    wait_until(lambda: [process.pid for process in engines_of(isolated)] == [second.pid])
    assert control.alive() == second, "whose files are still there"


def test_a_request_without_a_lease_keeps_the_engine_until_its_answer():
    slow = Config(model="echo", engine=EngineConfig(shutdown_delay_seconds=0.05), echo=config.EchoConfig(round_ms=30))
    launch.start(slow)
    assert ask("POST", "/infill", ABC)["content"] == ANSWER, "20 rounds of 30 ms, with a grace of 50"
    wait_for_its_end()


@pytest.mark.promise(20)
@pytest.mark.parametrize("body", [NEVER_LOADED, NEVER_DONE], ids=["loading", "in a round that does not end"])
def test_the_engine_ends_during_a_load_and_during_an_endless_round(body: str):
    strange(body)
    running = endpoint.find()
    assert running is not None
    with lease() as client:
        client.until(status="ok" if body is NEVER_DONE else "loading")
        if body is NEVER_DONE:
            busy = endpoint.connect(running)
            words = json.dumps(ABC).encode()
            head = f"POST /infill HTTP/1.1\r\nHost: x\r\nContent-Length: {len(words)}\r\n\r\n"
            busy.sendall(head.encode() + words)
            wait_until(lambda: "speclsp_running_requests 1" in text_of("/metrics"))
            busy.close()
    wait_for_its_end()


def text_of(path: str) -> str:
    """The engine's raw answer to a GET."""
    running = endpoint.find()
    assert running is not None
    with endpoint.connect(running, 20) as connection, connection.makefile("rb") as file:
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
    assert events[-1]["pair"] == "silent"
    progress = [event["progress"] for event in events[:-1]]
    assert progress == sorted(progress)
    assert len(progress) <= (time.monotonic() - began) / leases.THROTTLE_S + 2


def test_a_leave_request_is_refused_with_clients_unless_it_is_forced():
    running = launch.start(ECHO)
    assert running is not None
    with lease() as client:
        client.next()
        assert ask("POST", "/leave", {}) == {"leaving": False, "clients": 1}
        assert ask("POST", "/leave", {"anyway": True, "pid": running.pid + 1}) == {"leaving": False, "clients": 1}
        assert ask("POST", "/leave", {"anyway": True}) == {"leaving": True, "clients": 1}
        assert client.until(status="leaving")["clients"] == 1
        assert client.next() is None, "an end in order, which is no crash"
    wait_for_its_end()


def test_every_client_gets_a_leaving_event_before_the_process_ends():
    running = launch.start(ECHO)
    assert running is not None
    with lease() as first, lease() as second:
        os.kill(running.pid, signal.SIGTERM)
        for client in (first, second):
            client.until(status="leaving")
            assert client.next() is None
    wait_for_its_end()
    assert any(line.startswith("shutting down: SIGTERM; frees") for line in log_lines())


# ── speclsp engine ───────────────────────────────────────────────────────────────────────────────────────────


def test_status_describes_the_engine_and_stop_reports_its_freed_memory(capsys: pytest.CaptureFixture[str]):
    assert command(capsys, "status") == (1, "no engine runs\n", "")
    assert command(capsys, "stop") == (1, "no engine runs\n", "")
    assert command(capsys, "status", "--json") == (1, '{"status": "none"}\n', "")
    running = launch.start(ECHO)
    assert running is not None
    with lease("Neovim", pid=4711) as client:
        client.next()
        code, shown, _ = command(capsys, "status")
        assert code == 0
        for fact in (f"process   {running.pid}", "state     ok", "echo", "MiB of mapped files", "engine.log"):
            assert fact in shown
        assert re.search(r"Neovim \(pid 4711, \d+ s\)", shown)
        status = json.loads(command(capsys, "status", "--json")[1])
        names = {"pid", "version", "pair", "status", "device", "leases", "rss_mib", "mapped_mib", "uptime_s", "log"}
        assert status.keys() >= names
        code, output, _ = command(capsys, "stop")
    assert code == 0
    assert re.fullmatch(rf"ended process {running.pid}, which had 1 client: \d+ MiB of memory freed\n", output)
    assert is_gone()
    assert not psutil.pid_exists(running.pid) or psutil.Process(running.pid).status() == psutil.STATUS_ZOMBIE


def test_a_silent_engine_is_reported_and_can_be_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(control, "ANSWER_S", 0.2)
    monkeypatch.setattr(control, "ENDS_S", 2.0)
    running = launch.start(ECHO)
    assert running is not None
    os.kill(running.pid, signal.SIGSTOP)
    code, shown, _ = command(capsys, "status")
    assert (code, "does not answer" in shown, str(running.pid) in shown) == (1, True, True), "a script must notice"
    code, output, _ = command(capsys, "stop")
    assert (code, output) == (0, f"ended process {running.pid}, which did not answer\n")
    assert is_gone()


def test_an_engine_whose_lock_is_removed_is_still_shown_and_stopped(capsys: pytest.CaptureFixture[str]):
    running = launch.start(ECHO)
    assert running is not None
    endpoint.lock_path().unlink()
    code, shown, _ = command(capsys, "status")
    assert (code, f"process   {running.pid}" in shown) == (0, True)
    code, output, _ = command(capsys, "stop")
    assert (code, output.startswith(f"ended process {running.pid}, which had no clients: ")) == (0, True)
    assert control.is_gone(running.pid)
    assert command(capsys, "status") == (1, "no engine runs\n", "")


def test_stop_signals_only_an_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control, "ANSWER_S", 0.2)
    lock = endpoint.try_lock()
    assert lock is not None
    bystander = subprocess.Popen(["sleep", "60"])
    endpoint.write(EngineEndpoint(pid=bystander.pid, socket=str(config.runtime_dir() / "engine.sock")))
    with pytest.raises(EngineError, match="is not an engine"):
        control.stop()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    os.close(lock)


def test_a_second_start_by_hand_names_the_running_engine_and_how_to_end_it(capsys: pytest.CaptureFixture[str]):
    running = launch.start(ECHO)
    assert running is not None
    runs = f"this user's engine already runs (process {running.pid}, model echo)"
    assert command(capsys, "--model", "echo") == (2, "", f"speclsp: {runs}: `speclsp engine stop` ends it.\n")
    assert command(capsys, "start", "--model", "echo") == (0, f"{runs}\n", "")
    code, out, err = command(capsys, "start", "--model", "tiny")
    assert (code, out) == (2, "")
    assert err == f'speclsp: {runs}, but model is "echo" there and "tiny" here. `speclsp engine stop` ends it.\n'
    code, _, err = command(capsys, "start", "--model", "echo", "--port", "0")
    assert (code, "--port 0 needs an engine that starts now" in err) == (2, True)


def test_in_the_foreground_the_engine_runs_without_clients_until_it_is_stopped():
    words = [sys.executable, "-m", "speclsp", "engine", "--model", "echo"]
    words += ["--set", "engine.shutdown_delay_seconds=0"]
    service = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: control.alive() is not None, 60)
    with lease("Neovim") as client:
        client.next()
    wait_until(lambda: ask("GET", "/health")["clients"] == 0)
    time.sleep(0.2)
    assert ask("GET", "/health")["status"] == "ok"
    service.terminate()
    _, output = service.communicate(timeout=ENDS_S)
    assert service.returncode == 0
    assert "speclsp engine: Neovim (pid 7) connected; 1 client\n" in output
    assert not launch.log_path().exists(), "a service manager keeps what it says"
    assert is_gone()
    assert endpoint.find() is None


def test_an_additional_port_admits_clients_with_the_token():
    port, output = start_by_hand()
    assert str(token_file.token_path()) in output
    assert token_file.token() not in output + launch.log_path().read_text()
    over_tcp = EngineEndpoint(pid=0, port=port, token=token_file.token())
    assert control.ask(over_tcp, "POST", "/infill", ABC)["content"] == ANSWER
    assert control.ask(over_tcp, "GET", "/status")["pair"] == "echo"
    assert "error" in control.ask(EngineEndpoint(pid=0, port=port), "POST", "/infill", ABC)
    assert "error" in control.ask(EngineEndpoint(pid=0, port=port), "POST", "/leave", {"anyway": True})
    assert ask("GET", "/health")["status"] == "ok", "over the Unix socket, without a token"
    assert f"engine.sock, http://127.0.0.1:{port}\n" in control.in_words(control.status() or {})


# ── its address ──────────────────────────────────────────────────────────────────────────────────────────────


def test_with_a_path_too_long_for_a_socket_it_lies_in_a_private_directory(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
):
    deep = isolated / ("d" * 100)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setenv("TMPDIR", str(isolated))
    monkeypatch.setattr("tempfile.tempdir", None)
    first = launch.start(ECHO)
    assert first is not None
    directory = Path(first.socket).parent
    assert directory.parent == isolated
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert ask("GET", "/health")["pid"] == first.pid
    os.kill(first.pid, signal.SIGKILL)
    wait_for_its_end()
    assert directory.exists()
    second = launch.start(ECHO)
    assert second is not None
    assert not directory.exists(), "what a killed engine left is removed by the next one"
    assert control.stop()
    assert not Path(second.socket).parent.exists()


def test_without_unix_sockets_it_is_a_port_with_a_token_that_only_the_user_can_read(
    monkeypatch: pytest.MonkeyPatch,
):
    words = [sys.executable, "-c", WITHOUT_UNIX_SOCKETS, "engine", "--model", "echo"]
    service = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: control.alive() is not None, 60)
    running = endpoint.find()
    assert running is not None
    assert (running.socket, len(running.token) > 40, running.port > 0) == ("", True, True)
    assert stat.S_IMODE(endpoint.state_path().stat().st_mode) == 0o600
    assert sorted(path.name for path in config.runtime_dir().iterdir()) == ["engine.json", "engine.lock"]
    assert ask("POST", "/infill", ABC)["content"] == ANSWER
    with lease("Neovim") as client:
        assert client.until(clients=1)["pair"] == "echo"
        without = control.ask(EngineEndpoint(pid=0, port=running.port), "GET", "/status")
        assert without["error"]["code"] == 401
        assert control.health(EngineEndpoint(pid=0, port=running.port, token="guess")) == without
    assert control.stop()
    _, output = service.communicate(timeout=ENDS_S)
    assert service.returncode == 0
    assert running.token not in output


def test_without_fork_a_new_interpreter_inherits_the_lock_and_reports_to_its_starter():
    program = WITHOUT_UNIX_SOCKETS.replace("platform.HAS", "platform.CAN_FORK = platform.HAS")
    words = [sys.executable, "-c", program, "engine", "start", "--set", "engine.shutdown_delay_seconds=0.05"]
    ended = subprocess.run([*words, "--model", "echo"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    running = endpoint.find()
    assert running is not None
    assert "--detached" in psutil.Process(running.pid).cmdline()
    assert os.getsid(running.pid) == running.pid
    with lease() as client:
        client.next()
        assert endpoint.is_locked()
    wait_for_its_end()
    assert any(line.startswith("shutting down: no client") for line in log_lines())
    ended = subprocess.run([*words, "--model", "qwen2.5-codr"], capture_output=True, text=True, timeout=60)
    assert ended.stderr.startswith("speclsp: unknown model 'qwen2.5-codr'")


def test_on_macos_the_engine_is_a_new_interpreter_that_inherits_the_lock_and_reports_to_its_starter():
    program = "from speclsp.daemon import platform; platform.FORK_NEEDS_EXEC = True\n" + WITHOUT_UNIX_SOCKETS.replace(
        "platform.HAS_UNIX_SOCKETS = False", ""
    )
    words = [
        sys.executable,
        "-c",
        program,
        "engine",
        "start",
        "--model",
        "echo",
        "--set",
        "engine.shutdown_delay_seconds=0.05",
    ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    running = endpoint.find()
    assert running is not None
    assert "--detached" in psutil.Process(running.pid).cmdline()
    assert os.getsid(running.pid) not in (os.getsid(0), running.pid)
    with lease() as client:
        assert client.until(clients=1)["pid"] == running.pid
        assert endpoint.is_locked()
    wait_for_its_end()
    ended = subprocess.run([*words[:-2], "--model", "qwen2.5-codr"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.startswith("speclsp: unknown model 'qwen2.5-codr'")


# ── files planted in its place ────────────────────────────────────────────────────────────────────────────────────


def make_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("mine")
    path.symlink_to(target)


def make_open(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0o666)


PLANTS: dict[str, Callable[[Path], object]] = {
    "symbolic link": make_link,
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "file open to others": make_open,
}


LOOKS: dict[str, list[Callable[[Path], object]]] = {
    "engine.lock": [lambda path: endpoint.try_lock()],
    "engine.json": [lambda path: endpoint.find(), lambda path: endpoint.write(EngineEndpoint(pid=1))],
    "engine.sock": [
        lambda path: unix_socket.listen(str(path)),
        lambda path: endpoint.connect(EngineEndpoint(pid=1, socket=str(path))),
    ],
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_foreign_file_in_place_of_ours_is_refused_and_not_changed(name: str, plant: str):
    path = config.runtime_dir() / name
    PLANTS[plant](path)
    before = path.lstat()
    for look in LOOKS[name]:
        with pytest.raises(EngineError) as refused:
            look(path)
        assert str(path) in str(refused.value)
        assert "remove it" in str(refused.value).lower()
    after = path.lstat()
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)
    path.rename(path.with_name("somebodys"))  # so that it does not disturb the checks after the test


def test_a_start_names_the_file_that_blocks_it():
    path = config.runtime_dir() / "engine.sock"
    os.mkfifo(path)
    with pytest.raises(EngineError, match=r"engine\.sock exists and is not a socket: remove it"):
        launch.start(ECHO)
    assert is_gone()
    assert stat.S_ISFIFO(path.lstat().st_mode)


def test_a_runtime_directory_that_is_a_link_is_refused(isolated: Path):
    (isolated / "elsewhere").mkdir()
    Path(os.environ["XDG_RUNTIME_DIR"], "speclsp").symlink_to(isolated / "elsewhere")
    with pytest.raises(SpeclspError, match="is a symbolic link"):
        launch.start(ECHO)
    assert stat.S_IMODE((isolated / "elsewhere").stat().st_mode) != 0o700


def test_another_users_files_are_refused_in_the_search_for_an_engine(monkeypatch: pytest.MonkeyPatch):
    endpoint.write(EngineEndpoint(pid=1, socket="/nowhere"))
    lock = endpoint.try_lock()
    assert lock is not None
    os.close(lock)
    directory = config.runtime_dir()
    with monkeypatch.context() as patch:
        patch.setattr(config, "runtime_dir", lambda: directory)
        patch.setattr(config, "runtime_path", lambda: directory)
        patch.setattr(os, "getuid", lambda: 12345)
        for look in (endpoint.find, endpoint.try_lock, lambda: endpoint.write(EngineEndpoint(pid=1))):
            with pytest.raises(EngineError, match="belongs to another user"):
                look()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"pid": "7"}',
        '{"pid": true}',
        '{"pid": 7, "socket": 8}',
        '{"pid": 7, "settings": []}',
        "\0",
    ],
)
def test_an_invalid_state_file_counts_as_none(text: str):
    config.runtime_dir()
    endpoint.state_path().touch(mode=0o600)
    endpoint.state_path().write_text(text)
    assert endpoint.find() is None
    endpoint.write(EngineEndpoint(pid=7, socket="/nowhere"))
    assert endpoint.find() == EngineEndpoint(pid=7, socket="/nowhere")


# ── other users ──────────────────────────────────────────────────────────────────────────────────────────────

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

AS_NOBODY = """
import os, socket, sys
os.setgid({nobody}); os.setuid({nobody})
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(20)
    try:
        client.connect(sys.argv[1])
        client.sendall(b"GET /health HTTP/1.0\\r\\n\\r\\n")
        print(client.recv(100))
    except OSError as error:
        print(type(error).__name__)
"""
LISTENS_AS_NOBODY = """
import os, socket, sys
os.setgid({nobody}); os.setuid({nobody})
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1]); server.listen(); print("listens", flush=True); sys.stdin.read()
"""


def as_nobody(program: str, path: str, **how: Any) -> list[str]:
    return [sys.executable, "-c", program.format(nobody=NOBODY), path]


@pytest.mark.promise(28)
@root_only
def test_another_user_cannot_reach_the_engine_and_is_refused_on_an_open_path(isolated: Path, promise: Measured):
    running = launch.start(ECHO)
    assert running is not None
    outside = subprocess.run(as_nobody(AS_NOBODY, running.socket), capture_output=True, text=True, timeout=60)
    assert outside.stdout == "PermissionError\n", outside.stderr
    for path in (isolated, isolated / "run", Path(running.socket).parent):
        path.chmod(0o711)
    Path(running.socket).chmod(0o666)
    refused = subprocess.run(as_nobody(AS_NOBODY, running.socket), capture_output=True, text=True, timeout=60)
    assert refused.stdout in ("b''\n", "ConnectionResetError\n", "BrokenPipeError\n"), refused.stderr
    assert ask("GET", "/health")["status"] == "ok"
    promise.measured("a real second uid: kept out by the directory, and refused where that is open", holds=True)


@pytest.mark.promise(28)
@root_only
def test_another_users_server_in_its_place_receives_no_request(isolated: Path):
    isolated.chmod(0o711)
    public = isolated / "public"
    public.mkdir()
    public.chmod(0o777)
    theirs = str(public / "engine.sock")
    server = subprocess.Popen(
        as_nobody(LISTENS_AS_NOBODY, theirs), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "listens\n"
    with pytest.raises(EngineError, match=f"belongs to another user \\(uid {NOBODY}\\)"):
        endpoint.connect(EngineEndpoint(pid=1, socket=theirs))
    os.chown(theirs, 0, 0)
    with pytest.raises(EngineError, match="a process of another user listens"):
        endpoint.connect(EngineEndpoint(pid=1, socket=theirs))
    server.communicate()


@pytest.mark.promise(28)
def test_on_macos_the_system_reports_the_user_of_the_peer(monkeypatch: pytest.MonkeyPatch):
    class Connection:
        family = socket.AF_UNIX

        def __init__(self, uid: int) -> None:
            self.uid = uid

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option, size) == (0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED, sizeof(struct xucred)
            return (0).to_bytes(4, sys.byteorder) + self.uid.to_bytes(4, sys.byteorder) + bytes(68)

    monkeypatch.delattr(socket, "SO_PEERCRED")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert endpoint.is_own_peer(Connection(os.getuid()))  # type: ignore[arg-type]
    assert not endpoint.is_own_peer(Connection(os.getuid() + 1))  # type: ignore[arg-type]
