"""Scores of one proposed edit: deltaChrF, and whether it undoes the user's edits.

chrF: Popović 2015, character n-grams of 1 to 6, beta 2. deltaChrF compares only the lines that an edit touches, as the
evaluations of Zed and cursortab.nvim do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

MAX_CHARACTERS = 6  # of an n-gram
BETA = 2.0  # recall counts for more than precision


def delta_chrf(before: Sequence[str], candidate: Sequence[str], reference: Sequence[str]) -> float:
    """chrF of the lines that `candidate` changes in `before`, against those that `reference` changes; 0 to 100."""
    return chrf(delta(before, candidate), delta(before, reference))


def delta(before: Sequence[str], after: Sequence[str]) -> str:
    """The lines of `after` between the lines that it begins and ends with like `before`."""
    most = min(len(before), len(after))
    head = next((n for n in range(most) if before[n] != after[n]), most)
    tail = next((n for n in range(most - head) if before[-1 - n] != after[-1 - n]), most - head)
    return "\n".join(after[head : len(after) - tail])


def chrf(candidate: str, reference: str) -> float:
    """The mean F-score of the n-gram lengths that either text has; 100 for two empty texts."""
    scores = []
    for length in range(1, MAX_CHARACTERS + 1):
        ours, theirs = ngrams(candidate, length), ngrams(reference, length)
        if ours or theirs:
            scores.append(f_score((ours & theirs).total(), ours.total(), theirs.total()))
    return 100 * sum(scores) / len(scores) if scores else 100.0


def ngrams(text: str, length: int) -> Counter[str]:
    """The n-grams of one length."""
    return Counter(text[start : start + length] for start in range(len(text) - length + 1))


def f_score(matches: int, candidates: int, references: int) -> float:
    """F_beta of so many matches."""
    if not matches:
        return 0.0
    precision, recall = matches / candidates, matches / references
    return (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)


def undoes(earlier: Sequence[str], now: Sequence[str], proposed: Sequence[str]) -> bool:
    """True if most lines that an edit changes go back to the text before the user's last edits.

    Lines without a letter or digit do not count.
    """
    gone, come = lines_between(earlier, now)
    removed, added = lines_between(now, proposed)
    changed = removed.total() + added.total()
    return bool(changed) and ((removed & come).total() + (added & gone).total()) * 2 > changed


def lines_between(before: Sequence[str], after: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """(lines that went, lines that came)."""
    old, new = (Counter(line.strip() for line in lines if any(map(str.isalnum, line))) for lines in (before, after))
    return old - new, new - old
