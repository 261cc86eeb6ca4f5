"""The suggestion that post-processing makes of a model's text, at the ¦ in a document."""

from __future__ import annotations

from speclsp.config import CompletionConfig
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.parser import SyntaxParser

_PARSER = SyntaxParser()


def suggest(
    marked: str, output: str, language: str = "python", uri: str = "file:///p/a", *, outdents: bool = False
) -> Suggestion | Reason:
    """The suggestion made of `output`, or the reason for showing nothing."""
    snapshot = Snapshot(uri, language, 1, marked.replace("¦", ""), marked.index("¦"))
    tree = _PARSER.parse(language, snapshot.text, 2000)
    plan = postprocess.plan(snapshot, tree, CompletionConfig(), outdents=outdents)
    if isinstance(plan, NoSuggestion):
        return plan.reason
    suggestion = plan.to_suggestion(output)
    return suggestion.reason if isinstance(suggestion, NoSuggestion) else suggestion


def inserted(
    marked: str, output: str, language: str = "python", uri: str = "file:///p/a", *, outdents: bool = False
) -> str | Reason:
    """The text of the suggestion."""
    suggestion = suggest(marked, output, language, uri, outdents=outdents)
    return suggestion if isinstance(suggestion, Reason) else suggestion.text


def accepted(
    marked: str, output: str, language: str = "python", uri: str = "file:///p/a", *, outdents: bool = False
) -> str | Reason:
    """The document after accepting the suggestion."""
    suggestion, text = suggest(marked, output, language, uri, outdents=outdents), marked.replace("¦", "")
    if isinstance(suggestion, Reason):
        return suggestion
    return text[: suggestion.start] + suggestion.text + text[suggestion.end :]
