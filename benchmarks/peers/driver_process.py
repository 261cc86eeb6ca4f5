"""One peer of `peers` as a process: its driver in its own environment, which answers one request at a time.

Only the process with the current request runs: all others are stopped (SIGSTOP), with their children, so that neither a
spinning thread pool nor a housekeeping timer of one peer takes time from another.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from speclsp import config
from speclsp.errors import SpeclspError

DRIVERS = Path(__file__).parent / "drivers"
LOAD_S, ANSWER_S, END_S = 900.0, 300.0, 5.0  # vLLM compiles for minutes the first time


class PeerError(SpeclspError):
    """A peer is not installed, exited, or did not answer; the message has the cause and its last output."""


def peers_dir() -> Path:
    """Folder of the installed peers: $SPECLSP_PEERS_DIR, or the user's cache."""
    folder = os.environ.get("SPECLSP_PEERS_DIR", "")
    return Path(folder).absolute() if folder else config.cache_dir() / "peers"


def peer_dir(name: str) -> Path:
    """One peer's environment, model files and logs."""
    return peers_dir() / name


def python_of(name: str) -> Path:
    """The interpreter that runs the peer's driver: ours for speclsp."""
    return Path(sys.executable) if name == "speclsp" else peer_dir(name) / "venv" / "bin" / "python"


class PeerProcess:
    """A loaded driver. Close it, or use it in a `with`, so that it and its children end."""

    def __init__(self, peer: str, driver: Path, job: Mapping[str, Any], python: Path, log: Path) -> None:
        """Start it and wait until it has loaded.

        Raises:
            PeerError: it cannot be started, or says why it cannot load.
        """
        self.peer, self.log = peer, log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors:
            try:
                self.process = subprocess.Popen(
                    [str(python), str(driver), json.dumps(job)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,  # so that its children can be stopped and ended with it
                    text=True,
                )
            except OSError as error:
                raise PeerError(f"{peer} cannot be started: {error.strerror}.") from None
        try:
            ready = self._read(LOAD_S)
        except PeerError:
            self.close()
            raise
        self.load_s: float = ready["load_s"]
        self.versions: dict[str, str] = ready["versions"]
        self._signal(signal.SIGSTOP)

    def ask(self, ids: Sequence[int], max_tokens: int, mode: str, cold: bool) -> dict[str, Any]:
        """{"total_ms", "first_ms", "tokens"}; it runs only meanwhile.

        Raises:
            PeerError: it ended, took too long, or failed.
        """
        self._signal(signal.SIGCONT)
        request = {"ids": list(ids), "max_tokens": max_tokens, "mode": mode, "cold": cold}
        try:
            stdin = self._pipe(self.process.stdin)
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        except OSError:
            raise PeerError(self._ended()) from None
        answer = self._read(ANSWER_S)
        self._signal(signal.SIGSTOP)
        return answer

    def memory_mib(self) -> int:
        """Memory of the process and its children now, mapped files included."""
        try:
            mine = psutil.Process(self.process.pid)
            return sum(process.memory_info().rss >> 20 for process in (mine, *mine.children(recursive=True)))
        except psutil.NoSuchProcess:
            return 0

    def close(self) -> None:
        """End it: by the end of its input, then by force; its children too."""
        self._signal(signal.SIGCONT)
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                self._pipe(pipe).close()
            except OSError:
                continue
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, within_s: float) -> dict[str, Any]:
        stdout = self._pipe(self.process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(within_s):
                raise PeerError(f"{self.peer} did not answer within {within_s:.0f} s; its log is {self.log}.")
        line = stdout.readline()
        if not line:
            raise PeerError(self._ended())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.peer} failed: {answer['error']} (its log is {self.log}).")
        return answer

    def _ended(self) -> str:
        return f"{self.peer} ended with {self.process.wait()}; its log is {self.log}."

    def _signal(self, what: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, what)
        except ProcessLookupError:
            return

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe
