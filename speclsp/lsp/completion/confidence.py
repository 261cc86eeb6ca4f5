"""Confidence in a suggestion, and the value of showing it.

    log-probabilities of tokens ─► confidence in each line, by a measured curve (CURVES) ─────────────┐
    completion.eagerness ─► cost of a wrong suggestion ───────────────────────────────────────────────┴─► value

Confidence in the first line is the probability that it is exactly the line that its user wants: a logistic regression
on the log-probability of the line. Later lines have a regression of their own, given that all lines above are right.
`python -m benchmarks economy` fits both on functions that are typed again. The weight of the log-probability is
positive: the surer the model, the higher the confidence. A model without a curve has the plain probability.

A suggestion of k lines is worth the characters that it saves its user, less the cost of a wrong one, in characters:

    saved_k - (1 - p_k) cost

Most users accept whole lines, so `saved_k` counts the lines that are right. The best k is shown, and nothing if no
value is positive, or if the confidence in the first line is below the lowest one of the level.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

MIN_LOGPROB = -12.0  # of a token; below it, differences do not matter

TokenProb = tuple[int, float]  # of a token: its characters and its log-probability


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Calibration of one model, computed by `python -m benchmarks economy`."""

    first: Mapping[str, float]  # weights of the first line, in log-odds: "intercept" and "total"; none: probability
    later: Mapping[str, float]  # the same of each further line, given that the lines above are right


# 2026-11-29, with the adapter fill-9: 1914 candidates in 60 bodies of 35 packages;
# on the half that it is not made from, area under ROC 0.92, Brier's score 0.10
QWEN_05B = Curve(first={"intercept": 1.83, "total": 1.6}, later={"intercept": 1.17, "total": 1.18})
CURVES: Mapping[str, Curve] = {  # by model
    "qwen2.5-coder-0.5b-instruct": QWEN_05B,
    # 2026-11-29, in int4: 1749 candidates in 60 bodies of 35 packages;
    # on the half that it is not made from, area under ROC 0.92, Brier's score 0.10
    "qwen2.5-coder-1.5b-instruct": Curve(
        first={"intercept": 1.71, "total": 2.04}, later={"intercept": 1.2, "total": 2.21}
    ),
}
PLAIN = Curve(first={}, later={})  # of models that were not measured
UNJUDGED = ("echo", "tiny")  # models for tests: everything that they write is shown


def curve_of(model: str) -> Curve | None:
    """The curve of a model; None where nothing is judged."""
    return None if model in UNJUDGED else CURVES.get(model, PLAIN)


# ── the tokens of a line ─────────────────────────────────────────────────────────────────────────────────────

# A token whose first characters were typed is surer than before. These shares of its log-probability remain, by the
# characters typed; measured on typed functions, where a token of probability 0.2 was right in 39 % after one character.
LEFT_OF_LOGPROB = (1.0, 0.6, 0.1, 0.0)


class TokenSpan(NamedTuple):
    """A token in the text: its start and end in characters, and its log-probability."""

    start: int
    end: int
    logprob: float


START = attrgetter("start")


class Line(NamedTuple):
    """A line of a text, and the log-probabilities of its tokens."""

    end: int  # in the text; without the newline
    logprobs: tuple[float, ...]


def token_spans(tokens: Sequence[TokenProb], start: int = 0) -> list[TokenSpan]:
    """The spans of tokens that follow one another from `start` on."""
    spans = []
    for characters, logprob in tokens:
        spans.append(TokenSpan(start, start + characters, logprob))
        start += characters
    return spans


