"""Sandbox for programs that a model wrote: a process with limits, without network and without writable files.

    program ─► unshare (network, mounts, processes) ─► sandboxed_program.py: limits, audit hook ─► Outcome

Two modes. NAMESPACES: the kernel gives the process an empty network, a process table of its own and read-only mounts.
HOOKS, where namespaces are not allowed: an audit hook of Python denies sockets, files and processes. Both modes limit
processor time, memory and processes. `Sandbox.choose` probes the modes and names the one that works. HOOKS stops
accidents, not an attacker: a program written to escape from Python could pass it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speclsp.errors import SpeclspError

NAMESPACES, HOOKS = "namespaces", "hooks"
PASSED, FAILED, TIMED_OUT = "passed", "failed", "timed out"
CHILD = Path(__file__).with_name("sandboxed_program.py")
OUT_OF_TIME = 124  # exit status of the child at its processor-time limit
PROBE = "import collections, hashlib, math, re, typing"  # the interpreter must still find its library


class SandboxError(SpeclspError):
    """No mode of the sandbox works on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one program. Processor time decides, so a busy machine fails no program that is only slow."""

    cpu_s: int = 10
    wall_s: float = 60.0  # a program that sleeps uses no processor time
    memory_bytes: int = 1 << 30  # address space


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs programs in one mode."""

    mode: str
    limits: Limits = Limits()
    child: Path = CHILD  # the program that denies system calls and runs the code

    @classmethod
    def choose(cls, limits: Limits | None = None) -> Sandbox:
        """The strongest mode that runs a probe. Raises SandboxError."""
        for mode in (NAMESPACES, HOOKS):
            sandbox = cls(mode, limits or Limits())
            if (mode == HOOKS or shutil.which("unshare")) and sandbox.run(PROBE) == PASSED:
                return sandbox
        raise SandboxError(
            "no sandbox works here: neither `unshare` nor resource limits can run a program of one line. "
            "Run the benchmark on Linux, or pass --no-tests to score exact matches only."
        )

    def run(self, program: str) -> str:
        """PASSED if the program reaches its end, FAILED, or TIMED_OUT."""
        token = secrets.token_hex(16)
        job = json.dumps({"program": program, "token": token})
        with tempfile.TemporaryDirectory(prefix="speclsp-sandbox-") as folder:
            process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={"PATH": os.defpath} | ({"SANDBOX_MAPPED": "1"} if os.getuid() != 0 else {}),
                start_new_session=True,
                encoding="utf-8",
                errors="surrogatepass",
            )
            try:
                output, _ = process.communicate(job, timeout=self.limits.wall_s)
            except subprocess.TimeoutExpired:
                return TIMED_OUT
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if output == token:
            return PASSED
        return TIMED_OUT if process.returncode == OUT_OF_TIME else FAILED

    def _command(self) -> list[str]:
        """The child's command line; `-I -S -B`: no settings, no packages, no compiled files of the user."""
        python = [os.path.realpath(sys.executable), "-I", "-S", "-B", str(self.child), self.mode]
        child = [*python, str(self.limits.cpu_s), str(self.limits.memory_bytes)]
        if self.mode == HOOKS:
            return child
        user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", *child]
