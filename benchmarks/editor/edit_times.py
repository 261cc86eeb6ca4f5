"""Times of a model's next edits, as if the model always knew the right answer.

    python -m benchmarks edit-times --model qwen2.5-coder-0.5b-instruct [--states 120] [--quiet 40]

    states of next_edit.py ─► the newest difference is made ─► ModelProducer ─► the engine, in this process
                                                                   the newer release's window ─► its tokens ─┘

The weights need no training for this: every pass is computed, and RightSampler takes the token of the newer release in
place of the most likely one. Windows, prompts, drafts, rounds and the early end are the product's. A request of the
state before the newest difference comes first and fills the cache, as in an editor. `computed_tokens` is what it lacks.

    answer   one request: a window with a change up to its first hunk, or a whole window that stays as it is
    edit     from the request for an edit to the answer, which may take a second window; "unchanged" also counts the
             edits that a filter refused

Writes benchmarks/results/edit-times-<model>-<kind of CPU>.json.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from time import perf_counter
from typing import TYPE_CHECKING, Any

import speclsp.engine  # noqa: F401 - before torch computes: it sets the OpenMP wait policy
from benchmarks import model_options, results_file
from benchmarks.editor.edit_replay.release_edits import PARTS, files_of, listed_packages
from benchmarks.editor.edit_replay.replayed_file import ReplayedFile, rules, window_after
from benchmarks.editor.next_edit_model import Case, order_of, sample
from benchmarks.quality import edits
from benchmarks.quality.tasks import tasks as cursors
from benchmarks.speed import rounds
from speclsp.cli import terminal
from speclsp.engine.api import Request
from speclsp.engine.decoding.accept import Sampler
from speclsp.engine.decoding.completion import RunningCompletion, sampling_of
from speclsp.lsp.backend.edit_prompt import FORMATS, WINDOW, expected_answer
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece
from speclsp.lsp.next_edit.model_producer import EditEngine, EditModel, ModelProducer, stripped, windows

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.model.kv_cache import Logits

STATES, QUIETS = 120, 40
KINDS = (("changed", True), ("unchanged", False))


class RightSampler(Sampler):
    """Takes the tokens of a known answer. The cost of choosing stays."""

    def __init__(self, request: Request, answer: Sequence[int], start: int, end: int) -> None:
        super().__init__(sampling_of(request))
        self._answer, self._start, self._end = answer, start, end

    def choose(self, logits: Logits, position: int) -> list[int]:
        count, at = len(super().choose(logits, position)), position - self._start
        answer = list(self._answer[at : at + count])
        return answer + [self._end] * (count - len(answer))


class RightCompletion(RunningCompletion):
    """A completion whose answer is known."""

    answer = ""

    def make_sampler(self) -> Sampler:
        prompter, prompt = self.engine.prompter, self.prompt
        return RightSampler(self.request, prompter.encode_once(self.answer), len(prompt.ids), min(prompter.stop_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The cost of one request up to the piece that ended it."""

    changed: bool
    ms: float
    window_lines: int
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    rounds: int


class RightEngine:
    """An engine in this process that answers for one file at a time; `left`: the differences still to come."""

    def __init__(self, engine: CompletionEngine, edit_format: str) -> None:
        self.engine, self.edit_format = engine, edit_format
        self.left: Sequence[edits.Hunk] = ()
        self.file: ReplayedFile | None = None
        self.line = 0  # of the cursor
        self.answers: list[Answer] = []

    async def model(self) -> EditModel:
        return EditModel(self.edit_format, least_probability=0.0)

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        """The engine's pieces, as the product's backend gives them."""
        began_s = perf_counter()
        asked = Request(
            raw_prompt=request.raw_prompt or "",
            draft_window=request.draft_window,
            stop=request.stop,
            max_tokens=request.max_tokens,
            heal=False,
            round_logprobs=True,
        )
        completion = RightCompletion(self.engine, asked, self.engine.prompter.build(asked), threading.Event())
        completion.answer = self.right_answer(request.draft_window)
        try:
            for piece in completion:
                yield StreamPiece(text=piece.text, logprobs=tuple(zip(piece.characters, piece.logprobs, strict=False)))
            yield StreamPiece(cost=CompletionCost(stop_type=completion.result.stop_type))
        finally:
            result = completion.result
            self.answers.append(
                Answer(
                    changed=completion.answer != request.draft_window,
                    ms=(perf_counter() - began_s) * 1e3,
                    window_lines=request.draft_window.count("\n"),
                    prompt_tokens=result.prompt_tokens,
                    cached_tokens=result.cached_tokens,
                    tokens=len(result.tokens),
                    rounds=result.rounds,
                )
            )

    def right_answer(self, window: str) -> str:
        """The window as the newer release has it. Differences that the window cuts are not made."""
        assert self.file is not None
        document = self.file.document
        for first, end in windows(document, self.line, self.file.activity.recent()):
            lines = stripped(document.lines(first, end))
            if expected_answer(lines) == window:
                return expected_answer(window_after(lines, first, self.left, self.file.done))
        return window


