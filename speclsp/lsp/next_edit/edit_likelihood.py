"""Gate of the deterministic producer: a logistic regression gives the probability of an edit.

    place, its evidence, the newest edit ─► features ─► WEIGHTS ─► probability ─► shown from its kind's threshold on

`python -m benchmarks next-edit-gate` fits the weights to edits between releases of packages, and writes the table. A
weight with a sign in SIGNS has that sign or is left out: a change that was made more often is never less likely.
Proven places are shown whatever their probability: a release that changes more in a line than the name makes a rename
by scope wrong there. They have no part in the fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from math import exp, log2
from typing import NamedTuple

from speclsp.lsp.next_edit.changes.callees import CALLEE
from speclsp.lsp.next_edit.changes.calls.arguments import ARGUMENT
from speclsp.lsp.next_edit.changes.replaced_types import TYPE
from speclsp.lsp.next_edit.changes.shapes.shape_places import SHAPE
from speclsp.lsp.next_edit.changes.substitutions import LINES, RENAME, Edit, Evidence, Place, Substitution, indentation
from speclsp.lsp.syntax.text_windows import WORD

KINDS = (RENAME, LINES, TYPE, CALLEE, ARGUMENT, SHAPE)
SIGNS: Mapping[str, int] = {
    "once": -1, "once_lines": -1, "times": 1, "alike_around": 1, "alike_line": 1, "same_indent": 1,
    "pure": 1, "distance": -1, "accepted": 1, "rejected": -1, "from_accepted": -1, "same_kind": 1,
}  # fmt: skip
FEATURES = (*KINDS, *SIGNS, "new_length", "shorter", "left")
MAX_TIMES = 16  # more is no better evidence
MAX_ORIGINS, MAX_COMPARED = 8, 3  # changed lines that are looked up, and whose surroundings are compared
MIN_ALIKE_AROUND = 0.5  # of lines that were replaced once
AROUND_CHARACTERS = 600  # searched for the lines above and below a place

Features = Mapping[str, float]

# Written by the fitter, up to the next line that starts with #.
THRESHOLDS: Mapping[str, float] = {
    "rename": 0.5,
    "lines": 0.8,
    "type": 0.5,
    "callee": 0.5,
    "argument": 0.5,
    "shape": 0.54,
}
INTERCEPT = -0.248
WEIGHTS: Mapping[str, float] = {
    "lines": 0.374,
    "type": 0.23,
    "callee": 0.004,
    "shape": -0.608,
    "once_lines": -1.327,
    "times": 0.236,
    "alike_around": 0.833,
    "alike_line": 1.339,
    "same_indent": 0.64,
    "pure": 0.534,
    "distance": -0.098,
    "accepted": 0.287,
    "rejected": -0.778,
    "from_accepted": -0.026,
    "same_kind": 0.437,
    "new_length": 0.059,
    "shorter": 0.756,
    "left": -0.24,
}
# End of the table.


def probability(features: Features) -> float:
    """The probability that an edit with these features is right. A feature that is missing is 0."""
    return sigmoid(INTERCEPT + sum(weight * features.get(name, 0.0) for name, weight in WEIGHTS.items()))


def sigmoid(log_odds: float) -> float:
    """The probability of these log-odds."""
    return 1.0 / (1.0 + exp(-max(-40.0, min(40.0, log_odds))))


def is_shown(place: Place, features: Features) -> bool:
    """True for a proven place, for a chain with an accepted edit, and where these features are likely enough."""
    if place.is_proven or goes_on(features):
        return True
    if features.get("once_lines") and features["alike_around"] < MIN_ALIKE_AROUND:
        return False
    return probability(features) >= THRESHOLDS[place.substitution.kind]


def goes_on(features: Features) -> bool:
    """True if the last answer to this substitution was an accepted edit: that never ends its chain."""
    return bool(features.get("accepted")) and not features.get("rejected")


class Chain(NamedTuple):
    """The user's answers to the earlier offers of one substitution in a document."""

    accepted: int = 0
    rejected: int = 0  # since the last accepted one
    lines_away: int = 0  # from the last accepted one to a place
    is_same_kind: bool = False  # as the last accepted edit of any substitution


