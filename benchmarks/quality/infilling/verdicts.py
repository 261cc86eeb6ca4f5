"""Verdicts of the sandbox, kept on disk: a program runs once, so a stopped run continues where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.quality.infilling import scoring
from benchmarks.quality.infilling.sandbox import PASSED, Sandbox, SandboxError
from benchmarks.quality.infilling.tasks import Task


class Verdicts:
    """Outcome of each program, by the SHA-256 of its text and of the limits; one JSON line each."""

    def __init__(self, file: Path, sandbox: Sandbox) -> None:
        self.file, self.sandbox = file, sandbox
        self.known: dict[str, str] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                if line.endswith("}"):  # a line that was cut off by a stopped run is ignored
                    self.known |= json.loads(line)

    def of(self, program: str) -> str:
        """PASSED, FAILED or TIMED_OUT."""
        limits = json.dumps(asdict(self.sandbox.limits))
        key = hashlib.sha256(f"{self.sandbox.mode}{limits}{program}".encode()).hexdigest()[:32]
        if key not in self.known:
            self.known[key] = self.sandbox.run(program)
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps({key: self.known[key]}) + "\n")
        return self.known[key]

    def passed(self, programs: Sequence[str], progress: Callable[[int], None]) -> list[bool]:
        """True for each program that passes its tests; an empty program does not."""
        results = []
        for number, program in enumerate(programs):
            progress(number)
            results.append(bool(program) and self.of(program) == PASSED)
        return results

    def check_references(self, tasks: Sequence[Task], progress: Callable[[int], None]) -> None:
        """Run each problem's canonical solution, which must pass. Raises SandboxError."""
        first_of = {task.problem: task for task in reversed(tasks)}
        for number, task in enumerate(first_of.values()):
            progress(number)
            document = task.prompt + task.canonical_solution + task.suffix
            if (verdict := self.of(scoring.program(task, document))) != PASSED:
                raise SandboxError(
                    f"the canonical solution of {task.task_id} ended as {verdict!r} in the sandbox "
                    f"({self.sandbox.mode}): its limits are too tight for this machine, so pass@1 would be wrong."
                )
