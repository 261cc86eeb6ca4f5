"""Next edits by a model against the edits that were really made: `python -m benchmarks next-edit --producer model`.

    states of next_edit.py ─► sample by digest ─► rules offer nothing? ─► ModelProducer, an engine process ─► row
    rows ─► thresholds ─► precision, quiet ─► the lowest threshold of the tuning packages that meets both aims
    --phrases: states where the rules offer a phrase ─► the model's edit at that place ─► does it agree?

The producer, prompts, windows and filters are the product's. Only the gate is open: a row has the probability of its
edit, and each threshold of the table is applied to the rows. States where the rules offer an edit are not sent, as in
the product. A row is written as soon as it is known, and a second run goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import statistics
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path, PurePosixPath
from time import perf_counter
from typing import Any

from benchmarks import model_options, results_file
from benchmarks.editor.edit_replay import release_edits
from benchmarks.editor.edit_replay.edit_counts import rate
from benchmarks.editor.edit_replay.release_edits import (
    MAX_QUIET,
    MAX_STATES,
    MORE,
    PARTS,
    files_of,
    is_held_out,
)
from benchmarks.editor.edit_replay.replayed_file import ReplayedFile, Rules, covering, writes
from benchmarks.quality import edits
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks import tasks as cursors
from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.errors import EngineError, InputError
from speclsp.lsp.backend.remote.backend_choice import connect_local
from speclsp.lsp.backend.types import Backend, FimRequest, StreamPiece
from speclsp.lsp.next_edit.model_producer import EditEngine, EditModel, ModelEdit, ModelProducer
from speclsp.lsp.next_edit.producer import Producer, Proposal
from speclsp.lsp.next_edit.substitutions import PHRASE
from speclsp.lsp.server.model_list import edit_model

STATE, QUIET, PHRASES = "state", "quiet", "phrase"
STATES, QUIETS = 400, 200  # of each part
MAX_A_FILE = {STATE: 4, QUIET: 2}
THRESHOLDS = (0.0, *(step / 20 for step in range(8, 20)), 0.97, 0.99)
MIN_PRECISION, MIN_QUIET, MIN_SHOWN = 0.7, 0.9, 10  # for a threshold to be used
DEADLINE_MS = 60_000  # a busy machine must not change an answer; the product's deadline is judged by `ms`

Row = Mapping[str, Any]
File = tuple[str, str, str, str]  # package, path, older text, newer text


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One state of a file. A quiet one has all differences, and difference `number` in the order of `drawn` last."""

    package: str
    path: str
    before: str
    after: str
    kind: str
    number: int

    @property
    def id(self) -> str:
        """The same on any machine; cases are sampled in its order."""
        return digest(self.package, self.path, self.kind, str(self.number))

    @property
    def part(self) -> str:
        """The part that the package belongs to."""
        return part_of(self.package)


def part_of(package: str) -> str:
    """The part that a package belongs to."""
    return PARTS[0] if is_held_out(package) or package in judges() else PARTS[1]


@lru_cache(maxsize=1)
def judges() -> frozenset[str]:
    """The packages that no gate is tuned on, whatever their names."""
    return frozenset(package.name for package in corpus.packages(MORE))


def cases_of(package: str, files: Iterable[tuple[str, str, str]]) -> Iterator[Case]:
    """All states of a package's (path, older text, newer text): those of next_edit.py."""
    for path, before, after in files:
        count = len(edits.hunks(before, after))
        for kind, most in ((STATE, min(count - 1, MAX_STATES)), (QUIET, min(count, MAX_QUIET))):
            for number in range(most):
                yield Case(package=package, path=path, before=before, after=after, kind=kind, number=number)


