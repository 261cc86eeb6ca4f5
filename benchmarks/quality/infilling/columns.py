"""One column of the benchmark: every task completed through the raw engine or through the product.

    engine    <prefix> prompt <suffix> suffix <middle>, greedy, as models are evaluated; the text unchanged
    product   an editor: a document with an empty line in place of the removed lines, the cursor on it; the product's
              own parse, prompt order, token healing and postprocessing decide the suggestion
    joined    the product, some time later: the lines that have joined a first line by their value, at "medium"

Generations are cached under everything that decides their tokens, so a stopped run continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.quality.cache.generation_cache import (
    Generation,
    GenerationCache,
    Reader,
    arithmetic,
    generation_key,
    model_key,
    read_text,
)
from benchmarks.quality.infilling import scoring
from benchmarks.quality.infilling.prompt_orders import prompter_for
from benchmarks.quality.infilling.tasks import SINGLE, Task
from benchmarks.quality.run_task import generate, patient
from benchmarks.quality.scoring.scores import PARSE_MS
from speclsp.config import Config
from speclsp.engine.api import Request
from speclsp.errors import EngineError
from speclsp.lsp.completion.confidence import LEVELS, curve_of, token_spans
from speclsp.lsp.completion.gate import apply_gate, evaluate
from speclsp.lsp.completion.next_suggestion import joins
from speclsp.lsp.context import build
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.syntax.parser import SyntaxParser

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine

ENGINE, PRODUCT, JOINED = "engine", "product", "joined"
THROUGH = (ENGINE, PRODUCT, JOINED)
MAX_TOKENS = {SINGLE: 64, "multi": 256}  # of the raw engine; 64 is the published limit for single lines
WORKSPACE, FILE = "file:///workspace", "file:///workspace/solution.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A task's completion and its scores."""

    task_id: str
    text: str  # as the exact-match rule reads it; "" where nothing is suggested
    program: str  # the completed document with the tests; "" where nothing is suggested
    exact: bool
    reason: str = ""  # why nothing is suggested
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReader:
    """Takes the model's text unchanged, up to the end of its answer line for single-line tasks."""

    kind: str
    cursor: int

    @property
    def max_tokens(self) -> int:
        return MAX_TOKENS[self.kind]

    def finished(self, text: str) -> bool:
        return self.kind == SINGLE and scoring.has_answer_line(text)

    def to_suggestion(self, text: str, *, complete: bool = True) -> Suggestion | NoSuggestion:
        line = f"{scoring.answer_line(text)}\n" if self.kind == SINGLE else text
        return Suggestion(line, self.cursor, self.cursor)


