"""The engine as a child process, leashed to us by its stdin: however this process ends, the engine ends as well.

The pipe on its stdin is never written to. When we are gone it closes, and an engine that reads end-of-file there stops.
What the engine prints goes line by line to our log, which has a size limit; it never reaches our stdout, where only the
protocol may be. Two small threads read and wait, so that ending it needs no event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from speclsp import config as settings
from speclsp.config import Config
from speclsp.daemon.launch import engine_flags, environment, rooted
from speclsp.errors import EngineError

GENTLE_END_S = 1.0  # for the engine to end by itself; an editor kills us 2 s after `shutdown`
LAST_WORDS_S = 0.5  # after its end, for the rest of its output: a grandchild may hold the pipe open
LONGEST_LINE_BYTES = 4096
_started = 0


class EngineProcess:
    """One engine process and the socket it listens on."""

    def __init__(self, process: subprocess.Popen[bytes], socket: Path, owned_dir: Path | None, leash: int) -> None:
        self.pid = process.pid
        self.socket = socket
        self._process = process
        self._owned_dir = owned_dir
        self._leash = leash  # the write end of its stdin; -1 when it is closed
        self._lines: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=lambda: None)

    @classmethod
    def start(cls, config: Config, log: Callable[[str], None]) -> EngineProcess:
        """Start `speclsp engine`; `log` gets its output, from a thread. Raises SpeclspError."""
        socket, owned_dir = socket_path()
        config = rooted(config)
        command = [sys.executable, "-m", "speclsp", "engine", "--socket", str(socket)]
        command += ["--watch-parent", str(os.getpid()), *engine_flags(config)]
        leashed, leash = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                stdin=leashed,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=socket.parent,  # -m looks for modules in the working directory: never in the user's project
                env=environment(socket.parent),
                start_new_session=True,  # an interrupt typed at a terminal is for the editor
            )
        except OSError as error:
            os.close(leash)
            raise EngineError(f"cannot start the engine ({sys.executable}): {error.strerror}.") from error
        finally:
            os.close(leashed)
        child = cls(process, socket, owned_dir, leash)
        child._reader = threading.Thread(target=child._read, args=(log,), name="engine-output", daemon=True)
        child._reader.start()
        return child

    async def ended(self) -> int:
        """Wait for the process to end by itself; its exit code, or minus the signal that ended it."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[int] = loop.create_future()

        def tell(code: int) -> None:
            if not result.done():
                result.set_result(code)

        def wait() -> None:
            code = self._process.wait()
            if code > 0:  # it may have said why
                self._reader.join(LAST_WORDS_S)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, code)

        threading.Thread(target=wait, name="engine-wait", daemon=True).start()
        code = await result
        self._clean_up()
        return code

    @property
    def last_words(self) -> str:
        """The last line it printed, "" if none: the sentence of a SpeclspError when it ended for a reason."""
        return self._lines[-1].removeprefix("speclsp").removeprefix(" engine").lstrip(": ") if self._lines else ""

    def end(self) -> None:
        """Close the leash, ask, then insist. Returns when the process is gone, soon after GENTLE_END_S at most."""
        self._let_go()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(GENTLE_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._clean_up()

    def kill(self) -> None:
        """End it at once: it does not answer. `ended` tells when it has."""
        self._process.kill()

    def _read(self, log: Callable[[str], None]) -> None:
        """Pass on what the engine prints, in lines of a bounded length."""
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while line := stream.readline(LONGEST_LINE_BYTES):
                text = line.decode("utf-8", "replace").strip()
                if text:
                    self._lines.append(text[:500])
                    log(text)

    def _let_go(self) -> None:
        leash, self._leash = self._leash, -1
        if leash >= 0:
            os.close(leash)

    def _clean_up(self) -> None:
        self._let_go()
        with contextlib.suppress(OSError):
            self.socket.unlink(missing_ok=True)
        if self._owned_dir is not None:
            shutil.rmtree(self._owned_dir, ignore_errors=True)


def socket_path() -> tuple[Path, Path | None]:
    """A fresh socket path in a directory only this user can enter; and the directory, when it was made just for it.

    A socket's path has room for about a hundred bytes. A longer runtime directory is replaced by one of our own
    under the system's temporary directory, made with mode 0700 and a name that cannot be guessed.
    """
    global _started
    _started += 1
    name = f"lsp-{os.getpid()}-{_started}.sock"
    path = settings.runtime_dir() / name
    if len(os.fsencode(path)) <= settings.SOCKET_PATH_BYTES:
        return path, None
    made = Path(tempfile.mkdtemp(prefix="speclsp-"))
    return made / name, made
