"""One completion without an editor: takes a position in a file, returns the suggestion that an editor would show.

    FILE:LINE:COL ─► Snapshot ─► context ─► a Completer ─► postprocess ─► PrintedAnswer

`speclsp complete`, `demo` and `doctor` share it. The Completer is an engine in this process (own_model.py), or
for `complete` a backend of the language server behind the same interface (backend_completer.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp.config import Config
from speclsp.engine.api import Completer, Extra, Piece, Request, Result
from speclsp.lsp.documents.document import Snapshot

if TYPE_CHECKING:
    from speclsp.lsp.context.build import Context
    from speclsp.lsp.postprocess.plan import NoSuggestion, SuggestionPlan
    from speclsp.lsp.reasons import Reason

PARSE_MS = 1000  # budget of a parse: longer than in an editor, because nobody is typing


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionPoint:
    """A position to complete, ready for the engine."""

    snapshot: Snapshot
    request: Request
    plan: SuggestionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedAnswer:
    """The suggestion that an editor would show, and its cost."""

    text: str = ""  # inserted at the cursor; "" when there is nothing to show
    replaces: int = 0  # characters after the cursor that `text` takes the place of
    reason: Reason | None = None  # why nothing is shown
    raw: str = ""  # the model's text, before it was cut
    from_draft: tuple[bool, ...] = ()  # for each character of `raw`: an accepted guess, not the target's own token
    result: Result = field(default_factory=Result)


def prepare(snapshot: Snapshot, config: Config, speculate: bool = True) -> CompletionPoint | NoSuggestion:
    """The prompt's parts and the rules for the end of the suggestion; NoSuggestion where no model is needed.

    `speculate` false: decode without drafts, whatever the settings say.
    """
    from speclsp.lsp.context import build
    from speclsp.lsp.postprocess import plan as postprocess
    from speclsp.lsp.syntax.parser import SyntaxParser

    budget_ms = max(PARSE_MS, config.context.parse_budget_ms)
    tree = SyntaxParser().parse(snapshot.language, snapshot.text, budget_ms, near=snapshot.cursor)
    plan = postprocess.plan(snapshot, tree, config.completion, verbatim=config.model == "echo")
    if isinstance(plan, postprocess.NoSuggestion):
        return plan
    context = build.build(snapshot, tree, config.context, root=Path.cwd().as_uri())
    request = replace(
        engine_request(context, plan.max_tokens),
        speculate=speculate and config.engine.speculative_decoding,
    )
    return CompletionPoint(snapshot=snapshot, request=request, plan=plan)


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


def about(completer: Completer) -> dict[str, object]:
    """The names of model, target, draft and device."""
    return {"model": completer.model} | {name: getattr(completer, name) for name in ("target", "draft", "device")}


def answer(
    completer: Completer,
    hole: CompletionPoint,
    shown: Callable[[PrintedAnswer], None] = lambda so_far: None,
    cancel: threading.Event | None = None,
) -> PrintedAnswer:
    """Complete `hole` as an editor would and call `shown` after each round; stops when the text is finished."""
    completion = completer.complete(hole.request, cancel or threading.Event())
    pieces = iter(completion)
    raw, marks = "", []
    for piece in pieces:
        raw += piece.text
        marks += marks_of(piece)
        shown(PrintedAnswer(raw=raw, from_draft=tuple(marks), result=completion.result))
        if hole.plan.finished(raw):
            break
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
    return cleaned(hole, raw, tuple(marks), completion.result)


def marks_of(piece: Piece) -> list[bool]:
    """For each character of a piece: True where it is from an accepted guess."""
    return [i < piece.accepted_chars for i in range(len(piece.text))]


def cleaned(hole: CompletionPoint, raw: str, marks: tuple[bool, ...], result: Result) -> PrintedAnswer:
    """The model's text, cut as an editor would show it."""
    from speclsp.lsp.postprocess import plan as postprocess

    suggestion = hole.plan.to_suggestion(raw, complete=result.stop_type not in ("limit", "deadline"))
    so_far = PrintedAnswer(raw=raw, from_draft=marks, result=result)
    if isinstance(suggestion, postprocess.NoSuggestion):
        return replace(so_far, reason=suggestion.reason)
    typed = hole.snapshot.text[suggestion.start : hole.snapshot.cursor]
    return replace(
        so_far, text=suggestion.text.removeprefix(typed), replaces=max(0, suggestion.end - hole.snapshot.cursor)
    )


def draft_marks(answer: PrintedAnswer) -> list[bool]:
    """`from_draft` for the characters of the shown text, which is a part of the model's text."""
    marks, start = [], 0
    for char in answer.text:
        wanted = "\n" if char == "\r" else char
        position = answer.raw.find(wanted, start)
        marks.append(position >= 0 and answer.from_draft[position])
        start = position + 1 if position >= 0 and char != "\r" else start
    return marks


def show(completer: Completer, hole: CompletionPoint) -> PrintedAnswer:
    """As `answer`, drawn on stdout round by round; then the legend of the colours."""
    from speclsp.cli.terminal import Screen

    text, cursor = hole.snapshot.text, hole.snapshot.cursor
    with Screen(text[:cursor], text[cursor:]) as screen:
        screen.draw("", ())
        shown = answer(completer, hole, lambda so_far: screen.draw(so_far.raw, so_far.from_draft))
        screen.draw(shown.text, draft_marks(shown))
    screen.legend(draft_marks(shown))
    return shown
