"""One completion without an editor: takes a position in a file, returns the suggestion that an editor would show.

    FILE:LINE:COL ─► Snapshot ─► context ─► a Completer ─► postprocess ─► PrintedAnswer

`demo` and `doctor` share it with an engine in this process (own_model.py). For `speclsp complete` a backend of the
language server takes the Completer's place (backend_answer.py).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp.config import Config
from speclsp.engine.api import Completer, Extra, Request, Result
from speclsp.lsp.documents.document import Snapshot

if TYPE_CHECKING:
    from speclsp.lsp.backend.types import Status
    from speclsp.lsp.context.build import Context
    from speclsp.lsp.postprocess.plan import NoSuggestion, SuggestionPlan
    from speclsp.lsp.reasons import Reason

PARSE_MS = 1000  # budget of a parse: longer than in an editor, because nobody is typing


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionPoint:
    """A position to complete, ready for the engine."""

    snapshot: Snapshot
    context: Context
    request: Request
    plan: SuggestionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedAnswer:
    """The suggestion that an editor would show, and its cost."""

    text: str = ""  # inserted at the cursor; "" when there is nothing to show
    replaces: int = 0  # characters after the cursor that `text` takes the place of
    reason: Reason | None = None  # why nothing is shown
    result: Result = field(default_factory=Result)


def prepare(snapshot: Snapshot, config: Config) -> CompletionPoint | NoSuggestion:
    """The prompt's parts and the rules for the end of the suggestion; NoSuggestion where no model is needed."""
    from speclsp.lsp.context import build
    from speclsp.lsp.postprocess import plan as postprocess
    from speclsp.lsp.syntax.parser import SyntaxParser

    budget_ms = max(PARSE_MS, config.context.parse_budget_ms)
    tree = SyntaxParser().parse(snapshot.language, snapshot.text, budget_ms, near=snapshot.cursor)
    plan = postprocess.plan(snapshot, tree, config.completion, verbatim=config.model == "echo")
    if isinstance(plan, postprocess.NoSuggestion):
        return plan
    context = build.build(snapshot, tree, config.context, root=Path.cwd().as_uri())
    request = replace(engine_request(context, plan.max_tokens), speculate=config.engine.speculative_decoding)
    return CompletionPoint(snapshot=snapshot, context=context, request=request, plan=plan)


def engine_request(context: Context, max_tokens: int) -> Request:
    """A greedy request for the text of `context`."""
    return Request(
        prefix=context.prefix,
        line_prefix=context.line_prefix,
        suffix=context.suffix,
        filename=context.path,
        extra=tuple(Extra(filename=chunk.path, text=chunk.text) for chunk in context.extra),
        max_tokens=max_tokens,
    )


def about(source: Completer | Status) -> dict[str, object]:
    """The names of model, target, draft and device."""
    return {name: getattr(source, name) for name in ("model", "target", "draft", "device")}


class AnswerSoFar:
    """A completion while its rounds arrive; `result` is its cost."""

    def __init__(self, hole: CompletionPoint) -> None:
        self.result = Result()
        self._hole = hole
        self._raw = ""

    def add(self, text: str) -> bool:
        """Add a round's text; True once the suggestion is complete."""
        self._raw += text
        return self._hole.plan.finished(self._raw)

    def end(self) -> PrintedAnswer:
        """The model's text, cut as an editor would show it."""
        from speclsp.lsp.postprocess import plan as postprocess

        complete = self.result.stop_type not in ("limit", "deadline")
        suggestion, cursor = self._hole.plan.to_suggestion(self._raw, complete=complete), self._hole.snapshot.cursor
        if isinstance(suggestion, postprocess.NoSuggestion):
            return PrintedAnswer(reason=suggestion.reason, result=self.result)
        typed = self._hole.snapshot.text[suggestion.start : cursor]
        shown, replaces = suggestion.text.removeprefix(typed), max(0, suggestion.end - cursor)
        return PrintedAnswer(text=shown, replaces=replaces, result=self.result)


def answer(completer: Completer, hole: CompletionPoint) -> PrintedAnswer:
    """Complete `hole` as an editor would; stops when the text is finished."""
    completion = completer.complete(hole.request, threading.Event())
    so_far = AnswerSoFar(hole)
    so_far.result = completion.result
    pieces = iter(completion)
    for piece in pieces:
        if so_far.add(piece.text):
            break
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
    return so_far.end()
