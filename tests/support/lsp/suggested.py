"""The plan at the ¦ in a document, and the suggestion that post-processing makes of a model's text there."""

from __future__ import annotations

from typing import Any

from speclsp.config import CompletionConfig
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.parser import SyntaxParser

PARSER = SyntaxParser()
DEFAULT = CompletionConfig()


def plan_for(
    text: str,
    cursor: int,
    language: str = "python",
    config: CompletionConfig = DEFAULT,
    *,
    uri: str = "file:///p/a",
    tree: bool = True,
    **options: Any,
) -> SuggestionPlan | NoSuggestion:
    """The plan at a cursor; without `tree`, as if the file had not been parsed in time."""
    parsed = PARSER.parse(language, text, 10_000) if tree else None
    return postprocess.plan(Snapshot(uri, language, 1, text, cursor), parsed, config, **options)


def plan_at(
    marked: str, language: str = "python", config: CompletionConfig = DEFAULT, **options: Any
) -> SuggestionPlan:
    """The plan at the ¦; `options` are those of `plan_for`."""
    plan = plan_for(marked.replace("¦", ""), marked.index("¦"), language, config, **options)
    assert isinstance(plan, SuggestionPlan), plan
    return plan


def streamed(plan: SuggestionPlan, output: str, step: int = 1) -> str:
    """The part of the model's text that is read before the stream is closed, `step` characters per round."""
    return next((output[:end] for end in range(step, len(output), step) if plan.finished(output[:end])), output)


def applied(text: str, suggestion: Suggestion) -> str:
    return text[: suggestion.start] + suggestion.text + text[suggestion.end :]


def outcome(marked: str, suggestion: Suggestion | NoSuggestion) -> str | Reason:
    """The document after accepting the suggestion, or the reason for showing nothing."""
    if isinstance(suggestion, NoSuggestion):
        return suggestion.reason
    return applied(marked.replace("¦", ""), suggestion)


def suggest(
    marked: str, output: str, language: str = "python", uri: str = "file:///p/a", **options: Any
) -> Suggestion | Reason:
    """The suggestion made of `output`, or the reason for showing nothing."""
    plan = plan_for(marked.replace("¦", ""), marked.index("¦"), language, uri=uri, **options)
    suggestion = plan if isinstance(plan, NoSuggestion) else plan.to_suggestion(output)
    return suggestion.reason if isinstance(suggestion, NoSuggestion) else suggestion


def inserted(
    marked: str, output: str, language: str = "python", uri: str = "file:///p/a", **options: Any
) -> str | Reason:
    """The text of the suggestion."""
    suggestion = suggest(marked, output, language, uri, **options)
    return suggestion if isinstance(suggestion, Reason) else suggestion.text


def accepted(marked: str, output: str, language: str = "python", **options: Any) -> str | Reason:
    """The document after accepting the suggestion."""
    suggestion = suggest(marked, output, language, **options)
    return suggestion if isinstance(suggestion, Reason) else applied(marked.replace("¦", ""), suggestion)
