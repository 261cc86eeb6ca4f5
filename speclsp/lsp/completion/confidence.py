"""How likely it is that a suggestion is what its user wants, and whether that is enough to show it unasked.

    what the engine thought of each token ─► of a line ─► confidence, as measured (CURVES) ─┐
    completion.eagerness ─► wanted ─► a little more or less, by what was taken lately ──────┴─► shown, cut, or "unsure"

A confidence is the probability that the line is, to the letter, what a person would have written. It goes by how much
of the line, from its start, is right if the model's probabilities are: whoever types along with a suggestion, or takes
it word by word, gains by a right beginning, and the end of a long line is never sure. The weights come from `speclsp
bench calibration`, over tasks whose answer is known; they are few, so that they can be read, and those of probabilities
are not negative: the surer the model, the surer this. A block is shown up to the first line that is not
sure enough. What was asked for by hand is always shown, and so is what comes without probabilities, as from other
servers, or from a model that was not measured.

Users differ from tasks, and languages among themselves. What became of suggestions shifts the bar of their language,
by half a unit of log-odds at most, and is forgotten by halves, a week each. Counts come from feedback.py and, where
`stats.enabled`, from the last weeks' numbers.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Cuts, Reason

LEAST_LOGPROB = -12.0  # of a token; beyond, one that cannot come is as good as another
LEAST_SHARE = 0.001  # of a line that is right; and the most is 1 less as much

Thought = tuple[int, float]  # what was thought of a token: how many characters it brings, and its log-probability


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What a model's probabilities are worth. All of it is made by `python -m benchmarks calibration`."""

    weights: Mapping[str, float]  # of what `features` tells of a line, in log-odds
    wanted: Mapping[str, float]  # the least confidence that is shown, by eagerness
    expected: Mapping[str, float]  # the mean confidence of what that shows


CURVES: Mapping[str, Curve] = {  # by pair; what others think of their tokens nobody has measured
    # 2026-11-22, full set: 661 suggestions from 46 packages; on the
    # half that it is not made from, area under ROC 0.87, Brier's score 0.14
    "qwen2.5-coder-0.5b-instruct": Curve(
        weights={"intercept": -1.26, "share": 0.816},
        wanted={"low": 0.13, "medium": 0.02, "high": 0.0},
        expected={"low": 0.49, "medium": 0.35, "high": 0.34},
    ),
}

# ── what is known of a line ──────────────────────────────────────────────────────────────────────────────────


class TokenSpan(NamedTuple):
    """A token as the engine told of it: where it begins and ends in the text, and its log-probability."""

    start: int
    end: int
    logprob: float


BEGINS = attrgetter("start")


class Line(NamedTuple):
    """A line of a text, and what its tokens were thought of."""

    end: int  # in the text; the newline is not in it
    thoughts: tuple[Thought, ...]


class Place(NamedTuple):
    """Where in a line the cursor is."""

    blank: bool = True  # nothing but blanks before it
    word: bool = False  # right behind a letter or digit
    amid: bool = False  # text right of it

    @staticmethod
    def of(before: str, after: str) -> Place:
        """From the cursor's line."""
        return Place(not before.strip(), before[-1:].isalnum() or before[-1:] == "_", bool(after.strip()))


def token_spans(pieces: Sequence[Thought], start: int = 0) -> list[TokenSpan]:
    """From the characters that each token brought, and its log-probability."""
    made = []
    for characters, logprob in pieces:
        made.append(TokenSpan(start, start + characters, logprob))
        start += characters
    return made


def lines(text: str, tokens: Sequence[TokenSpan], begin: int = 0) -> Iterator[Line]:
    """The lines of `text[begin:]` that say something, the first with the blank ones before it.

    A token belongs to the line it begins in, and so does the newline to the line it ends. One that was begun to be
    typed, before `begin`, is agreed upon.
    """
    start = begin
    while start < len(text):
        first = next((at for at in range(start, len(text)) if not text[at].isspace()), len(text))
        if first == len(text):
            return
        found = text.find("\n", first)
        end = found if found >= 0 else len(text)
        low, high = bisect_left(tokens, start, key=BEGINS), bisect_right(tokens, end, key=BEGINS)
        yield Line(end, tuple((min(one.end, end) - one.start, one.logprob) for one in tokens[low:high]))
        start = end + 1


def right_share(thoughts: Sequence[Thought]) -> float:
    """How much of a line is right from its start on, if the probabilities are: of each character, that of all to it."""
    right = every = total = 0.0
    for characters, logprob in thoughts:
        total += logprob
        right, every = right + characters * math.exp(total), every + characters
    return right / every if every else math.exp(total)


def features(thoughts: Sequence[Thought], place: Place) -> dict[str, float]:
    """What a curve weighs, of a line with at least one token."""
    clipped = [(characters, min(0.0, max(LEAST_LOGPROB, one))) for characters, one in thoughts]
    logprobs = [one for _, one in clipped]
    return {
        "intercept": 1.0,
        "share": log_odds(min(1.0 - LEAST_SHARE, max(LEAST_SHARE, right_share(clipped)))),
        "total": sum(logprobs),
        "worst": min(logprobs),
        "first": logprobs[0],
        "length": math.log(len(logprobs)),
        "blank": float(place.blank),
        "word": float(place.word),
        "amid": float(place.amid),
    }


