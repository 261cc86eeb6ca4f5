"""Start of a shared engine: one for each settings, whatever happens to starters, to engines and to their files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from promises import Measured
from support.engine.engine_process import ABC, ANSWER, WANT_ONE
from support.engine.shared_engines import (
    ECHO,
    FILES,
    Lease,
    ask,
    engines_of,
    found,
    lease,
    log_lines,
    started,
    wait_for_its_end,
)  # fmt: skip
from support.waiting import wait_until

from speclsp import __version__, config
from speclsp.config import Config
from speclsp.daemon import control, engine_files, launch
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from speclsp.errors import EngineError, SpeclspError
from speclsp.private_files import locks

# The command on a system without fork.
WITHOUT_FORK = """
import sys
from speclsp.daemon import platform
from speclsp.cli import entry as cli
platform.CAN_FORK = False
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def no_engine_stays(isolated: Path) -> Iterator[None]:
    """Ends all processes that a test has started, whatever its result."""
    yield
    for process in engines_of(isolated):
        process.kill()
    wait_until(lambda: not engines_of(isolated))


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
    running = found()
    assert outputs == [(f"{running.pid} " * 4 + f"{running.pid}\n", "")] * 10
    assert [process.pid for process in engines_of(isolated)] == [running.pid]
    assert len([line for line in log_lines() if "listens on" in line]) == 1
    promise.measured(f"50 starts at once in 10 processes: 1 engine and 0 errors after {took_s:.1f} s", holds=True)


def test_the_state_file_describes_the_engine_and_only_its_user_can_read_it():
    """The key of another server is on no command line and in no file."""
    settings, _ = config.parse(
        {"model": "echo", "engine.threads": 2, "remote.url": "http://canary", "stats.enabled": False}
    )
    assert launch.engine_flags(settings) == ["--set", "model=echo", "--set", "engine.threads=2"]
    files, running = EngineFiles.of(settings), started(settings)
    assert running == files.find()
    assert json.loads(files.state.read_text()) == {
        "pid": running.pid,
        "socket": str(files.socket),
        "port": 0,
        "token": "",
        "version": __version__,
        "settings": {"model": "echo", "engine.threads": 2},
    }
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in config.runtime_dir().iterdir()}
    assert modes == {f"engine-{files.key}.{suffix}": 0o600 for suffix in ("json", "lock", "sock")}
    assert stat.S_IMODE(config.runtime_dir().stat().st_mode) == 0o700
    assert stat.S_IMODE(engine_files.log_path().stat().st_mode) == 0o600
    assert "canary" not in " ".join(psutil.Process(running.pid).cmdline()) + engine_files.log_path().read_text()


def test_the_engine_is_detached_from_its_starter_and_its_children_do_not_inherit_its_lock(isolated: Path):
    """VS Code ends a language server with all its children, by parent id; a terminal ends its process group."""
    running = started()
    assert os.getpid() not in [parent.pid for parent in psutil.Process(running.pid).parents()]
    assert os.getsid(running.pid) not in (os.getsid(0), running.pid), "in a session of its own, which it does not lead"
    assert [process.pid for process in engines_of(isolated)] == [running.pid], "who started it has gone"
    lock, handles = FILES.lock.stat(), []
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
        if control.alive(FILES) is None:
            launch.start(ECHO)
        elif FILES.find() is not None:
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
    wait_until(lambda: FILES.is_locked(), 60)
    for process in [*psutil.Process(starter.pid).children(recursive=True), starter]:
        with suppress(psutil.Error):
            process.kill()
    starter.communicate()
    with closing(first_lease()):  # whether or not that start survived, an engine can be started and used now
        running = control.alive(FILES)
        assert running is not None
        assert ask("GET", "/health")["pid"] == running.pid
        wait_until(lambda: [process.pid for process in engines_of(isolated)] == [running.pid])


def test_the_engine_inherits_no_open_files_of_its_starter():
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "speclsp", "engine", "start", "--model", "echo"]
    assert subprocess.run(command, pass_fds=(writing,), check=False, timeout=60).returncode == 0
    os.close(writing)
    assert control.alive(FILES) is not None
    with os.fdopen(reading, "rb") as pipe:
        os.set_blocking(reading, False)
        assert pipe.read() == b"", "nobody can write any more"


