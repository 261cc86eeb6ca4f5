"""Scheduler of the GPU benchmark's parts: time budgets, isolation of failures, and one result file that grows.

    supervisor (no torch)  ──► worker process ──► part ─► part ─► ...     each row is written to the result file at once
         └── kills a worker that exceeds a part's time, and starts another one for the parts that are left

A worker ends after a part that failed: an error on the device spoils every later call of its process. So a failure, a
hang or a crash costs one part. A second run with other parts adds them to the file and keeps the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import results_file

DONE, FAILED, STOPPED, NOT_RUN, RUNNING = "done", "failed", "stopped", "not run", "running"
MIN_S = 3.0  # a part with less time than this is not started
GRACE_S = 5.0  # beyond a part's budget, before its worker is killed
POLL_S = 0.1

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmark. `module`: below benchmarks.speed.gpu, with a function `run(Bench, Record)`."""

    name: str
    module: str
    budget_s: float
    about: str


@dataclass(slots=True)
class Record:
    """The figures of a running part. Each `put` writes the file; `time_left_s` is checked between rows."""

    file: Path
    part: Part
    until_s: float  # of time.monotonic
    figures: Figures = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def put(self, *path: str, value: Any) -> None:
        """Store a value under nested keys."""
        into = self.figures
        for key in path[:-1]:
            into = into.setdefault(key, {})
        into[path[-1]] = value
        update(self.file, self.part.name, figures=self.figures)
        print(f"  {self.part.name}: {' '.join(path)}: {json.dumps(value)}"[:240], flush=True)

    def time_left_s(self) -> float:
        return self.until_s - time.monotonic()

    def skip(self, row: str, why: str) -> None:
        """Name a row that was not measured."""
        self.skipped.append(f"{row}: {why}")
        update(self.file, self.part.name, skipped=self.skipped)

    def has_time(self, row: str, need_s: float = 1.0) -> bool:
        """True if the part has `need_s` left; else the row is listed as not measured."""
        left_s = self.time_left_s()
        if left_s >= need_s:
            return True
        self.skip(row, f"it needs about {need_s:.0f} s, and its part had {max(0.0, left_s):.0f} s left")
        return False


# ── the result file ──────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time reads and replaces the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with (file.parent / f".{file.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(file: Path) -> Figures:
    """The result file; {} if there is none, or one of another format."""
    data: Figures = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return data if "parts" in data else {}


def update(file: Path, part: str, **changes: Any) -> None:
    """Change the entry of a part, and keep everything else in the file."""
    with locked(file):
        data = read(file)
        data.setdefault("parts", {}).setdefault(part, {}).update(changes)
        replace(file, data)


def describe(file: Path, about: Mapping[str, Any]) -> None:
    """Write the fields of the whole file: the device, the machine, the versions."""
    with locked(file):
        data = read(file)
        replace(file, {**about, "parts": data.get("parts", {})})


def replace(file: Path, data: Figures) -> None:
    new = file.with_suffix(".new")
    new.write_text(results_file.as_text(data), encoding="utf-8")
    new.replace(file)


def begin(file: Path, part: Part, budget_s: float) -> float:
    """Start a part: its old figures are dropped. Returns its end, of time.monotonic."""
    until_s = time.monotonic() + budget_s
    with locked(file):
        data = read(file)
        data.setdefault("parts", {})[part.name] = {
            "status": RUNNING, "budget_s": round(budget_s, 1), "until_s": until_s, "figures": {},
        }  # fmt: skip
        replace(file, data)
    return until_s


def finish(file: Path, part: str, status: str, why: str, wall_s: float) -> None:
    """Close the entry of a part; its figures stay."""
    with locked(file):
        data = read(file)
        entry = data.setdefault("parts", {}).setdefault(part, {})
        entry.pop("until_s", None)
        entry.update(status=status, wall_s=round(wall_s, 1), **({"why": why} if why else {}))
        replace(file, data)


# ── the worker ───────────────────────────────────────────────────────────────────────────────────────────────


def work(
    file: Path, parts: Sequence[Part], run: Callable[[Part, Record], None], ends_s: float, share: float = 1.0
) -> bool:
    """Run parts in order, each with its budget or the time that is left. False after the first that failed.

    Args:
        ends_s: end of the whole run, of time.monotonic.
        share: factor of the budgets.
    """
    for part in parts:
        budget_s = min(part.budget_s * share, ends_s - time.monotonic())
        if budget_s < min(MIN_S, part.budget_s * share):
            finish(file, part.name, NOT_RUN, "the budget of the whole run was used up", 0.0)
            continue
        began_s = time.monotonic()
        record = Record(file, part, begin(file, part, budget_s))
        print(f"{part.name}: {part.about}, at most {budget_s:.0f} s", flush=True)
        status, why = DONE, ""
        try:
            run(part, record)
        except NotMeasurable as reason:
            status, why = NOT_RUN, str(reason)
        except Exception as error:  # a part that fails must not stop the others
            traceback.print_exc()
            status, why = FAILED, f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]
        finish(file, part.name, status, why, time.monotonic() - began_s)
        if status == FAILED:
            return False
    return True


class NotMeasurable(Exception):
    """A part that cannot run on this machine; str() says why."""


# ── the supervisor ───────────────────────────────────────────────────────────────────────────────────────────


def supervise(
    file: Path, parts: Sequence[Part], command: Callable[[Sequence[str], float], list[str]], budget_s: float
) -> None:
    """Run `parts` in workers until each is closed.

    Args:
        command: the worker's command line, for names of parts and the end of the run (of time.monotonic).
    """
    ends_s = time.monotonic() + budget_s
    left = [part.name for part in parts]
    clear(file, left)
    while left:
        worker = subprocess.Popen(command(left, ends_s), start_new_session=True)
        try:
            killed = wait(worker, file, left, ends_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)  # and the tests that it may have started
            worker.wait()
        left = close(file, left, worker.returncode, killed)


def clear(file: Path, names: Sequence[str]) -> None:
    """Drop the entries of parts that will run again."""
    with locked(file):
        data = read(file)
        data["parts"] = {name: entry for name, entry in data.get("parts", {}).items() if name not in names}
        replace(file, data)


def wait(worker: subprocess.Popen[bytes], file: Path, names: Sequence[str], ends_s: float) -> bool:
    """Wait for a worker. False, or True if a part took longer than its time."""
    while worker.poll() is None:
        entries = read(file).get("parts", {})
        until_s = min((entries[name]["until_s"] for name in names if "until_s" in entries.get(name, {})), default=None)
        if time.monotonic() > (until_s or ends_s) + GRACE_S:
            return True
        time.sleep(POLL_S)
    return False


def close(file: Path, names: Sequence[str], code: int, killed: bool) -> list[str]:
    """Close the part in which a worker ended; the parts that are left."""
    entries = read(file).get("parts", {})
    for name in names:
        if "until_s" in (entry := entries.get(name, {})):
            why = "it exceeded its time" if killed else f"its process ended with code {code}"
            wall_s = entry["budget_s"] + time.monotonic() - entry["until_s"]
            finish(file, name, STOPPED if killed else FAILED, why, wall_s)
            entries[name]["status"] = STOPPED
    left = [name for name in names if "status" not in entries.get(name, {})]
    if len(left) == len(names):  # a worker that starts no part would be started for ever
        for name in left:
            finish(file, name, FAILED, f"its process ended with code {code} before it began", 0.0)
        return []
    return left


def worker_command(arguments: Sequence[str]) -> list[str]:
    """A command line of this interpreter that runs `python -m benchmarks`."""
    return [sys.executable, "-m", "benchmarks", *arguments]