NO_CHAIN = Chain()


class FeatureReader:
    """The features of the places of one request. What they share is computed once."""

    def __init__(self, text: str, cursor: int, newest: Edit) -> None:
        self.text, self.cursor, self.newest = text, cursor, newest
        self._changes: dict[Substitution, ChangeFacts] = {}

    def features(self, place: Place, chain: Chain = NO_CHAIN) -> dict[str, float]:
        """The features of a place, which would continue a chain."""
        change = self._changes.get(place.substitution)
        if change is None:
            change = ChangeFacts(self.text, self.newest, place.substitution, place.evidence)
            self._changes[place.substitution] = change
        kind, times = place.substitution.kind, place.evidence.times
        line, new_words = self.text[place.start : place.end], words(place.new)
        offsets = sorted(change.offsets, key=lambda item: abs(item[0] - place.start))[:MAX_COMPARED]
        around_place = words_around(self.text, place.start, place.end)
        low, high = sorted((place.start, self.cursor))
        return {
            kind: 1.0,
            "once": float(times == 1),
            "once_lines": float(times == 1 and kind == LINES),
            "times": log2(max(1, min(times, MAX_TIMES))),
            "alike_around": max((common(around_place, change.surroundings[at]) for at, _ in offsets), default=0.0),
            "alike_line": max((common(new_words, line_words) for line_words in change.lines), default=0.0),
            "same_indent": float(not offsets or indentation(line) == indentation(offsets[0][1])),
            "pure": float(change.is_pure),
            "distance": log2(1 + self.text.count("\n", low, high)),
            "accepted": log2(1 + chain.accepted),
            "rejected": float(chain.rejected),
            "from_accepted": log2(1 + chain.lines_away) if chain.accepted else 0.0,
            "same_kind": float(chain.is_same_kind),
            "new_length": log2(1 + len(place.substitution.new)),
            "shorter": float(len(place.substitution.new.strip()) < len(place.substitution.old.strip())),
            "left": log2(1 + change.left),
        }


class ChangeFacts:
    """A substitution in a text, and the lines where the user made it."""

    def __init__(self, text: str, newest: Edit, substitution: Substitution, evidence: Evidence) -> None:
        self.text, self.newest, self.substitution = text, newest, substitution
        origins = [origin.line for origin in evidence.origins[-MAX_ORIGINS:]]
        self.lines = [words(line) for line in origins]
        self.offsets = [(offset, line) for line in origins if (offset := text.find(line)) >= 0]

    @cached_property
    def surroundings(self) -> dict[int, frozenset[str]]:
        """The words around each changed line, by its offset."""
        return {offset: words_around(self.text, offset, offset + len(line)) for offset, line in self.offsets}

    @cached_property
    def left(self) -> int:
        """Occurrences of the old text in the document, apart from those in the new text."""
        kind, old, new = self.substitution.kind, self.substitution.old, self.substitution.new
        needle = old.partition("\n")[0].strip()
        added = new.rpartition("\n")[2].strip() if kind == LINES else new
        inside = self.text.count(added) if added and needle in added else 0
        return max(0, self.text.count(needle) - inside)

    @cached_property
    def is_pure(self) -> bool:
        """True if the newest edit does nothing but this substitution."""
        old, new = self.substitution.old, self.substitution.new
        renamed = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _: new, self.newest.before)
        return bool(old) and renamed == self.newest.after


def words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text))


def common(first: frozenset[str], second: frozenset[str]) -> float:
    """The share of common words of two texts."""
    return 2 * len(first & second) / ((len(first) + len(second)) or 1)


def words_around(text: str, start: int, end: int) -> frozenset[str]:
    """The words of the nearest lines above and below `[start, end)` that are not blank."""
    above = text[max(0, start - AROUND_CHARACTERS) : start].rstrip()
    below = text[end : end + AROUND_CHARACTERS].lstrip()
    return words(above[above.rfind("\n") + 1 :]) | words(below.partition("\n")[0])
