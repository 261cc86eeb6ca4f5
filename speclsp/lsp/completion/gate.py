"""Confidence gate: turns the text of a stream into a suggestion, and shows only the lines that are worth showing.

The gate shows all of a suggestion, its first lines with the closers that they need, or nothing. First lines that open a
bracket bring the next lines up to the one that closes it. The gate is open for explicit requests, for backends that
report no probabilities, and while the draft model answers alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from speclsp.config import Config
from speclsp.lsp.backend.types import Backend
from speclsp.lsp.completion.confidence import (
    LEVELS,
    Bar,
    Curve,
    TokenSpan,
    curve_of,
    line_values,
    lines,
    lines_to_show,
    needed_confidence,
)
from speclsp.lsp.completion.job import CompletionJob
from speclsp.lsp.completion.stream import Stream
from speclsp.lsp.postprocess import closers
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.text_windows import common_ends


@dataclass(eq=False, repr=False)
class ConfidenceGate:
    """Decides for the streams of one editor how much of their text is shown."""

    _config: Callable[[], Config]
    _backend: Callable[[], Backend | None]

    def to_suggestion(
        self, stream: Stream, plan: SuggestionPlan, job: CompletionJob | None = None, whole: bool = True
    ) -> Suggestion | NoSuggestion:
        """The part of a stream's text that is shown. The trace of `job` records its first suggestion.

        Args:
            job: the reader; None for a stream without one, which is judged by the current settings.
            whole: the stream came to its own end, so its last line is complete.
        """
        text = stream.rest or ""
        trace = job.trace if job is not None and not job.suggestions else None
        suggestion = plan.to_suggestion(text, complete=whole)
        if trace is not None:
            trace.streamed_characters = len(text)
        backend = self._backend()
        if backend is None or (curve := curve_of(backend.status.model)) is None:
            return suggestion
        completion = job.completion if job is not None else self._config().completion
        if job is not None and job.request.by_hand:
            bar = Bar()
        elif completion.min_confidence:
            bar = Bar(least=completion.min_confidence)
        else:
            bar = LEVELS[completion.eagerness]
        decision = evaluate(stream.text, stream.token_spans, len(stream.typed), curve, bar)
        if trace is not None:
            trace.confidence, trace.least_confidence = decision.confidence, decision.threshold
        return apply_gate(suggestion, plan, text, decision)


class GateDecision(NamedTuple):
    """The part of a text that is shown."""

    confidence: float | None  # in its first line; None: it has no log-probabilities
    threshold: float  # the confidence from which the first line alone is worth showing
    keep: int  # characters that are worth showing, always up to the end of a line


def evaluate(text: str, tokens: Sequence[TokenSpan], begin: int, curve: Curve, bar: Bar) -> GateDecision:
    """The part of `text[begin:]` that is shown; `keep` counts from `begin`."""
    own_lines = list(lines(text, tokens, begin))
    values, bar = line_values(own_lines, begin, curve), bar.at(text[begin:])
    count = lines_to_show(values, bar)
    keep = len(text) - begin if count == len(values) else own_lines[count - 1].end - begin if count else 0
    if not own_lines or not own_lines[0].logprobs:
        return GateDecision(None, bar.least, keep)
    return GateDecision(values[0].confidence, needed_confidence(values[0], bar), keep)


def apply_gate(
    suggestion: Suggestion | NoSuggestion, plan: SuggestionPlan, text: str, decision: GateDecision
) -> Suggestion | NoSuggestion:
    """The part of `suggestion` that is shown: all, its first lines, or nothing. `plan` made it from `text`.

    If its first lines alone are no valid suggestion, as with half a bracket, the fewest further lines are added.
    """
    if isinstance(suggestion, NoSuggestion) or decision.keep >= len(text.rstrip()):
        return suggestion
    if not decision.keep:
        return NoSuggestion(Reason.UNSURE)
    ends = [decision.keep, *(match.start() for match in re.finditer("\n", text) if match.start() > decision.keep)]
    shown_lines = suggestion.text.count("\n") + 1  # each end costs a syntax check
    candidates = (first_lines(suggestion, plan, text, end) for end in ends[:shown_lines])
    return next((candidate for candidate in candidates if candidate is not None), suggestion)


def first_lines(suggestion: Suggestion, plan: SuggestionPlan, text: str, keep: int) -> Suggestion | None:
    """The first lines of `suggestion`, from `text[:keep]`, with the closers that they need.

    None if they are no suggestion of their own, or leave a bracket open.
    """
    shorter = plan.to_suggestion(text[: keep + 1])  # with its line break: the model did not end there
    if isinstance(shorter, NoSuggestion) or shorter.start != suggestion.start:
        return None
    if closers.opens_bracket(shorter.text, shorter.end - plan.around.cursor, plan.around):
        return None
    end = shorter.text[common_ends(suggestion.text, shorter.text)[0] :]
    return None if len(shorter.text) > len(suggestion.text) or any(map(str.isalnum, end)) else shorter
