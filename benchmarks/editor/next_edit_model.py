"""Next edits by a model against the edits that were really made: `python -m benchmarks next-edit --producer model`.

    states of next_edit.py ─► sample by digest ─► ModelProducer, an engine process, at the cursor ─► row
                                             └─► the rules offer an edit? ─► ModelProducer at its place ─► the same row
    rows ─► ways to show, thresholds ─► precision, quiet ─► the lowest threshold of the tuning packages with both aims

    rules     the rules' edits
    model     the model's edits at the cursor, as if there were no rules
    silent    of these, the edits in states where the rules offer none: the product
    pointed   the model's edits at the places of the rules' edits
    agrees    the rules' edits that the model makes too, at their places

The producer, prompts, windows and filters are the product's. Only the gate is open: a row has the probability of its
edit, and each threshold of the table is applied to the rows. `new` are right edits that the rules do not show in that
state. A row is written as soon as it is known, and a second run goes on where the first one ended.
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
from speclsp.lsp.server.model_list import edit_model

STATE, QUIET = "state", "quiet"
RULES, MODEL, SILENT, POINTED, AGREES = WAYS = ("rules", "model", "silent", "pointed", "agrees")
FORM = 2  # of the rows
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


def with_offers(cases: Iterable[Case], rules: Producer) -> Iterator[Case]:
    """The states where the rules offer an edit."""
    for case in cases:
        if case.kind == STATE:
            file, cursor, _ = replayed(case, rules)
            if file.propose(cursor, []) is not None:
                yield case


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
    """The model's edit for a case, or the reason for none; the rules' edit, and the model's at its place."""
    file, cursor, left = replayed(case, rules)
    text, proposal = file.document.text, file.propose(cursor, [])
    row: dict[str, Any] = {"id": case.id, "part": case.part, "kind": case.kind, "path": case.path, "rules": None}

    async def answer(at: int) -> dict[str, Any]:
        started_s = perf_counter()
        edit = await model.propose(file.document, at, file.activity.recent(), lambda *_: "")
        ms = round((perf_counter() - started_s) * 1000, 1)
        if isinstance(edit, str):
            return {"outcome": edit, "probability": None, "right": False, "exact": False, "same": False, "ms": ms}
        right, exact = verdict(text, edit, left, file.done)
        is_same = proposal is not None and applied(text, edit.proposal, edit.base) == applied(text, proposal)
        facts = {"outcome": "shown", "probability": round(edit.probability, 4), "right": right, "exact": exact}
        return facts | {"same": is_same, "ms": ms}

    row |= await answer(cursor)
    if proposal is not None:
        right, exact = release_edits.verdict(proposal, text, left, file.done)
        row["rules"] = {"kind": proposal.kind, "right": right, "exact": exact, "model": await answer(proposal.start)}
    return row


class Rows:
    """A file of rows, one JSON object a line; the first line names the model. Raises InputError: of another model."""

    def __init__(self, path: Path, model: str) -> None:
        self.by_id: dict[str, Row] = {}
        self._path = path
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []  # a last part is incomplete
        head = {"model": model, "form": FORM}
        if lines and json.loads(lines[0]) != head:
            raise InputError(f"{path} has rows of {json.loads(lines[0]).get('model')}, not of {model}: remove it.")
        self.by_id = {row["id"]: row for row in map(json.loads, lines[1:])}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines or [json.dumps(head)]), encoding="utf-8")

    def add(self, row: Row) -> None:
        """Write a row."""
        self.by_id[str(row["id"])] = row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


# ── thresholds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(row: Row, way: str, threshold: float) -> tuple[bool, bool, bool] | None:
    """(right, exact, new) of the edit that would be shown, if the model's probability is at least the threshold."""
    rules = row["rules"]
    if way == RULES:
        return (rules["right"], rules["exact"], False) if rules else None
    answer = row if way in (MODEL, SILENT) else (rules or {}).get("model")
    if answer is None or answer["probability"] is None or answer["probability"] < threshold:
        return None
    if (way == SILENT and rules) or (way == AGREES and not answer["same"]):
        return None
    judged = rules if way == AGREES else answer
    return judged["right"], judged["exact"], judged["right"] and not answer["same"]


