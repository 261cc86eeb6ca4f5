"""Private engine: a child process, tied to this one by a pipe on its stdin: however this one ends, the engine ends.

Nothing is ever written to that pipe. It closes when this process is gone, and the engine stops at end-of-file. Windows
kills it then too (a job object). The engine's output goes line by line to our log, which has a size limit. It never
reaches our stdout, which carries the protocol. Two small threads read the output and wait for the exit, so that ending
the engine needs no event loop.
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
from collections.abc import Callable, Mapping
from typing import Any

from speclsp.config import Config
from speclsp.daemon import endpoint, platform
from speclsp.daemon.launch import engine_flags, environment, exit_cause
from speclsp.errors import MAX_MESSAGE, EngineError, SpeclspError, shortened
from speclsp.lsp.backend.engine_client import BACKOFF_S, HANGS, EngineClient, EngineHung
from speclsp.lsp.backend.engine_http import ConnectionLost, EngineHttp, http_to
from speclsp.lsp.backend.types import OnStatus, in_daemon_thread
from speclsp.private_files.os_errors import message, sentence

TERMINATE_S = 1.0  # for the engine to end after SIGTERM; an editor kills us 2 s after `shutdown`
FIRST_ERROR_STATUS = 0xC0000000  # from here, an exit code of Windows is the fault that ended the process
DEVICE_HUNG_EXIT_CODE = 75  # the engine's device, or a round on it, hangs: a new process may do better
LAST_OUTPUT_S = 0.5  # after its exit, to read the rest of its output: a grandchild may hold the pipe open
MAX_LINE_BYTES = 4096
_numbers = itertools.count(1)  # of the engines that this process started


class EngineProcess:
    """One engine process and the socket it listens on, or the file that names its port (port_file.py)."""

    def __init__(self, config: Config, log: Callable[[str], None]) -> None:
        """Start `speclsp engine`; `log` receives its output, from a thread. Raises SpeclspError."""
        self.socket = endpoint.socket_path(f"lsp-{os.getpid()}-{next(_numbers)}.sock")
        self._lines: deque[str] = deque(maxlen=20)
        command = [sys.executable, "-m", "speclsp", "engine", "--socket", str(self.socket)]
        command += ["--watch-parent", str(os.getpid()), *engine_flags(config)]
        child_stdin, self._stdin_end = os.pipe()  # the write end of its stdin pipe; -1 when closed
        try:
            self._process = subprocess.Popen(
                command,
                stdin=child_stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.socket.parent,  # -m searches the working directory for modules: never the user's project
                env=environment(self.socket.parent),
                start_new_session=True,  # Ctrl-C in a terminal is meant for the editor
                **platform.child_options(),
            )
        except OSError as error:
            os.close(self._stdin_end)
            raise EngineError(f"cannot start the engine: {sentence(error, sys.executable, 'be run')}") from error
        finally:
            os.close(child_stdin)
        self.pid = self._process.pid
        platform.end_with_this_process(self.pid)
        self._reader = threading.Thread(target=self._read_output, args=(log,), name="engine-output", daemon=True)
        self._reader.start()

    async def ended(self) -> int:
        """Wait for the process to end by itself; its exit code, or minus the signal that ended it."""

        def wait() -> int:
            code = self._process.wait()
            if code > 0:  # its last line may state the reason
                self._reader.join(LAST_OUTPUT_S)
            return code

        code = await in_daemon_thread(wait, "engine-wait")
        self._clean_up()
        return code

    @property
    def last_output(self) -> str:
        """The last line it printed, "" if none; when it exited with a SpeclspError, the error's sentence."""
        return self._lines[-1].removeprefix("speclsp").removeprefix(" engine").lstrip(": ") if self._lines else ""

    def http(self) -> EngineHttp | None:
        """HTTP to it; None while it does not listen. Raises SpeclspError."""
        engine = endpoint.at(self.socket)
        return None if engine is None else http_to(engine)

    def end(self) -> None:
        """Close its stdin, terminate, then kill. Returns when the process is gone, TERMINATE_S later at most."""
        self._close_stdin()
        if sys.platform != "win32":  # there it would kill
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


class PrivateEngine(EngineClient):
    """An engine that serves this editor alone, as a child process."""

    shared = False

    def __init__(self, config: Config, on_status: OnStatus, client: str, log: Callable[[str], None]) -> None:
        super().__init__(config, on_status, client)
        self._log = log
        self.child: EngineProcess | None = None
        self._was_ready = False  # this child was ready once
        self._hung = False  # this child was killed because it hung

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        child, self.child = self.child, None
        if child is not None:
            child.end()

    async def _live(self) -> None:
        """Start the engine, and restart it when it crashes, unless it cannot start or crashes in a loop."""
        self._set_status("starting", "starting the engine")
        while True:
            try:
                cause = await self._run_once()
            except (SpeclspError, OSError) as error:
                await asyncio.to_thread(self.end)
                self._set_status("error", message(error))
                return
            if too_often := self._count_crash(cause):
                self._set_status("error", too_often)
                return
            self._set_status("starting", f"the engine ended ({cause}); starting it again")
            await asyncio.sleep(BACKOFF_S[len(self._crash_times_s) - 1])

    async def _run_once(self) -> str:
        """One engine process from start to end; the cause of its end. Raises EngineError: a restart would not help."""
        self.child = child = EngineProcess(self._config, self._log)
        self._was_ready = self._hung = False
        ended, attending = asyncio.create_task(child.ended()), asyncio.create_task(self._attend(child))
        ended.add_done_callback(lambda task: None if task.cancelled() else self._report_gone())
        try:
            await asyncio.wait([ended, attending], return_when=asyncio.FIRST_COMPLETED)
            if attending.done():
                attending.result()
            code, self.child = await ended, None
        finally:
            ended.cancel()
            attending.cancel()
            await asyncio.wait([attending])
        its_own = 0 < code < FIRST_ERROR_STATUS and code != DEVICE_HUNG_EXIT_CODE
        if its_own and not self._was_ready:  # a restart would print the same error
            raise EngineError(
                child.last_output or f"the engine ended with {exit_cause(code)}; its output is in the log."
            )
        if self._hung:
            return HANGS
        return exit_cause(code)

    async def _attend(self, child: EngineProcess) -> None:
        """Hold a lease as soon as the child listens, and again if the connection breaks, until it hangs.

        Raises EngineError.
        """
        pause_s, socket = 0.01, str(child.socket)  # it listens after half a second
        while True:
            try:
                http = child.http()
                if http is not None:
                    await self._hold_lease(http, socket, child.pid)
            except ConnectionLost:
                pass
            except EngineHung:
                self._hung = True
                child.kill()
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.05, 0.25)

    def _state_received(self, event: Mapping[str, Any], address: str) -> None:
        super()._state_received(event, address)
        self._was_ready = self._was_ready or self.status.state == "ready"
