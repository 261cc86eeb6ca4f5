"""The engine as a child process, tied to this one by a pipe on its stdin: however this process ends, the engine ends.

Nothing is ever written to that pipe. It closes when this process is gone, and the engine stops at end-of-file. The
engine's output goes line by line to our log, which has a size limit. It never reaches our stdout, which carries the
protocol. Two small threads read the output and wait for the exit, so that ending the engine needs no event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from speclsp.config import Config
from speclsp.daemon import endpoint
from speclsp.daemon.launch import engine_flags, environment, rooted
from speclsp.errors import MAX_MESSAGE, EngineError, shortened

TERMINATE_S = 1.0  # for the engine to end after SIGTERM; an editor kills us 2 s after `shutdown`
LAST_OUTPUT_S = 0.5  # after its exit, to read the rest of its output: a grandchild may hold the pipe open
MAX_LINE_BYTES = 4096
_numbers = itertools.count(1)  # of the engines that this process started


class EngineProcess:
    """One engine process and the socket it listens on."""

    def __init__(self, process: subprocess.Popen[bytes], socket: Path, stdin_end: int) -> None:
        self.pid = process.pid
        self.socket = socket
        self._process = process
        self._stdin_end = stdin_end  # the write end of its stdin pipe; -1 when closed
        self._lines: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=lambda: None)

    @classmethod
    def start(cls, config: Config, log: Callable[[str], None]) -> EngineProcess:
        """Start `speclsp engine`; `log` receives its output, from a thread. Raises SpeclspError."""
        socket = endpoint.socket_path(f"lsp-{os.getpid()}-{next(_numbers)}.sock")
        config = rooted(config)
        command = [sys.executable, "-m", "speclsp", "engine", "--socket", str(socket)]
        command += ["--watch-parent", str(os.getpid()), *engine_flags(config)]
        child_stdin, stdin_end = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                stdin=child_stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=socket.parent,  # -m searches the working directory for modules: never the user's project
                env=environment(socket.parent),
                start_new_session=True,  # Ctrl-C in a terminal is meant for the editor
            )
        except OSError as error:
            os.close(stdin_end)
            raise EngineError(f"cannot start the engine ({sys.executable}): {error.strerror}.") from error
        finally:
            os.close(child_stdin)
        child = cls(process, socket, stdin_end)
        child._reader = threading.Thread(target=child._read_output, args=(log,), name="engine-output", daemon=True)
        child._reader.start()
        return child

    async def ended(self) -> int:
        """Wait for the process to end by itself; its exit code, or minus the signal that ended it."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[int] = loop.create_future()

        def set_result(code: int) -> None:
            if not result.done():
                result.set_result(code)

        def wait() -> None:
            code = self._process.wait()
            if code > 0:  # its last line may state the reason
                self._reader.join(LAST_OUTPUT_S)
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(set_result, code)

        threading.Thread(target=wait, name="engine-wait", daemon=True).start()
        code = await result
        self._clean_up()
        return code

    @property
    def last_output(self) -> str:
        """The last line it printed, "" if none; when it exited with a SpeclspError, the error's sentence."""
        return self._lines[-1].removeprefix("speclsp").removeprefix(" engine").lstrip(": ") if self._lines else ""

    def end(self) -> None:
        """Close its stdin, terminate, then kill. Returns when the process is gone, TERMINATE_S later at most."""
        self._close_stdin()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(TERMINATE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._clean_up()

    def kill(self) -> None:
        """Kill it at once: it does not answer. `ended` completes when it is gone."""
        self._process.kill()

    def _read_output(self, log: Callable[[str], None]) -> None:
        """Pass on the engine's output, in lines of a bounded length."""
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while line := stream.readline(MAX_LINE_BYTES):
                text = line.decode("utf-8", "replace").strip()
                if text:
                    self._lines.append(shortened(text, MAX_MESSAGE))
                    log(text)

    def _close_stdin(self) -> None:
        stdin_end, self._stdin_end = self._stdin_end, -1
        if stdin_end >= 0:
            os.close(stdin_end)

    def _clean_up(self) -> None:
        self._close_stdin()
        with contextlib.suppress(OSError):
            self.socket.unlink(missing_ok=True)
        endpoint.remove_socket_directory(self.socket.parent)
