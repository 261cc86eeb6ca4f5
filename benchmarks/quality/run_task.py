"""One task through the product's own pipeline, in this process: the prompt, the generation, the shown suggestion.

    task ─► Snapshot ─► syntax.parse ─► postprocess.plan ─► context.build ─► Request ─► engine ─► plan.clean ─► Row

As session.py does it for an editor that has the package's folder open, with the task's other files open beside.
Only the context and the model are timed, and the model only where its answer is not cached from another run.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.quality import variants
from benchmarks.quality.cache.generation_cache import (
    Generation,
    GenerationCache,
    Reader,
    arithmetic,
    generation_key,
    model_key,
    read_text,
)
from benchmarks.quality.scoring.scores import PARSE_MS, Judged, judge
from benchmarks.quality.tasks.tasks import Task
from benchmarks.quality.variants import Variant
from speclsp.cli.complete import answers
from speclsp.config import Config
from speclsp.engine.api import Request
from speclsp.engine.decoding.vocabulary import TextStream
from speclsp.errors import EngineError
from speclsp.lsp.context import build
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index import folder_reader
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion
from speclsp.lsp.syntax.grammars import language_id
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.tree import SyntaxTree

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine

PATIENCE_MS = 60_000.0  # for each context source: the text is measured, and the machine may be busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task in a variant."""

    task: str
    judged: Judged
    reason: str = ""  # why nothing is shown
    text: str = ""  # what is
    replaced: int = 0  # characters right of the cursor that it replaces
    said: str = ""  # the generated text, as far as it was needed
    prompt_tokens: int = 0
    tokens: int = 0  # of the generated text
    logprobs: tuple[float, ...] = ()  # of these
    characters: tuple[int, ...] = ()  # that each of them brought
    extra: tuple[tuple[str, str, int], ...] = ()  # (source, path, characters) of the context chunks
    context_ms: float = 0.0
    ms: float = 0.0  # of the model, when it ran
    asked: bool = False  # in this run


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's generation for a prompt, and its reader."""

    reader: Reader
    generation: Generation
    is_new: bool
    extra: tuple[tuple[str, str, int], ...]
    context_ms: float = 0.0


class TaskRunner:
    """Completes tasks with one engine."""

    def __init__(self, engine: CompletionEngine, config: Config, cache: GenerationCache) -> None:
        """`config` is the user's; the engine may have a larger context than it sets."""
        self.engine, self.config, self.cache = engine, config, cache
        self.arithmetic = arithmetic(engine)
        self.model = model_key(engine, self.arithmetic, config.models_dir)
        self.new_generations = 0

    def check(self) -> None:
        """Raises EngineError if the model's numbers differ from the first run, because its answers are then invalid."""
        now = arithmetic(self.engine)
        if now != self.arithmetic:
            raise EngineError(
                f"{self.engine.target} made other logits of the same tokens at the end of this run ({now}) than at its "
                f"start ({self.arithmetic}), so nothing is written: look at the machine's memory, and run it again."
            )

    def row(self, task: Task, variant: Variant) -> Row:
        """The row of a task in a variant."""
        snapshot, tree = seen_at(task)
        answer = self.ask(task, variant, snapshot, tree)
        if isinstance(answer, NoSuggestion):
            return Row(task=task.id, judged=Judged(), reason=answer.reason.value)
        result = read_text(answer.generation, answer.reader)
        assert result is not None  # otherwise it would have been generated again
        cleaned = answer.reader.to_suggestion(result.text, complete=result.whole)
        shown = cleaned if isinstance(cleaned, Suggestion) else None
        self.new_generations += answer.is_new
        return Row(
            task=task.id,
            judged=judge(task, shown, snapshot, tree, torn=not result.whole),
            reason=cleaned.reason.value if isinstance(cleaned, NoSuggestion) else "",
            text=shown.text if shown is not None else "",
            replaced=shown.end - task.cursor if shown is not None else 0,
            said=result.text,
            prompt_tokens=answer.generation.prompt_tokens,
            tokens=result.tokens if answer.generation.logprobs else len(answer.generation.tokens),
            logprobs=tuple(answer.generation.logprobs[: result.tokens]),
            characters=tuple(map(len, answer.generation.texts[: result.tokens])),
            extra=answer.extra,
            context_ms=answer.context_ms,
            ms=answer.generation.ms,
            asked=answer.is_new,
        )

    def ask(self, task: Task, variant: Variant, snapshot: Snapshot, tree: SyntaxTree | None) -> Answer | NoSuggestion:
        """By the product's own pipeline."""
        config = patient(variants.settings(self.config, variant))
        others = [opened(task.root, path) for path in task.open_paths]
        plan = postprocess.plan(snapshot, tree, config.completion, others)
        if isinstance(plan, NoSuggestion):
            return plan
        index = index_for(task)
        sources = CrossFileSources(index=index, patience_ms=PATIENCE_MS)
        began_s = perf_counter()
        context = build.build(snapshot, tree, config.context, task.root.as_uri(), others, sources=sources)
        context_ms = (perf_counter() - began_s) * 1e3
        request = replace(
            answers.engine_request(context, plan.max_tokens),
            speculate=variant.speculate and config.engine.speculative_decoding,
        )
        generation, is_new = self.say(request, plan)
        extra = tuple(("similar", chunk.path, len(chunk.text)) for chunk in context.extra)
        return Answer(reader=plan, generation=generation, is_new=is_new, extra=extra, context_ms=context_ms)

    def say(self, request: Request, reader: Reader, *, warm: bool = False) -> tuple[Generation, bool]:
        """(generation for a request, as far as `reader` needs it; True if it was generated now)."""
        key = generation_key(self.model, self.engine.prompter.build(request), request)
        entry = self.cache.get(key)
        if entry is not None and read_text(entry, reader) is not None:
            return entry, False
        generation = generate(self.engine, request, reader, warm=warm)
        self.cache.put(key, generation)
        return generation, True