class Column:
    """Completes the tasks of a kind with one engine, through one way."""

    def __init__(self, engine: CompletionEngine, config: Config, cache: GenerationCache, through: str) -> None:
        self.engine, self.config, self.cache, self.through = engine, config, cache, through
        self.arithmetic = arithmetic(engine)
        self.model = model_key(engine, self.arithmetic, config.models_dir)
        self.ours = engine.prompter
        self.new_generations = 0

    def run(self, tasks: Sequence[Task], kind: str, progress: Callable[[int], None]) -> list[Completed]:
        """The completion of each task.

        Raises:
            EngineError: the model computes other numbers at the end than at the start.
        """
        complete = self.by_engine if self.through == ENGINE else self.by_product
        rows = []
        try:
            for number, task in enumerate(tasks):
                progress(number)
                rows.append(complete(task, kind))
        finally:
            self.engine.prompter = self.ours
        if (now := arithmetic(self.engine)) != self.arithmetic:
            raise EngineError(
                f"{self.engine.target} made other logits of the same tokens at the end of this run ({now}) than at "
                f"its start ({self.arithmetic}), so nothing is written: check the machine's memory, and run it again."
            )
        return rows

    def by_engine(self, task: Task, kind: str) -> Completed:
        """With the standard prompt of the model family."""
        request = Request(
            prefix=task.prompt,
            suffix=task.suffix,
            max_tokens=MAX_TOKENS[kind],
            speculate=self.config.engine.speculative_decoding,
            heal=False,
        )
        reader = RawReader(kind=kind, cursor=len(task.prompt))
        return self.completed(task, kind, request, reader, "standard", task.prompt + task.suffix)

    def by_product(self, task: Task, kind: str) -> Completed:
        """As the language server does it for a file that is open alone."""
        document, cursor = f"{task.prompt}\n{task.suffix}", len(task.prompt)
        snapshot = Snapshot(uri=FILE, language="python", version=1, text=document, cursor=cursor)
        tree = SyntaxParser().parse("python", document, PARSE_MS, near=cursor)
        config = patient(self.config)
        plan = postprocess.plan(snapshot, tree, config.completion)
        if isinstance(plan, NoSuggestion):
            return Completed(task_id=task.task_id, text="", program="", exact=False, reason=plan.reason.value)
        context = build.build(snapshot, tree, config.context, WORKSPACE)
        request = Request(
            prefix=context.prefix,
            line_prefix=context.line_prefix,
            suffix=context.suffix,
            filename=context.path,
            max_tokens=plan.max_tokens,
            temperature=config.completion.temperature,
            speculate=config.engine.speculative_decoding,
        )
        return self.completed(task, kind, request, plan, "ours", document)

    def completed(
        self, task: Task, kind: str, request: Request, reader: Reader, order: str, document: str
    ) -> Completed:
        """Generate, cut, insert into the document, score."""
        generation = self.generation(request, reader, order)
        part = read_text(generation, reader)
        assert part is not None  # otherwise it would have been generated again
        suggestion = reader.to_suggestion(part.text, complete=part.whole)
        if self.through == JOINED and isinstance(reader, SuggestionPlan) and isinstance(suggestion, Suggestion):
            suggestion = self.joined(suggestion, reader, request, order)
        if isinstance(suggestion, NoSuggestion):
            row = Completed(task_id=task.task_id, text="", program="", exact=False, reason=suggestion.reason.value)
            return replace(row, tokens=part.tokens)
        filled = document[: suggestion.start] + suggestion.text + document[suggestion.end :]
        text = part.text if self.through == ENGINE else suggestion.text
        return Completed(
            task_id=task.task_id,
            text=text,
            program=scoring.program(task, filled),
            exact=scoring.is_exact(task, kind, text),
            tokens=part.tokens,
        )

    def joined(self, shown: Suggestion, plan: SuggestionPlan, request: Request, order: str) -> Suggestion:
        """`shown` with the further lines that join it, if there are any."""
        curve = curve_of(self.engine.model)
        if not plan.further_tokens or curve is None:
            return shown
        plan = plan.with_further_lines()
        generation = self.generation(replace(request, max_tokens=plan.max_tokens), plan, order)
        part = read_text(generation, plan)
        assert part is not None  # otherwise it would have been generated again
        tokens = token_spans(list(zip(map(len, generation.texts), generation.logprobs, strict=False)))
        decision = evaluate(part.text, tokens, 0, curve, LEVELS["medium"].bar())
        longer = plan.to_suggestion(part.text, complete=part.whole)
        longer = apply_gate(longer, plan, part.text, decision, [])
        return longer if isinstance(longer, Suggestion) and joins(longer, shown) else shown

    def generation(self, request: Request, reader: Reader, order: str) -> Generation:
        """From the cache, or generated now."""
        prompter = self.engine.prompter = prompter_for(self.ours, order, self.config.engine.context_tokens)
        key = generation_key(self.model, prompter.build(request), request)
        entry = self.cache.get(key)
        if entry is None or read_text(entry, reader) is None:
            entry = generate(self.engine, request, reader)
            self.cache.put(key, entry)
            self.new_generations += 1
        return entry
