"""Confidence in a suggestion, and the value of showing it.

    log-probabilities of tokens ─► confidence in each line, by a measured curve (CURVES) ─────────────┐
    completion.eagerness ─► cost of a wrong suggestion, scaled by recent acceptance ──────────────────┴─► value

Confidence in the first line is the probability that it is exactly the line that its user wants: a logistic regression
on the log-probability of the line. Later lines have a regression of their own, given that all lines above are right.
`python -m benchmarks economy` fits both on functions that are typed again. The weight of the log-probability is
positive: the surer the model, the higher the confidence. A model without a curve has the plain probability.

A suggestion of k lines is worth the characters that it saves its user, less the cost of a wrong one, in characters:

    saved_k - (1 - p_k) cost

Most users accept whole lines, so `saved_k` counts the lines that are right. For a user who accepts single words, it
counts the characters that are right from the start on, in a wrong line too. The best k is shown, and nothing if no
value is positive, or if the confidence in the first line is below the lowest one of the level.

Users differ from tasks, and languages differ among themselves. The acceptance of earlier suggestions scales the cost
in their language, by half a unit of log-odds at most, with a half-life of one week. It also shows who accepts single
words. The counts come from acceptance.py and, where `stats.enabled`, from the statistics of the last weeks.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

MIN_LOGPROB = -12.0  # of a token; below it, differences do not matter

TokenProb = tuple[int, float]  # of a token: the characters it brings to the line, and its log-probability


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Calibration of one model, computed by `python -m benchmarks economy`."""

    first: Mapping[str, float]  # weights of the first line, in log-odds: "intercept" and "total"; none: probability
    later: Mapping[str, float]  # the same of each further line, given that the lines above are right
    expected: float  # share of right first lines among the shown at "medium"


# 2026-11-29, with the adapter fill-9: 1914 candidates in 60 bodies of 35 packages;
# on the half that it is not made from, area under ROC 0.92, Brier's score 0.10
QWEN_05B = Curve(first={"intercept": 1.83, "total": 1.6}, later={"intercept": 1.17, "total": 1.18}, expected=0.62)
CURVES: Mapping[str, Curve] = {  # by model
    "qwen2.5-coder-0.5b-instruct": QWEN_05B,
    # 2026-11-29, in int4: 1749 candidates in 60 bodies of 35 packages;
    # on the half that it is not made from, area under ROC 0.92, Brier's score 0.10
    "qwen2.5-coder-1.5b-instruct": Curve(
        first={"intercept": 1.71, "total": 2.04}, later={"intercept": 1.2, "total": 2.21}, expected=0.64
    ),
}
PLAIN = Curve(first={}, later={}, expected=QWEN_05B.expected)  # of models that were not measured
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
    tokens: tuple[TokenProb, ...]


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
        own = [(min(token.end, end) - token.start, token.logprob) for token in tokens[low:high]]
        if start == begin and low and tokens[low - 1].end > begin:
            token = tokens[low - 1]
            left = LEFT_OF_LOGPROB[min(begin - token.start, len(LEFT_OF_LOGPROB) - 1)]
            own.insert(0, (min(token.end, end) - begin, left * token.logprob))
        yield Line(end, tuple(own))
        start = end + 1


def clipped(logprob: float) -> float:
    """A log-probability between MIN_LOGPROB and 0."""
    return min(0.0, max(MIN_LOGPROB, logprob))


# ── the confidence in a line ─────────────────────────────────────────────────────────────────────────────────


def total_logprob(tokens: Sequence[TokenProb]) -> float:
    """The feature "total": the log-probability of a line with at least one token, as a whole."""
    return sum(clipped(logprob) for _, logprob in tokens)


def confidence(tokens: Sequence[TokenProb], weights: Mapping[str, float]) -> float:
    """The probability that a line is exactly the one that its user wants, in [0, 1].

    Without weights, it is the model's own probability of the line.
    """
    if not weights:
        return math.exp(total_logprob(tokens))
    return sigmoid(weights["intercept"] + weights["total"] * total_logprob(tokens))


def sigmoid(log_odds: float) -> float:
    """The probability of these log-odds."""
    return 1.0 / (1.0 + math.exp(-max(-40.0, min(40.0, log_odds))))


def log_odds(probability: float) -> float:
    """The log-odds of a probability between 0 and 1, both excluded."""
    return math.log(probability / (1.0 - probability))


# ── the value of the first lines ─────────────────────────────────────────────────────────────────────────────


NEXT_LINE = 2.0  # scale of the cost for a suggestion that begins with the next line


class Bar(NamedTuple):
    """The demands on a suggestion that is shown."""

    cost: float = 0.0  # of a wrong one, in characters; 0: only the confidence decides
    least: float = 0.0  # lowest confidence in its lines, all together
    words: bool = False  # its user accepts single words

    def raised(self, factor: float) -> Bar:
        """With a cost that is `factor` times as high."""
        return self._replace(cost=self.cost * factor)

    def at(self, text: str) -> Bar:
        """For a suggestion that begins with `text`: higher for one that begins with a new line.

        The line at the cursor is complete then, as after most acceptances. Enter shows the suggestion again.
        """
        return self.raised(NEXT_LINE) if text.lstrip(" \t").startswith("\n") else self