def lines(text: str, tokens: Sequence[TokenSpan], begin: int = 0) -> Iterator[Line]:
    """The lines of `text[begin:]` that are not blank. The first includes the blank lines before it.

    Tokens are assigned to lines by their start; a newline belongs to the line that it ends. A token that starts before
    `begin` was typed in part: the first line begins with the rest of it, which is surer (LEFT_OF_LOGPROB).
    """
    start = begin
    while start < len(text):
        first = next((at for at in range(start, len(text)) if not text[at].isspace()), len(text))
        if first == len(text):
            return
        newline = text.find("\n", first)
        end = newline if newline >= 0 else len(text)
        low, high = bisect_left(tokens, start, key=START), bisect_right(tokens, end, key=START)
        own = [token.logprob for token in tokens[low:high]]
        if start == begin and low and tokens[low - 1].end > begin:
            token = tokens[low - 1]
            left = LEFT_OF_LOGPROB[min(begin - token.start, len(LEFT_OF_LOGPROB) - 1)]
            own.insert(0, left * token.logprob)
        yield Line(end, tuple(own))
        start = end + 1


# ── the confidence in a line ─────────────────────────────────────────────────────────────────────────────────


def total_logprob(logprobs: Sequence[float]) -> float:
    """The feature "total": the log-probability of a line with at least one token, as a whole."""
    return sum(min(0.0, max(MIN_LOGPROB, logprob)) for logprob in logprobs)


def confidence(logprobs: Sequence[float], weights: Mapping[str, float]) -> float:
    """The probability that a line is exactly the one that its user wants, in [0, 1].

    Without weights, it is the model's own probability of the line.
    """
    if not weights:
        return math.exp(total_logprob(logprobs))
    return sigmoid(weights["intercept"] + weights["total"] * total_logprob(logprobs))


def sigmoid(log_odds: float) -> float:
    """The probability of these log-odds."""
    return 1.0 / (1.0 + math.exp(-max(-40.0, min(40.0, log_odds))))


# ── the value of the first lines ─────────────────────────────────────────────────────────────────────────────


NEXT_LINE = 2.0  # scale of the cost for a suggestion that begins with the next line


class Bar(NamedTuple):
    """The demands on a suggestion that is shown."""

    cost: float = 0.0  # of a wrong one, in characters; 0: only the confidence decides
    least: float = 0.0  # lowest confidence in its lines, all together

    def at(self, text: str) -> Bar:
        """For a suggestion that begins with `text`: higher for one that begins with a new line.

        The line at the cursor is complete then, as after most acceptances. Enter shows the suggestion again.
        """
        return self._replace(cost=self.cost * NEXT_LINE) if text.lstrip(" \t").startswith("\n") else self


LEVELS: Mapping[str, Bar] = {  # by completion.eagerness, chosen by `python -m benchmarks economy`
    "low": Bar(7.0, least=0.5),
    "medium": Bar(7.0, least=0.1),
    "high": Bar(),
}


class LineValue(NamedTuple):
    """The first lines of a suggestion, up to one of them."""

    confidence: float  # that all of them are right
    saved: float  # expected characters of its first lines that are right
    characters: int

    def value(self, bar: Bar) -> float:
        """The value of showing them, in characters."""
        return self.saved - (1.0 - self.confidence) * bar.cost


def line_values(own_lines: Sequence[Line], begin: int, curve: Curve) -> list[LineValue]:
    """For each number of first lines of a text from `begin` on, their confidence and the characters that they save.

    A line without tokens, of which no probability is known, counts as right.
    """
    values: list[LineValue] = []
    sure, saved, start = 1.0, 0.0, begin
    for number, line in enumerate(own_lines):
        if line.logprobs:
            sure *= confidence(line.logprobs, curve.later if number else curve.first)
        saved += sure * (line.end - start)
        values.append(LineValue(sure, saved, line.end - begin))
        start = line.end
    return values


def lines_to_show(values: Sequence[LineValue], bar: Bar) -> int:
    """The number of first lines with the highest value, the most of equal ones; 0 if none is positive.

    Without a cost, all that are sure enough.
    """
    sure = [value for value in values if value.confidence >= bar.least]  # it falls from line to line
    if not sure or not bar.cost:
        return len(sure)
    worth = [value.value(bar) for value in sure]
    best = max(worth)
    return len(worth) - worth[::-1].index(best) if best > 0 else 0


def needed_confidence(value: LineValue, bar: Bar) -> float:
    """The confidence from which one line is worth showing; 0 if it always is."""
    if not bar.cost:
        return bar.least
    return max(bar.least, bar.cost / (value.characters + bar.cost))