def generate(engine: CompletionEngine, request: Request, reader: Reader, *, warm: bool = False) -> Generation:
    """Ask the model until `reader` has enough; its text token by token. The prompt is cold, unless `warm`."""
    request = replace(request, cache_prompt=warm, round_logprobs=True)
    began_s, first_ms = perf_counter(), 0.0
    running = engine.complete(request, threading.Event())
    stream = TextStream(engine.prompter.vocabulary, running.prompt.heal)
    tokens, texts, logprobs, text, enough = list[int](), list[str](), list[float](), "", False
    with closing(iter(running)) as pieces:  # type: ignore[type-var]
        for piece in pieces:
            tokens += piece.tokens
            texts += map(stream.push, piece.tokens)
            logprobs += [round(logprob, 4) for logprob in piece.logprobs]
            text += piece.text
            first_ms = first_ms or ((perf_counter() - began_s) * 1e3 if tokens else 0.0)
            enough = reader.finished(text)
            if enough:
                break
    ms = (perf_counter() - began_s) * 1e3
    return Generation(
        tokens=tokens,
        texts=texts,
        logprobs=logprobs,
        stop="" if enough else running.result.stop_type,
        prompt_tokens=running.result.prompt_tokens,
        ms=round(ms, 1),
        first_ms=round(first_ms, 1),
    )


def seen_at(task: Task) -> tuple[Snapshot, SyntaxTree | None]:
    """The document in the editor, and its syntax; of a parser of its own, for nothing may be known of it before."""
    uri = (task.root / task.path).as_uri()
    snapshot = Snapshot(uri=uri, language=task.language, version=1, text=task.text, cursor=task.cursor)
    return snapshot, SyntaxParser().parse(task.language, task.text, PARSE_MS, near=task.cursor)


def index_for(task: Task) -> WorkspaceIndex:
    """Index of the task's package without the task's own file, because that holds the true text."""
    index = indexed(task.root)
    index.hidden_rule = lambda path: path == task.path
    return index


def patient(config: Config) -> Config:
    """The same with a longer parse limit: the text is measured, and the machine may be busy."""
    return replace(config, context=replace(config.context, parse_budget_ms=int(PARSE_MS)))


@lru_cache(maxsize=4)
def indexed(root: Path) -> WorkspaceIndex:
    """The index of a package's folder."""
    return folder_reader.build(root)


@lru_cache(maxsize=256)
def opened(root: Path, path: str) -> Snapshot:
    """Another file of the package in an editor's tab."""
    file = root / path
    language = language_id(file.name)
    text = file.read_text(encoding="utf-8", errors="replace")
    return Snapshot(uri=file.as_uri(), language=language, version=1, text=text, cursor=0)
