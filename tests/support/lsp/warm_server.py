"""Servers that start without the second of imports: forks of a process that has imported the language server's modules.

    WarmServer([sys.executable, "-m", "speclsp", "lsp", "--model", "echo"], environment, stderr)

A fork has its own memory, streams, environment and exit, as a server that an editor starts. This process adopts it
(PR_SET_CHILD_SUBREAPER), so it waits for it as for a child. Tests of the start itself run `python -m speclsp`.
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
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL_S = 0.005
MAX_JOB_BYTES = 1 << 20
ONE_AT_A_TIME = threading.Lock()
MODULES = (  # a server imports them until its first answer
    *("speclsp.cli.entry", "speclsp.lsp.server.app", "speclsp.lsp.server.model_list", "speclsp.lsp.backend.own_engine"),
    *("speclsp.lsp.completion.session", "speclsp.lsp.completion.pipeline", "speclsp.lsp.server.index_supervisor"),
    *("speclsp.lsp.next_edit.model_producer", "speclsp.lsp.next_edit.offers", "speclsp.daemon.endpoint"),
    *("speclsp.lsp.backend.remote.backend_choice", "speclsp.lsp.backend.engine_http", "speclsp.cli.models"),
    *("speclsp.cli.models.model_commands", "httpx", "anyio", "speclsp.lsp.backend.engine_client"),
)


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


@functools.cache
def warm_parent() -> socket.socket:
    """A connection to the process with the imported modules. That process ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_JOB_BYTES)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": PYTHON_PATH},
    )
    theirs.close()
    return ours


def fork(job: bytes, streams: list[int]) -> int:
    """Start a fork that does the job on these streams; returns its pid."""
    with ONE_AT_A_TIME:
        parent = warm_parent()
        adopt_orphans(True)
        try:
            socket.send_fds(parent, [job], streams)
            return int(parent.recv(100))
        finally:
            adopt_orphans(False)


def adopt_orphans(wanted: bool) -> None:
    """Become the parent of descendants whose parent ends, or no longer."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def serve_jobs(connection: socket.socket) -> None:
    """Run each job in a fork of a fork that has ended, so that the process at the other end adopts it."""
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork copies no page of them
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
            sys.exit(run(json.loads(job), streams))
        os.waitpid(middle, 0)  # from now on the fork has its new parent
        connection.send(os.read(reading, 100))
        for handle in (reading, writing, *streams):
            os.close(handle)


def run(job: dict[str, object], streams: list[int]) -> int:
    """Do a job with these standard streams; returns its exit code."""
    from speclsp.cli import entry

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(job["environment"])  # type: ignore[call-overload]
    os.chdir(str(job["folder"]))
    tempfile.tempdir = None  # of the environment again
    words = list(job["words"])  # type: ignore[call-overload]
    if words[0] == "-m":
        sys.argv = words[1:]
        return entry.main(words[2:])
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.path.pop(0)
    serve_jobs(socket.socket(fileno=int(sys.argv[1])))