def confidence(thoughts: Sequence[Thought], place: Place, weights: Mapping[str, float]) -> float:
    """The probability that a line is what its user wants."""
    known = features(thoughts, place)
    return sigmoid(sum(weight * known[name] for name, weight in weights.items()))


def sigmoid(log_odds: float) -> float:
    """The probability of these log-odds."""
    return 1.0 / (1.0 + math.exp(-max(-40.0, min(40.0, log_odds))))


def log_odds(probability: float) -> float:
    """Of a probability between 0 and 1, neither included."""
    return math.log(probability / (1.0 - probability))


# ── what is wanted ───────────────────────────────────────────────────────────────────────────────────────────

HALF_LIFE_S = 7 * 86400.0
PRIOR = 20.0  # so many suggestions, taken as often as expected, stand against those that were seen
IGNORED = 0.5  # what an ignored one weighs: many go because the next key came first
MOST_SHIFT = 0.5  # of log-odds
LANGUAGES = 64  # that are remembered
TAKEN_AS = ("accepted", "partly", "typed")
LEFT_AS = ("ignored", "undone")


@dataclass(slots=True)
class AcceptanceRate:
    """What became of suggestions in one language, the older ones counting less."""

    taken: float = 0.0
    left: float = 0.0
    at_s: float = 0.0

    def fade(self, now_s: float) -> None:
        """Let time pass."""
        share = 0.5 ** (max(0.0, now_s - self.at_s) / HALF_LIFE_S)
        self.taken, self.left, self.at_s = self.taken * share, self.left * share, now_s

    def shift(self, expected: float) -> float:
        """How many log-odds likelier than `expected` suggestions are taken; bounded, and nothing without any."""
        seen = self.taken + IGNORED * self.left
        share = (self.taken + PRIOR * expected) / (seen + PRIOR)
        return max(-MOST_SHIFT, min(MOST_SHIFT, log_odds(share) - log_odds(expected)))


class AcceptanceHistory:
    """The same for all languages of one editor."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._by_language: dict[str, AcceptanceRate] = {}

    def learn(self, language: str, counts: Mapping[str, int], ago_s: float = 0.0) -> None:
        """These became of suggestions, named as feedback.py does, `ago_s` ago. What is taken back has less than 0."""
        taken, left = (sum(counts.get(name, 0) for name in names) for names in (TAKEN_AS, LEFT_AS))
        if taken or left:
            taste, share = self._of(language), 0.5 ** (ago_s / HALF_LIFE_S)
            taste.taken = max(0.0, taste.taken + share * taken)
            taste.left = max(0.0, taste.left + share * left)

    def wanted(self, language: str, eagerness: str, curve: Curve) -> float:
        """The least confidence that is shown."""
        least = curve.wanted[eagerness]
        if not 0.0 < least < 1.0:
            return least
        return sigmoid(log_odds(least) - self._of(language).shift(curve.expected[eagerness]))

    def seen(self, language: str) -> tuple[float, float]:
        """How many were taken and how many left, as they count now."""
        taste = self._of(language)
        return taste.taken, taste.left

    def _of(self, language: str) -> AcceptanceRate:
        taste = self._by_language.setdefault(language, AcceptanceRate(at_s=self._clock()))
        if len(self._by_language) > LANGUAGES:  # an editor may call them anything
            del self._by_language[next(iter(self._by_language))]
        taste.fade(self._clock())
        return taste


# ── the gate ─────────────────────────────────────────────────────────────────────────────────────────────────


class GateDecision(NamedTuple):
    """Whether a text is shown."""

    confidence: float | None  # of its first line; None: nothing is known of it
    wanted: float
    keep: int  # up to where it is sure enough, always the end of a line


def evaluate(
    text: str, tokens: Sequence[TokenSpan], begin: int, place: Place, wanted: float, curve: Curve
) -> GateDecision:
    """What to show of `text[begin:]`; `keep` counts from `begin`."""
    first: float | None = None
    keep = 0
    for line in lines(text, tokens, begin):
        if line.thoughts:
            sure = confidence(line.thoughts, place, curve.weights)
            first = sure if first is None and not keep else first
            if sure < wanted:
                return GateDecision(first, wanted, keep)
        keep, place = line.end - begin, Place()
    return GateDecision(first, wanted, len(text) - begin)


def apply_gate(
    made: Suggestion | NoSuggestion, plan: SuggestionPlan, text: str, verdict: GateDecision, cuts: Cuts
) -> Suggestion | NoSuggestion:
    """What of a suggestion that `plan` made of `text` is shown: all, its first lines, or nothing. Never another text.

    Where its first lines by themselves would not be a suggestion, as half a bracket is none, it is all shown.
    """
    if isinstance(made, NoSuggestion) or verdict.keep >= len(text.rstrip()):
        return made
    if not verdict.keep:
        return NoSuggestion(Reason.UNSURE)
    less = plan.clean(text[: verdict.keep])
    if isinstance(less, NoSuggestion) or less.start != made.start or not made.text.startswith(less.text):
        return made
    if len(less.text) < len(made.text):
        cuts.append((Reason.UNSURE.value, len(made.text) - len(less.text)))
    return less