def sample(files: Iterable[File], parts: Sequence[str], states: int, quiets: int) -> list[Case]:
    """As many cases of each part and kind, a few of each file: files by their digests, and cases by their ids.

    A smaller sample is the beginning of a larger one. Only files that are needed are compared.
    """
    wanted = {(part, kind): states if kind == STATE else quiets for part in parts for kind in MAX_A_FILE}
    pools: dict[tuple[str, str], list[Case]] = {key: [] for key in wanted}
    for package, path, before, after in sorted(files, key=lambda file: digest(*file[:2])):
        keys = [(part_of(package), kind) for kind in MAX_A_FILE]
        if any(len(pools[key]) < wanted[key] for key in keys if key in pools):
            cases = sorted(cases_of(package, [(path, before, after)]), key=lambda case: case.id)
            for key in keys:
                of_kind = [case for case in cases if case.kind == key[1]]
                pools[key] += of_kind[: min(MAX_A_FILE[key[1]], wanted[key] - len(pools[key]))]
    return [case for pool in pools.values() for case in pool]


def digest(*words: str) -> str:
    """An order that is the same on any machine."""
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def replayed(case: Case, producer: Producer) -> tuple[ReplayedFile, int, Sequence[edits.Hunk]]:
    """The file in its state, the offset of the cursor, and the differences that are still to come."""
    made, left = order_of(case)
    file = ReplayedFile(case.path, case.before, cursors.LANGUAGES[PurePosixPath(case.path).suffix], Rules(producer))
    return file, [file.make(hunk) for hunk in made][-1], left


def order_of(case: Case) -> tuple[Sequence[edits.Hunk], Sequence[edits.Hunk]]:
    """The differences that lead to a case's state, and those that are still to come."""
    hunks = edits.hunks(case.before, case.after)
    if case.kind == QUIET:
        last = edits.drawn(hunks, case.path, "quiet")[case.number]
        return [*(hunk for hunk in hunks if hunk is not last), last], []
    return hunks[: case.number + 1], hunks[case.number + 1 :]


def with_phrases(cases: Iterable[Case], rules: Producer) -> Iterator[Case]:
    """The states where the rules offer a phrase, as cases of their own kind."""
    for case in cases:
        if case.kind == STATE:
            file, cursor, _ = replayed(case, rules)
            proposal = file.propose(cursor, [])
            if proposal is not None and proposal.kind == PHRASE:
                yield replace(case, kind=PHRASES)


def verdict(text: str, edit: ModelEdit, left: Sequence[edits.Hunk], done: Sequence[edits.Hunk]) -> tuple[bool, bool]:
    """(right, exact): every line that the edit writes stands at that place in the newer release, as in next_edit.py.

    Lines that it only removes do not stand there. A block that comes or goes may be the same block some lines up.
    """
    old, new = text.split("\n"), applied(text, edit.proposal, edit.base).split("\n")
    right = exact = False
    for first, last, lines in slides(old, *difference(old, new)):
        for hunk, start, stop in covering(left, done, first, last):
            right |= writes(hunk, lines) and (len(lines) > 0 or not set(old[first:last]) & set(hunk.lines))
            exact |= hunk.lines == lines and (start, stop) == (first, last)
    return right, exact


def applied(text: str, proposal: Proposal, base: int = 0) -> str:
    """The text after an edit, whose offsets are those of the text from `base` on."""
    return text[: base + proposal.start] + proposal.text + text[base + proposal.end :]


def difference(old: Sequence[str], new: Sequence[str]) -> tuple[int, int, tuple[str, ...]]:
    """(first changed line, the line after the last one, the lines in their place)."""
    most = min(len(old), len(new))
    head = next((n for n in range(most) if old[n] != new[n]), most)
    tail = next((n for n in range(most - head) if old[-1 - n] != new[-1 - n]), most - head)
    return head, len(old) - tail, tuple(new[head : len(new) - tail])


