"""Runs `speclsp` many times without the second of imports: each stdin line is a job that runs in a fork.

A job may name a directory and ask to be killed at its nth disk step below it: a file opened for writing, renamed or
removed, a directory created or removed. So tests cover a kill -9 at every step in turn.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.hf_api  # noqa: F401
import tomlkit  # noqa: F401

import speclsp.cli.complete
import speclsp.weights.store  # noqa: F401
from speclsp.cli import entry

STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree", "os.link", "os.chmod"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def watch(below: str, at: int, count: Path) -> None:
    """Kills this process at step `at`; otherwise records the number of steps."""
    steps = 0

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal steps
        if event not in STEPS and not (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
            return
        if not str(arguments[0]).startswith(below):
            return
        steps += 1
        if steps == at:
            os.kill(os.getpid(), signal.SIGKILL)
        os.pwrite(counting, b"%8d" % steps, 0)

    counting = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    sys.addaudithook(step)


def child(job: dict[str, Any]) -> int:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    if job["below"]:
        watch(job["below"], job["at"], Path(job["count"]))
    if job["program"]:
        exec(compile(job["program"], "<job>", "exec"), {})
        return 0
    code = entry.main(job["words"])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = child(json.loads(line))
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)
    print(json.dumps(pid), flush=True)
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), flush=True)
