"""Servers and engines that start without the seconds of imports: forks of processes that have imported their modules.

    WarmServer([sys.executable, "-m", "speclsp", "lsp", "--model", "echo"], environment, stderr)

A fork has its own memory, streams, environment and exit, as a server that an editor starts. This process adopts it
(PR_SET_CHILD_SUBREAPER), so it waits for it as for a child. The shared engine that a forked server starts is a fork of
another process. Tests of the start itself run `python -m speclsp`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL_S = 0.005
PARENT_POLL_S = 2.0
MAX_JOB_BYTES = 1 << 20
ONE_AT_A_TIME = threading.Lock()
SERVER_MODULES = (  # a server imports them until its first answer
    *("speclsp.cli.entry", "speclsp.lsp.server.app", "speclsp.lsp.server.model_list", "speclsp.daemon.control"),
    *("speclsp.lsp.completion.session", "speclsp.lsp.completion.pipeline", "speclsp.lsp.server.workspace_indexes"),
    *("speclsp.lsp.next_edit.model_producer", "speclsp.lsp.next_edit.offers", "speclsp.daemon.engine_files"),
    *("speclsp.lsp.backend.remote.backend_choice", "speclsp.lsp.backend.engine_http", "speclsp.cli.models"),
    *("speclsp.cli.models.model_commands", "httpx", "anyio", "speclsp.lsp.backend.engine_client"),
)
# An engine imports them until a model of this machine is loaded; none reads an environment variable of a test.
ENGINE_MODULES = (
    *("speclsp.cli.entry", "speclsp.engine.process.daemonize", "speclsp.engine.process.server_process"),
    *("speclsp.engine.loading.loading", "speclsp.engine.model.int8.building", "tokenizers"),
)
IS_ENGINE = ("speclsp", "engine")  # words of a process that an editor may end


def python_path(environment: Mapping[str, str]) -> str:
    """PYTHONPATH of a server: this checkout before the environment's own."""
    return os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))


PYTHON_PATH = python_path(os.environ)


def can_run(command: list[str], environment: Mapping[str, str]) -> bool:
    """True for `python -m speclsp lsp` and for a script, with the imports of a fork, where a process can adopt others.

    A test with a `sitecustomize` of its own has another PYTHONPATH.
    """
    is_ours = command[0] == sys.executable and (command[1:4] == ["-m", "speclsp", "lsp"] or command[1].endswith(".py"))
    return sys.platform == "linux" and is_ours and environment.get("PYTHONPATH") == PYTHON_PATH