def slides(
    old: Sequence[str], first: int, end: int, lines: tuple[str, ...]
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """The same change at every place where it has the same effect."""
    yield first, end, lines
    while first and (first == end) != (not lines) and old[first - 1] == (lines or tuple(old[first:end]))[-1]:
        first, end, lines = first - 1, end - 1, (*lines[-1:], *lines[:-1])
        yield first, end, lines


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def row_of(case: Case, rules: Producer, model: ModelProducer) -> dict[str, Any]:
    """The model's edit for a case, or the reason for none."""
    file, cursor, left = replayed(case, rules)
    row: dict[str, Any] = {"id": case.id, "part": case.part, "kind": case.kind, "path": case.path, "outcome": "rules"}
    row |= {"probability": None, "right": False, "exact": False, "ms": 0.0}
    proposal, text = file.propose(cursor, []), file.document.text
    if proposal is not None and case.kind != PHRASES:
        return row
    at = cursor if proposal is None else proposal.start
    started_s = perf_counter()
    edit = await model.propose(file.document, at, file.activity.recent(), lambda *_: "")
    row["ms"] = round((perf_counter() - started_s) * 1000, 1)
    if proposal is not None:
        right, exact = release_edits.verdict(proposal, text, left, file.done)
        agrees = not isinstance(edit, str) and applied(text, edit.proposal, edit.base) == applied(text, proposal)
        outcome = "agrees" if agrees else edit if isinstance(edit, str) else "another edit"
        return row | {"outcome": outcome, "right": right, "exact": exact}
    if isinstance(edit, str):
        return row | {"outcome": edit}
    right, exact = verdict(text, edit, left, file.done)
    return row | {"outcome": "shown", "probability": round(edit.probability, 4), "right": right, "exact": exact}


class Rows:
    """A file of rows, one JSON object a line; the first line names the model. Raises InputError: of another model."""

    def __init__(self, path: Path, model: str) -> None:
        self.by_id: dict[str, Row] = {}
        self._path = path
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []  # a last part is incomplete
        if lines and json.loads(lines[0]).get("model") != model:
            raise InputError(f"{path} has rows of {json.loads(lines[0]).get('model')}, not of {model}: remove it.")
        self.by_id = {row["id"]: row for row in map(json.loads, lines[1:])}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines or [json.dumps({"model": model})]), encoding="utf-8")

    def add(self, row: Row) -> None:
        """Write a row."""
        self.by_id[str(row["id"])] = row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


# ── thresholds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def figures(rows: Sequence[Row], threshold: float) -> dict[str, Any]:
    """The rates of one part, if the edits with at least this probability are shown."""
    sent = [row for row in rows if row["outcome"] != "rules"]
    shown = [row for row in sent if row["probability"] is not None and row["probability"] >= threshold]
    states, quiets = ([row for row in shown if row["kind"] == kind] for kind in (STATE, QUIET))
    counts = {kind: sum(row["kind"] == kind for row in sent) for kind in (STATE, QUIET)}
    right = sum(row["right"] for row in states)
    return {
        "threshold": threshold,
        "states": counts[STATE],
        "shown": len(states),
        "right": right,
        "exact": sum(row["exact"] for row in states),
        "precision": rate(right, len(states)),
        "quiet_states": counts[QUIET],
        "quiet_rate": rate(counts[QUIET] - len(quiets), counts[QUIET]),
    }


def chosen(rows: Sequence[Row]) -> float | None:
    """The lowest threshold that meets both aims with enough edits shown; None if there is none."""
    for threshold in THRESHOLDS:
        rates = figures(rows, threshold)
        is_quiet = (rates["quiet_rate"] or 0.0) >= MIN_QUIET
        if is_quiet and rates["shown"] >= MIN_SHOWN and rates["precision"] >= MIN_PRECISION:
            return threshold
    return None


def agreement(rows: Sequence[Row]) -> dict[str, list[int]]:
    """By the model's outcome: right phrases of the rules, and all."""
    outcomes = sorted({row["outcome"] for row in rows})
    by_outcome = {outcome: [row["right"] for row in rows if row["outcome"] == outcome] for outcome in outcomes}
    return {outcome: [sum(right), len(right)] for outcome, right in by_outcome.items()}