def figures(rows: Sequence[Row], way: str, threshold: float = 0.0) -> dict[str, Any]:
    """The rates of one part and one of WAYS, if the model's edits with at least this probability are shown."""
    by_kind = {kind: [shown(row, way, threshold) for row in rows if row["kind"] == kind] for kind in (STATE, QUIET)}
    of_states, of_quiets = ([edit for edit in by_kind[kind] if edit is not None] for kind in (STATE, QUIET))
    right, exact, new = (sum(edit[at] for edit in of_states) for at in range(3))
    quiets = len(by_kind[QUIET])
    return {
        "way": way,
        "threshold": threshold,
        "states": len(by_kind[STATE]),
        "shown": len(of_states),
        "right": right,
        "exact": exact,
        "new": new,
        "precision": rate(right, len(of_states)),
        "quiet_states": quiets,
        "quiet_rate": rate(quiets - len(of_quiets), quiets),
    }


def chosen(rows: Sequence[Row]) -> float | None:
    """The lowest threshold at which the product meets both aims with enough edits shown; None if there is none."""
    for threshold in THRESHOLDS:
        rates = figures(rows, SILENT, threshold)
        is_quiet = (rates["quiet_rate"] or 0.0) >= MIN_QUIET
        if is_quiet and rates["shown"] >= MIN_SHOWN and rates["precision"] >= MIN_PRECISION:
            return threshold
    return None


def is_kept(rows: Sequence[Row], threshold: float) -> bool:
    """True if the product's precision meets its aim in other packages too, and the rules do not show all of it."""
    rates = figures(rows, SILENT, threshold)
    return (rates["precision"] or 0.0) >= MIN_PRECISION and rates["new"] > 0


def all_figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rates of the rules, and of each other way at each threshold."""
    return [figures(rows, RULES), *(figures(rows, way, step) for way in WAYS[1:] for step in THRESHOLDS)]


def table(by_part: Mapping[str, Sequence[Row]]) -> str:
    """All ways and thresholds of all parts, as a Markdown table."""
    names = ("way", "threshold", "shown", "right", "exact", "new", "precision", "quiet_rate")
    head = [f"| part | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for part, rows in by_part.items():
        for rates in all_figures(rows):
            head.append(f"| {part} | " + " | ".join(str(rates[name]) for name in names) + " |")
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
    if options.pointed:
        every = chain.from_iterable(cases_of(package.name, files_of(package)) for package in wanted_packages)
        cases = list(with_offers(every, Producer()))
    else:
        files = ((package.name, *file) for package in wanted_packages for file in files_of(package))
        cases = sample(files, parts, options.states, options.quiet)
    model, rows = asyncio.run(ask(config, cases, rows_file, bar))
    by_part = {part: [row for row in rows if row["part"] == part] for part in parts}
    threshold = chosen(by_part.get(PARTS[1], []))
    print(table(by_part))
    if PARTS[1] in by_part and not options.pointed:
        is_included = threshold is not None and is_kept(by_part.get(PARTS[0], []), threshold)
        advice = f"edit_threshold = {threshold}" if is_included else "leave the job next-edit out of the card"
        print(f"for {model}: {advice}")
    ms = sorted(row["ms"] for row in rows) or [0.0]
    summary = {
        "producer": "model",
        "model": model,
        "edit_threshold": threshold,
        "ms": {"median": statistics.median(ms), "p95": ms[int(len(ms) * 0.95)]},
        "parts": {part: all_figures(of_part) for part, of_part in by_part.items()},
    }
    is_whole = options.part == "all" and not options.pointed and (options.states, options.quiet) == (STATES, QUIETS)
    directory = results_file.RESULTS if is_whole else results_file.RAW
    print(f"wrote {results_file.write('next-edit-model', summary, directory=directory)}")
    return 0