async def timed(case: Case, right: RightEngine) -> dict[str, Any] | None:
    """The time of the edit for a case, and its answers; None where nothing was requested."""
    made, left = order_of(case)
    file = ReplayedFile(case.path, case.before, cursors.LANGUAGES[PurePosixPath(case.path).suffix], rules())
    producer = ModelProducer(EditEngine(right.model, right.stream, lambda uri: "benchmark", lambda uri: case.path))
    right.file, cursor = file, 0
    for number, hunk in enumerate(made):
        cursor = file.make(hunk)
        if number == len(made) - 2:  # what the editor requested before fills the cache
            right.left, right.line = [*made[number + 1 :], *left], line_at(file, cursor)
            await producer.propose(file.document, cursor, file.activity.recent(), lambda *_: "")
    right.left, right.line, right.answers = left, line_at(file, cursor), []
    began_s = perf_counter()
    edit = await producer.propose(file.document, cursor, file.activity.recent(), lambda *_: "")
    ms = (perf_counter() - began_s) * 1e3
    if not right.answers:
        return None
    return {"ms": ms, "outcome": edit if isinstance(edit, str) else "edit", "answers": right.answers}


def line_at(file: ReplayedFile, offset: int) -> int:
    """The line of an offset."""
    return file.document.position(offset, "utf-32")["line"]


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Times by answer and by edit, with the tokens a round."""
    answers = [answer for row in rows for answer in row["answers"]]
    by_change = {name: [a for a in answers if a.changed == changed] for name, changed in KINDS}
    edits_ms = {name: [row["ms"] for row in rows if (row["outcome"] == "edit") == changed] for name, changed in KINDS}
    return {
        "answers": {name: answer_figures(of_kind) for name, of_kind in by_change.items()},
        "edits": {name: {"count": len(ms), **rounds.spread(ms)} for name, ms in edits_ms.items()},
    }


def answer_figures(answers: Sequence[Answer]) -> dict[str, Any]:
    """Median and 95th percentile of the time, and means of the rest."""

    def mean(values: Sequence[float]) -> float:
        return round(sum(values) / max(len(values), 1), 2)

    return {
        "count": len(answers),
        "ms": rounds.spread([answer.ms for answer in answers]),
        "window_lines": mean([answer.window_lines for answer in answers]),
        "prompt_tokens": mean([answer.prompt_tokens for answer in answers]),
        "computed_tokens": mean([answer.prompt_tokens - answer.cached_tokens for answer in answers]),
        "tokens": mean([answer.tokens for answer in answers]),
        "rounds": mean([answer.rounds for answer in answers]),
        "tokens_per_round": round(sum(a.tokens for a in answers) / max(sum(a.rounds for a in answers), 1), 2),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model_options.add_arguments(parser)
    parser.add_argument("--states", type=int, default=STATES, help=f"states of releases (default: {STATES})")
    parser.add_argument("--quiet", type=int, default=QUIETS, help=f"states with nothing to change (default: {QUIETS})")
    parser.add_argument("--format", choices=FORMATS, default=WINDOW, help=f"of the prompt (default: {WINDOW})")


async def measured(
    options: argparse.Namespace, engine: CompletionEngine, cases: Sequence[Case]
) -> list[dict[str, Any]]:
    """A row for each case with a request."""
    right, rows = RightEngine(engine, options.format), []
    with terminal.progress() as bar:
        for number, case in enumerate(cases):
            bar.show("asking", number / len(cases), f"{number} of {len(cases)}")
            if (row := await timed(case, right)) is not None:
                rows.append(row)
    return rows


def main(options: argparse.Namespace) -> int:
    """Exit code 0. Raises SpeclspError."""
    with terminal.progress() as bar:
        packages = [package for package, _ in listed_packages(bar)]
    files = ((package.name, *file) for package in packages for file in files_of(package))
    cases = sample(files, PARTS[:1], options.states, options.quiet)
    for config in model_options.settings(options, {"engine.draft": False}):
        engine = model_options.engine(config)
        result = figures(asyncio.run(measured(options, engine, cases)))
        for name, kinds in result.items():
            for kind, row in kinds.items():
                print(f"{name} {kind}: " + "  ".join(f"{key} {value}" for key, value in row.items()))
        summary = {**model_options.about(engine), "format": options.format, **result}
        print(
            f"wrote {results_file.write('edit-times', summary, f'edit-times-{engine.model}-{results_file.cpu_kind()}')}"
        )
    return 0