def table(by_part: Mapping[str, Sequence[Row]]) -> str:
    """All thresholds of all parts, as a Markdown table."""
    head = ["| part | threshold | shown | right | exact | precision | quiet |", "|---|---|---|---|---|---|---|"]
    for part, rows in by_part.items():
        for rates in (figures(rows, threshold) for threshold in THRESHOLDS):
            of = (rates[name] for name in ("threshold", "shown", "right", "exact", "precision", "quiet_rate"))
            head.append(f"| {part} | " + " | ".join(map(str, of)) + " |")
    return "\n".join(head)


# ── the engine ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def started(config: Config) -> Backend:
    """An engine process of this run alone. Raises EngineError."""
    changed = asyncio.Event()
    backend = connect_local(config, lambda status: changed.set(), lambda line: None, "benchmark")
    backend.start()
    while backend.status.state != "ready":
        if backend.status.state in ("error", "stopped"):
            await backend.close()
            raise EngineError(backend.status.message)
        changed.clear()
        await changed.wait()
    return backend


async def ask(config: Config, cases: Sequence[Case], path: Path, bar: terminal.ProgressLine) -> tuple[str, list[Row]]:
    """(name of the model, a row for each case). Raises InputError, EngineError."""
    backend = await started(config)
    try:
        status, model = backend.status, await edit_model(backend.status)
        if model is None:
            raise InputError(f"{status.target} declares no edit format, and neither does an adapter of it.")

        async def opened() -> EditModel:
            return EditModel(model.edit_format, least_probability=0.0)

        def stream(request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
            return backend.stream(replace(request, deadline_ms=DEADLINE_MS))

        rules, file = Producer(), Rows(path, status.target)
        producer = ModelProducer(EditEngine(opened, stream, lambda uri: "benchmark", lambda uri: uri.split("/", 4)[-1]))
        for number, case in enumerate(cases):
            if case.id not in file.by_id:
                bar.show("asking", number / len(cases), f"{number} of {len(cases)}")
                file.add(await row_of(case, rules, producer))
        return f"{status.target}, format {model.edit_format}", [file.by_id[case.id] for case in cases]
    finally:
        await backend.close()


def main(options: argparse.Namespace, packages: Sequence[corpus.Package], bar: terminal.ProgressLine) -> int:
    """Exit code 0. Raises SpeclspError."""
    (config,) = model_options.settings(options, {"engine.shared": False})
    parts = [part for part in PARTS[:2] if options.part in (part, "all")]
    wanted_packages = [package for package in packages if part_of(package.name) in parts]
    rows_file = options.rows or results_file.RAW / "next-edit-model.jsonl"
    if options.phrases:
        every = chain.from_iterable(cases_of(package.name, files_of(package)) for package in wanted_packages)
        cases = list(with_phrases(every, Producer()))
    else:
        files = ((package.name, *file) for package in wanted_packages for file in files_of(package))
        cases = sample(files, parts, options.states, options.quiet)
    model, rows = asyncio.run(ask(config, cases, rows_file, bar))
    by_part = {part: [row for row in rows if row["part"] == part] for part in parts}
    if options.phrases:
        print("\n".join(f"{part}: {agreement(of_part)} [right, all]" for part, of_part in by_part.items()))
        return 0
    threshold = chosen(by_part.get(PARTS[1], []))
    print(table(by_part))
    if PARTS[1] in by_part:
        advice = "leave the job next-edit out of the card" if threshold is None else f"edit_threshold = {threshold}"
        print(f"for {model}: {advice}")
    ms = sorted(row["ms"] for row in rows if row["outcome"] != "rules") or [0.0]
    summary = {
        "producer": "model",
        "model": model,
        "edit_threshold": threshold,
        "ms": {"median": statistics.median(ms), "p95": ms[int(len(ms) * 0.95)]},
        "parts": {part: [figures(of_part, step) for step in THRESHOLDS] for part, of_part in by_part.items()},
    }
    is_whole = options.part == "all" and (options.states, options.quiet) == (STATES, QUIETS)
    directory = results_file.RESULTS if is_whole else results_file.RAW
    print(f"wrote {results_file.write('next-edit-model', summary, directory=directory)}")
    return 0