def test_a_failed_start_is_reported_to_its_starter_and_logged():
    with pytest.raises(EngineError, match=r"^unknown model 'qwen2.5-codr'"):
        launch.start(Config(model="qwen2.5-codr"))
    assert not FILES.is_locked()
    assert FILES.find() is None
    assert log_lines()[-1].startswith("unknown model 'qwen2.5-codr'")


@pytest.mark.promise(22)
def test_a_killed_engine_is_replaced_with_its_socket_and_state():
    first = started()
    os.kill(first.pid, signal.SIGKILL)
    wait_for_its_end()
    assert FILES.find() == first, "what it left"
    assert Path(first.socket).exists()
    assert control.alive(FILES) is None
    second = started()
    assert second.pid != first.pid
    assert ask("GET", "/health")["pid"] == second.pid


@pytest.mark.promise(22)
def test_no_engine_starts_while_another_process_has_the_lock(isolated: Path):
    lock = FILES.try_lock()
    assert lock is not None
    assert launch.start(ECHO) is None
    assert engines_of(isolated) == []
    os.close(lock)


def test_a_lock_on_a_removed_file_blocks_no_start():
    lock = FILES.try_lock()
    assert lock is not None
    FILES.lock.unlink()
    second = FILES.try_lock()
    assert second is not None
    assert not locks.is_at(FILES.lock, lock)
    with pytest.raises(EngineError, match="is not the lock"):
        FILES.inherited(lock)
    assert FILES.inherited(second) == second
    os.close(lock)
    os.close(second)


# ── several engines ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise(22)
def test_another_version_starts_its_own_engine_and_the_old_one_serves_its_clients(monkeypatch: pytest.MonkeyPatch):
    old = started()
    with lease() as client:
        client.next()
        monkeypatch.setattr(engine_files, "__version__", "99.0")
        newer = EngineFiles.of(ECHO)
        assert newer != FILES and newer.find() is None
        lock = newer.try_lock()  # the new program starts its engine
        assert lock is not None
        os.close(lock)
        assert ask("GET", "/health")["pid"] == old.pid


@pytest.mark.promise(22)
def test_removed_files_stay_removed_and_the_engine_serves_its_clients_beside_another():
    first = started()
    with lease() as client:
        client.until(clients=1)
        shutil.rmtree(config.runtime_dir())
        second = started()
        assert second.pid != first.pid
        with lease("another") as other:
            assert other.until(clients=1)["pid"] == second.pid
        os.kill(first.pid, signal.SIGTERM)
        assert client.until(status="leaving")["pid"] == first.pid
    wait_until(lambda: not psutil.pid_exists(first.pid))
    assert found() == second and control.alive(FILES) == second, "whose files are still there"


# ── its address ──────────────────────────────────────────────────────────────────────────────────────────────


def test_with_a_path_too_long_for_a_socket_it_is_a_port_with_a_token_that_only_the_user_can_read(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
):
    """As on a system without Unix sockets: Windows."""
    deep = isolated / ("d" * 100)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    running = started()
    assert (running.socket, len(running.token) > 40, running.port > 0) == ("", True, True)
    assert stat.S_IMODE(FILES.state.stat().st_mode) == 0o600
    assert sorted(path.suffix for path in config.runtime_dir().iterdir()) == [".json", ".lock"]
    assert ask("POST", "/infill", ABC)["content"] == ANSWER
    with lease("Neovim") as client:
        assert client.until(clients=1)["model"] == "echo"
        without = control.ask(EngineEndpoint(pid=0, port=running.port), "GET", "/status")
        assert without["error"]["code"] == 401
        assert control.health(EngineEndpoint(pid=0, port=running.port, token="guess")) == without
    assert control.stop(FILES)
    assert running.token not in engine_files.log_path().read_text()


def test_without_fork_a_new_interpreter_inherits_the_lock_and_reports_to_its_starter():
    words = [sys.executable, "-c", WITHOUT_FORK, "engine", "start", "--set", "engine.shutdown_delay_seconds=0.05"]
    ended = subprocess.run([*words, "--model", "echo"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    running = found()
    assert "--tell-fd" in psutil.Process(running.pid).cmdline()
    assert os.getsid(running.pid) == running.pid
    with lease() as client:
        client.next()
        assert FILES.is_locked()
    wait_for_its_end()
    ended = subprocess.run([*words, "--model", "qwen2.5-codr"], capture_output=True, text=True, timeout=60)
    assert ended.stderr.startswith("speclsp: unknown model 'qwen2.5-codr'")
