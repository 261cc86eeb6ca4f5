"""Confidence in a suggestion: the probability that a line is exactly the text its user wants.

    log-probabilities of tokens ─► of a line ─► confidence, by a measured curve (CURVES) ─┐
    completion.eagerness ─► threshold ─► shifted by recent acceptance ────────────────────┴─► gate.py

The confidence is a logistic regression on one feature: the share of the line, from its start, that is right if the
model's probabilities are. A user who types through a suggestion, or accepts it word by word, gains by a right
beginning, and the end of a long line is never certain. The weights come from the calibration benchmark, over tasks
with a known answer. They are few, so that they can be read. The weight of the share is not negative: the surer the
model, the higher the confidence. A block is shown up to the first line below the threshold.

Users differ from tasks, and languages differ among themselves. The acceptance of earlier suggestions shifts the
threshold of their language, by half a unit of log-odds at most, with a half-life of one week. The counts come from
acceptance.py and, where `stats.enabled`, from the statistics of the last weeks.
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
MIN_SHARE = 0.001  # of a line that is right; the largest share is 1 - MIN_SHARE

TokenProb = tuple[int, float]  # of a token: the characters it brings to the line, and its log-probability


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Calibration of one model pair. All of it is computed by `python -m benchmarks calibration`."""

    weights: Mapping[str, float]  # of the regression, in log-odds: "intercept" and "share"
    wanted: Mapping[str, float]  # the lowest confidence that is shown, by eagerness
    expected: Mapping[str, float]  # the mean confidence of the suggestions that are then shown


CURVES: Mapping[str, Curve] = {  # by pair; other pairs were not measured
    # 2026-11-26, full set, with the adapter fill-4: 662 suggestions from 46 packages; on the
    # half that it is not made from, area under ROC 0.89, Brier's score 0.13
    "qwen2.5-coder-0.5b-instruct": Curve(
        weights={"intercept": -0.995, "share": 1.03},
        wanted={"low": 0.1, "medium": 0.006, "high": 0.0},
        expected={"low": 0.5, "medium": 0.38, "high": 0.38},
    ),
}

# ── the confidence of a line ─────────────────────────────────────────────────────────────────────────────────


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
    `begin` was typed in part by the user and is not scored.
    """
    start = begin
    while start < len(text):
        first = next((at for at in range(start, len(text)) if not text[at].isspace()), len(text))
        if first == len(text):
            return
        newline = text.find("\n", first)
        end = newline if newline >= 0 else len(text)
        low, high = bisect_left(tokens, start, key=START), bisect_right(tokens, end, key=START)
        yield Line(end, tuple((min(token.end, end) - token.start, token.logprob) for token in tokens[low:high]))
        start = end + 1


def right_share(tokens: Sequence[TokenProb]) -> float:
    """Expected share of a line that is right from its start on: the mean over characters of the chance of all up to it.

    A line without characters has the chance of all its tokens.
    """
    right = characters_total = logprob_total = 0.0
    for characters, logprob in tokens:
        logprob_total += logprob
        right += characters * math.exp(logprob_total)
        characters_total += characters
    return right / characters_total if characters_total else math.exp(logprob_total)


def share_log_odds(tokens: Sequence[TokenProb]) -> float:
    """The feature "share": log-odds of the right share of a line with at least one token, clipped."""
    clipped = [(characters, min(0.0, max(MIN_LOGPROB, logprob))) for characters, logprob in tokens]
    return log_odds(min(1.0 - MIN_SHARE, max(MIN_SHARE, right_share(clipped))))


def confidence(tokens: Sequence[TokenProb], weights: Mapping[str, float]) -> float:
    """The probability that a line is exactly what its user wants, in [0, 1]."""
    return sigmoid(weights.get("intercept", 0.0) + weights.get("share", 0.0) * share_log_odds(tokens))


def sigmoid(log_odds: float) -> float:
    """The probability of these log-odds."""
    return 1.0 / (1.0 + math.exp(-max(-40.0, min(40.0, log_odds))))


def log_odds(probability: float) -> float:
    """The log-odds of a probability between 0 and 1, both excluded."""
    return math.log(probability / (1.0 - probability))


# ── the threshold ────────────────────────────────────────────────────────────────────────────────────────────

HALF_LIFE_S = 7 * 86400.0
PRIOR = 20.0  # weight of the expected acceptance, in suggestions
IGNORED_WEIGHT = 0.5  # of an ignored suggestion: many end because the next key came first
MAX_SHIFT = 0.5  # in log-odds
MAX_LANGUAGES = 64
TAKEN_AS = ("accepted", "partly", "typed")
LEFT_AS = ("ignored", "undone")


@dataclass(slots=True)
class AcceptanceRate:
    """Taken and left suggestions of one language, the older ones weighing less."""

    taken: float = 0.0
    left: float = 0.0
    at_s: float = 0.0

    def decay(self, now_s: float) -> None:
        """Weigh the counts as of `now_s`."""
        share = 0.5 ** (max(0.0, now_s - self.at_s) / HALF_LIFE_S)
        self.taken, self.left, self.at_s = self.taken * share, self.left * share, now_s

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
        taken_count, left_count = (sum(counts.get(name, 0) for name in names) for names in (TAKEN_AS, LEFT_AS))
        if taken_count or left_count:
            rate, share = self._rate_of(language), 0.5 ** (ago_s / HALF_LIFE_S)
            rate.taken = max(0.0, rate.taken + share * taken_count)
            rate.left = max(0.0, rate.left + share * left_count)

    def threshold(self, language: str, eagerness: str, curve: Curve) -> float:
        """The lowest confidence that is shown."""
        usual = curve.wanted[eagerness]
        if not 0.0 < usual < 1.0:
            return usual
        return sigmoid(log_odds(usual) - self._rate_of(language).shift(curve.expected[eagerness]))

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
