"""A command in a process of its own that a test interrupts as Ctrl-C does."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

START = "from speclsp.cli import entry; print('up', flush=True); raise SystemExit(entry.main())"
# Windows handles Ctrl-C in a thread of the process. A process without a console gets it from nowhere else, so here this
# thread raises it as soon as there is a file at the path in the first argument.
AT_FILE = """
import os, signal, sys, threading, time
flag = sys.argv.pop(1)
def interrupt():
    while not os.path.exists(flag):
        time.sleep(0.05)
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
"""


class InterruptedCommand:
    """`speclsp WORDS...`, which answers for an interrupt as soon as this object is there. `flag`: no file yet."""

    def __init__(self, words: list[str], flag: Path) -> None:
        self.flag = flag
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if sys.platform == "win32":
            command = [sys.executable, "-c", AT_FILE + START, str(flag), *words]
            self.process = subprocess.Popen(command, **pipes, text=True)
        else:
            listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background job, as CI's, may ignore it
            command = [sys.executable, "-c", START, *words]
            self.process = subprocess.Popen(command, **pipes, text=True, preexec_fn=listens)
        assert self.process.stdout.readline() == "up\n"

    def interrupt(self, timeout_s: float) -> tuple[int, str, str]:
        """Press Ctrl-C; the exit code and the rest of stdout and stderr. Kills what does not end in time."""
        if sys.platform == "win32":
            self.flag.touch()
        else:
            self.process.send_signal(signal.SIGINT)
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except BaseException:
            self.process.kill()
            raise
        return self.process.returncode, out, err