class WarmServer:
    """A forked server, with the part of subprocess.Popen that clients of tests use."""

    def __init__(self, command: list[str], environment: dict[str, str], stderr: int, cwd: Path | None = None) -> None:
        child_input, own_output = os.pipe()
        own_input, child_output = os.pipe()
        job = {"words": command[1:], "environment": environment, "folder": str(cwd or Path.cwd())}
        job["engines"] = warm_parent().engines
        self.pid = fork(json.dumps(job).encode(), [child_input, child_output, stderr])
        os.close(child_input)
        os.close(child_output)
        self.stdin, self.stdout = os.fdopen(own_output, "wb"), os.fdopen(own_input, "rb")
        self.returncode: int | None = None
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        with self._waiting:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""
        end_s = time.monotonic() + (timeout if timeout is not None else float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired("speclsp lsp", timeout or 0.0)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self.send_signal(signal.SIGTERM)


class WarmParent(NamedTuple):
    """The processes with the imported modules, which end with this one."""

    servers: socket.socket  # takes jobs
    engines: str  # address that takes jobs


@functools.cache
def warm_parent() -> WarmParent:
    """Start both processes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_JOB_BYTES)
    start_parent(theirs)
    address = f"\0speclsp-warm-engines-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(32)
        start_parent(listener, *IS_ENGINE)
    return WarmParent(ours, address)


def start_parent(jobs: socket.socket, *words: str) -> None:
    """Start this file as a process that takes jobs from a socket, which is closed here."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    subprocess.Popen(
        [sys.executable, __file__, str(jobs.fileno()), str(os.getpid()), *words],
        pass_fds=[jobs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": PYTHON_PATH},
    )
    jobs.close()


def fork(job: bytes, streams: list[int]) -> int:
    """Start a fork that does the job on these streams; returns its pid."""
    with ONE_AT_A_TIME:
        servers = warm_parent().servers
        adopt_orphans(True)
        try:
            socket.send_fds(servers, [job], streams)
            return int(servers.recv(100))
        finally:
            adopt_orphans(False)


def adopt_orphans(wanted: bool) -> None:
    """Become the parent of descendants whose parent ends, or no longer."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def serve_jobs(connection: socket.socket) -> None:
    """Run each job in a fork of a fork that has ended, so that the process at the other end adopts it."""
    while True:
        job, streams, _, _ = socket.recv_fds(connection, MAX_JOB_BYTES, 3)
        if not job:
            return
        reading, writing = os.pipe()
        middle = os.fork()
        if not middle:
            middle = os.getpid()
            child = os.fork()
            if child:
                os.write(writing, str(child).encode())
                os._exit(0)
            while os.getppid() == middle:  # a server that sees its parent change would end
                time.sleep(0.001)
            for handle in (reading, writing, connection.detach()):
                os.close(handle)
            sys.exit(serve(json.loads(job), streams))
        os.waitpid(middle, 0)  # from now on the fork has its new parent
        connection.send(os.read(reading, 100))
        for handle in (reading, writing, *streams):
            os.close(handle)


def serve(job: dict[str, Any], streams: list[int]) -> int:
    """Run a server, whose engines are forks too; returns its exit code."""
    from speclsp.daemon import launch

    launch.run_starter = functools.partial(run_starter, job["engines"])
    return run(job, streams)


def run(job: dict[str, Any], streams: list[int]) -> int:
    """Do a job with these standard streams; returns its exit code."""
    from speclsp.cli import entry

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    tempfile.tempdir = None  # of the environment again
    words = job["words"]
    if words[0] == "-m":
        sys.argv = words[1:]
        return entry.main(words[2:])
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    return 0


# ── engines ──────────────────────────────────────────────────────────────────────────────────────────────────


def run_starter(engines: str, flags: Sequence[str], lock: int, nowhere: Path) -> subprocess.CompletedProcess[bytes]:
    """`launch.run_starter` with a fork instead of a new interpreter."""
    from speclsp.daemon import launch

    words = ["-m", "speclsp", "engine", "start", *flags]
    job = {"words": words, "environment": launch.environment(nowhere), "folder": str(nowhere)}
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stderr, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(launch.START_WAIT_S)
        try:
            connection.connect(engines)
            socket.send_fds(connection, [json.dumps(job).encode()], [writing, lock])
            code = int(connection.recv(100))
        except TimeoutError as error:
            raise subprocess.TimeoutExpired(words, launch.START_WAIT_S) from error
        finally:
            os.close(writing)
        return subprocess.CompletedProcess(words, code, stderr=stderr.read())


def start_engines(listener: socket.socket, parent: int) -> None:
    """Run each job in a fork of a fork that has ended, and send its exit code, while the process `parent` lives."""
    listener.settimeout(PARENT_POLL_S)
    while os.getppid() == parent:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        middle = os.fork()
        if not middle:
            if os.fork():
                os._exit(0)
            listener.close()
            job, handles, _, _ = socket.recv_fds(connection, MAX_JOB_BYTES, 2)
            starter = os.fork()
            if not starter:
                connection.close()
                os._exit(start_engine(json.loads(job), *handles))
            for handle in handles:
                os.close(handle)
            _, status = os.waitpid(starter, 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        os.waitpid(middle, 0)
        connection.close()


def start_engine(job: dict[str, Any], stderr: int, lock: int) -> int:
    """Run `speclsp engine start` with this stderr and the lock."""
    job["words"][4:4] = ["--lock-fd", str(lock)]
    null = os.open(os.devnull, os.O_RDWR)
    code = run(job, [null, os.dup(null), stderr])
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.path.pop(0)
    jobs, parent, is_engine = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), len(sys.argv) > 3
    for name in ENGINE_MODULES if is_engine else SERVER_MODULES:
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork copies no page of them
    if is_engine:
        start_engines(jobs, parent)
    else:
        serve_jobs(jobs)
