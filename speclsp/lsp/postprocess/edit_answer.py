"""The first hunk of a model's answer, as soon as the answer has rejoined the window, and the probability of its change.

window   a b c d        answer so far   a B c        ─►  hunk: b becomes B, because c is in the window again
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speclsp.lsp.syntax.text_windows import common_ends


@dataclass(frozen=True, slots=True)
class AnswerHunk:
    """Lines `[first, end)` of the window, the lines in their place, and the changed characters of the answer.

    Characters that the old and the new lines share at their ends are copies. Where only text goes, `answer_start` and
    `answer_end` are equal: the character after it shows that it goes.
    """

    first: int
    end: int
    lines: tuple[str, ...]
    answer_start: int
    answer_end: int


def first_hunk(window: Sequence[str], answer: str, ended: bool) -> AnswerHunk | None:
    """The first change of the window; None while there is none, or while its end is not known."""
    lines = answer.split("\n")
    if not ended or not lines[-1]:
        lines.pop()  # not complete yet, or the text after the last newline
    head = next((n for n, (old, new) in enumerate(zip(window, lines, strict=False)) if old != new), None)
    head = min(len(window), len(lines)) if head is None else head
    rejoined = _rejoined(window, lines, head)
    if rejoined is None:
        if not ended or head == len(window) == len(lines):
            return None
        rejoined = len(window), len(lines)
    end, stop = rejoined
    while end > head and stop > head and window[end - 1] == lines[stop - 1]:
        end, stop = end - 1, stop - 1
    old, new = "\n".join(window[head:end]), "\n".join(lines[head:stop])
    same, tail = common_ends(old, new)
    start = sum(len(line) + 1 for line in lines[:head])
    changed_end = start + max(same, len(new) - tail + (end == head))  # a new line's own end belongs to the change
    return AnswerHunk(head, end, tuple(lines[head:stop]), start + same, changed_end)


def _rejoined(window: Sequence[str], lines: Sequence[str], head: int) -> tuple[int, int] | None:
    """(line of the window, line of the answer) that are the same again after the first change; None while none is.

    The line has a word: brackets and blank lines are everywhere. If lines went and none came, two lines must agree.
    """
    for at in range(head, len(lines)):
        if any(map(str.isalnum, lines[at])):
            for line in range(head, len(window)):
                if window[line] == lines[at]:
                    is_last = line + 1 == len(window)
                    if at > head or (not is_last and lines[at + 1 : at + 2] == [window[line + 1]]):
                        return line, at
    return None


def joint_logprob(tokens: Iterable[tuple[int, float]], start: int, end: int) -> float:
    """The logarithm of the probability of all tokens that hold characters from `start` to before `end` of an answer.

    If `end` is `start`, the token at `start` counts. Without any token the probability is 0. `tokens`: the characters
    and the log-probability of each, in order; one without characters is a part of the next character.
    """
    at, logprobs = 0, []
    for characters, logprob in tokens:
        if at < max(end, start + 1) and at + max(characters, 1) > start:
            logprobs.append(logprob)
        at += characters
    return math.fsum(logprobs) if logprobs else -math.inf