class Level(NamedTuple):
    """A value of completion.eagerness. Chosen by `python -m benchmarks economy`."""

    lines: float  # cost of a wrong suggestion, in characters, for a user who accepts whole lines
    words: float  # for a user who accepts single words too
    least: float  # lowest confidence in the lines that are shown, all together

    def bar(self, words: bool = False) -> Bar:
        """The bar of this level. `words`: for a user who accepts single words too."""
        return Bar(self.words if words else self.lines, self.least, words)


LEVELS: Mapping[str, Level] = {
    "low": Level(7.0, 4.0, least=0.5),
    "medium": Level(7.0, 4.0, least=0.1),
    "high": Level(0.0, 0.0, least=0.0),
}


class LineValue(NamedTuple):
    """The first lines of a suggestion, up to one of them."""

    confidence: float  # that all of them are right
    line_characters: float  # expected characters of its first lines that are right
    word_characters: float  # expected characters that are right from the start on
    characters: int

    def value(self, bar: Bar) -> float:
        """The value of showing them, in characters."""
        saved = self.word_characters if bar.words else self.line_characters
        return saved - (1.0 - self.confidence) * bar.cost


def line_values(own_lines: Sequence[Line], begin: int, curve: Curve) -> list[LineValue]:
    """For each number of first lines of a text from `begin` on, their confidence and the characters that they save.

    A line without tokens, of which no probability is known, counts as right.
    """
    values: list[LineValue] = []
    likelihood, by_words, by_lines, sure, start = 1.0, 0.0, 0.0, 1.0, begin
    for number, line in enumerate(own_lines):
        if line.tokens:
            sure *= confidence(line.tokens, curve.later if number else curve.first)
        else:
            by_words += likelihood * (line.end - start)
        for characters, logprob in line.tokens:
            likelihood *= math.exp(clipped(logprob))
            by_words += characters * likelihood
        by_lines += sure * (line.end - start)
        values.append(LineValue(sure, by_lines, by_words, line.end - begin))
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
    by_value = 1.0 - value.word_characters / bar.cost if bar.words else bar.cost / (value.characters + bar.cost)
    return max(bar.least, by_value)


# ── the cost, by recent acceptance ────────────────────────────────────────────────────────────────────────────────────

HALF_LIFE_S = 7 * 86400.0
PRIOR = 20.0  # weight of the expected acceptance, in suggestions
IGNORED_WEIGHT = 0.5  # of an ignored suggestion: many end because the next key came first
MAX_SHIFT = 0.5  # in log-odds
MAX_LANGUAGES = 64
WORD_SHARE, WORD_WEIGHT = 0.25, 5.0  # of the accepted suggestions; the weight from which it counts
TAKEN_AS = ("accepted", "partly", "typed")
LEFT_AS = ("ignored", "undone")
BY_WORDS = ("words",)


@dataclass(slots=True)
class AcceptanceRate:
    """Taken and left suggestions of one language, the older ones weighing less."""

    taken: float = 0.0
    left: float = 0.0
    words: float = 0.0  # suggestions of which single words were accepted
    at_s: float = 0.0

    def decay(self, now_s: float) -> None:
        """Weigh the counts as of `now_s`."""
        share = 0.5 ** (max(0.0, now_s - self.at_s) / HALF_LIFE_S)
        self.taken, self.left, self.words = self.taken * share, self.left * share, self.words * share
        self.at_s = now_s

    def shift(self, expected: float) -> float:
        """Log-odds by which suggestions are taken more often than `expected`; bounded, and 0 without any."""
        total = self.taken + IGNORED_WEIGHT * self.left
        share = (self.taken + PRIOR * expected) / (total + PRIOR)
        return max(-MAX_SHIFT, min(MAX_SHIFT, log_odds(share) - log_odds(expected)))


class AcceptanceHistory:
    """The acceptance rates of all languages of one editor."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._by_language: dict[str, AcceptanceRate] = {}

    def learn(self, language: str, counts: Mapping[str, int], ago_s: float = 0.0) -> None:
        """Add counts named as in acceptance.py, made `ago_s` ago. An acceptance that was undone counts -1."""
        added = [sum(counts.get(name, 0) for name in names) for names in (TAKEN_AS, LEFT_AS, BY_WORDS)]
        if any(added):
            rate, share = self._rate_of(language), 0.5 ** (ago_s / HALF_LIFE_S)
            rate.taken, rate.left, rate.words = (
                max(0.0, before + share * count)
                for before, count in zip((rate.taken, rate.left, rate.words), added, strict=True)
            )

    def bar(self, language: str, eagerness: str, curve: Curve) -> Bar:
        """The bar of a level: lower where suggestions are accepted more often than expected.

        Where single words are accepted often, it is the one for them.
        """
        rate, level = self._rate_of(language), LEVELS[eagerness]
        words = rate.words >= max(WORD_WEIGHT, WORD_SHARE * rate.taken)
        return level.bar(words).raised(math.exp(-rate.shift(curve.expected)))

    def counts(self, language: str) -> tuple[float, float]:
        """The weighted counts of taken and left suggestions."""
        rate = self._rate_of(language)
        return rate.taken, rate.left

    def _rate_of(self, language: str) -> AcceptanceRate:
        rate = self._by_language.setdefault(language, AcceptanceRate(at_s=self._clock()))
        if len(self._by_language) > MAX_LANGUAGES:  # an editor may send any name
            del self._by_language[next(iter(self._by_language))]
        rate.decay(self._clock())
        return rate
