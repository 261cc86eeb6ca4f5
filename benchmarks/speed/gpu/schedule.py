"""Parts of the GPU benchmark: each in a process of its own, with a time budget, and one result file that grows.

    run_parts (no torch) ──► a worker process for each part     each row is written to the result file at once

An error on the device spoils every later call of its process, so no two parts share one: a failure, a hang or a crash
costs one part. A second run with other parts adds them to the file and keeps the rest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import results_file

DONE, FAILED, STOPPED, NOT_RUN = "done", "failed", "stopped", "not run"
MIN_S = 3.0  # a part with less time than this is not started
START_S = 15.0  # beyond a part's budget, before its worker is killed: imports, and the row in progress

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


class NotMeasurable(Exception):
    """A part that cannot run on this machine; str() says why."""


# ── the result file, which one process at a time writes ──────────────────────────────────────────────────────


def read(file: Path) -> Figures:
    """The result file; {} if there is none, or one of another format."""
    data: Figures = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return data if "parts" in data else {}


def update(file: Path, part: str, **changes: Any) -> None:
    """Change the entry of a part, and keep everything else in the file."""
    data = read(file)
    data.setdefault("parts", {}).setdefault(part, {}).update(changes)
    replace(file, data)


def describe(file: Path, about: Mapping[str, Any]) -> None:
    """Write the fields of the whole file: the device, the machine, the versions."""
    replace(file, {**about, "parts": read(file).get("parts", {})})


def replace(file: Path, data: Figures) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(results_file.as_text(data), encoding="utf-8")
    new.replace(file)


# ── the worker, and the process that starts it ───────────────────────────────────────────────────────────────


def work(file: Path, part: Part, run: Callable[[Part, Record], None], budget_s: float) -> bool:
    """Run a part in this process and close its entry. False if it failed."""
    print(f"{part.name}: {part.about}, at most {budget_s:.0f} s", flush=True)
    status, why = DONE, ""
    try:
        run(part, Record(file, part, time.monotonic() + budget_s))
    except NotMeasurable as reason:
        status, why = NOT_RUN, str(reason)
    except Exception as error:  # the result names it
        traceback.print_exc()
        status, why = FAILED, f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]
    close(file, part, status, why)
    return status != FAILED


def close(file: Path, part: Part, status: str, why: str) -> None:
    """Close the entry of a part; its figures stay."""
    update(file, part.name, status=status, **({"why": why} if why else {}))


def run_parts(
    file: Path, parts: Sequence[Part], command: Callable[[Part, float], Sequence[str]], budget_s: float
) -> None:
    """Run parts in order, each in a worker with its budget or the time that is left. Their old entries are dropped.

    Args:
        command: the worker's command line, for a part and its budget in s.
    """
    ends_s = time.monotonic() + budget_s
    data, names = read(file), [part.name for part in parts]
    replace(file, {**data, "parts": {name: of for name, of in data.get("parts", {}).items() if name not in names}})
    for part in parts:
        part_s = min(part.budget_s, ends_s - time.monotonic())
        update(file, part.name, budget_s=round(part_s, 1), figures={})
        if part_s < min(MIN_S, part.budget_s):
            close(file, part, NOT_RUN, "the budget of the whole run was used up")
            continue
        began_s = time.monotonic()
        code = run_alone(command(part, part_s), part_s + START_S)
        if "status" not in read(file)["parts"][part.name]:
            why = "it exceeded its time" if code is None else f"its process ended with code {code}"
            close(file, part, STOPPED if code is None else FAILED, why)
        update(file, part.name, wall_s=round(time.monotonic() - began_s, 1))


def run_alone(command: Sequence[str], limit_s: float) -> int | None:
    """The exit code of a process in a session of its own; None if it was killed after `limit_s`."""
    worker = subprocess.Popen(command, start_new_session=True)
    try:
        return worker.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)  # and the tests that it may have started
        worker.wait()


def worker_command(arguments: Sequence[str]) -> list[str]:
    """A command line of this interpreter that runs `python -m benchmarks`."""
    return [sys.executable, "-m", "benchmarks", *arguments]
