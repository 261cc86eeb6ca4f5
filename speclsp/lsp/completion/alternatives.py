"""Further suggestions for somebody who asked by hand: they part from the others where the model was of two minds.

    first        self.items.append(item)          greedy, as ever; the engine tells of the branches it left
    likeliest    self.items.extend 0.21           is begun with, and goes on greedily: one more token to read
    told again   self.items .append               a branch that spells the same is passed over
    alike        self.items.append(item);         and what comes out like another one is not shown

The likeliest branch of all that were told of is the next to try, so the texts come in the order of what the model
would have written. Over a server that tells of none, others are drawn.
"""

from __future__ import annotations

import heapq
import re
import string
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.completion.stream import Stream
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion

BRANCHES = 3  # told of, at each place
LEAST = 0.01  # of the probability that a completion begins so
TRIES = 3  # for each one that is wanted: the others come out like what there is, or like nothing
DRAWN_TEMPERATURE = 0.8  # of those that are drawn

_LOOKED_BACK = 400  # characters of the line before the cursor
_LOOKED_AROUND = 50_000  # characters of the document in which a name may be known
_END = string.whitespace + ",;:.()[]{}\"'`"
_BOUND = re.compile(  # a name that the text gives a value to: x = ..., for x in ..., const x = ..., with ... as x
    r"(?:^[ \t]*|\b(?:for|let|const|var|val|auto)\s+)([A-Za-z_]\w*)(?=\s*(?::=|=(?![=>])|\s(?:in|of)\b))"
    r"|\bas\s+([A-Za-z_]\w*)",
    re.MULTILINE,
)
_REMARK = re.compile(r"(?<=\S)[ \t]+(?:#|//|--)[ \t].*$", re.MULTILINE)  # behind code


class Job(Protocol):
    """Whoever wants them: see session.Job."""

    wanted: int
    found: list[Suggestion]

    @property
    def snapshot(self) -> Snapshot:
        """What is completed."""


Made = tuple[Suggestion | NoSuggestion, Stream]


async def find(
    job: Job,
    first: Suggestion | NoSuggestion,
    stream: Stream,
    asking: Callable[[], FimRequest],
    make: Callable[[FimRequest], Awaitable[Made]],
) -> None:
    """Fill `job.found`, one after the other, so that a deadline shows what there is.

    Args:
        first: what came of `stream`, the answer to `asking()`.
        asking: what to ask for anew, with the time that is left.
    """
    if isinstance(first, Suggestion):
        job.found.append(first)
    if stream.branches is None:
        await draw(job, asking, make)
        return
    tries = Alternatives()
    tries.add(stream, first, begin_p=1.0)
    for _ in range(TRIES * (job.wanted - 1)):
        one = tries.next()
        if one is None or len(job.found) >= job.wanted:
            return
        request = asking()
        made, stream = await make(replace(request, begin=one.tokens, previous=""))
        tries.add(stream, made, begin_p=one.p)
        if isinstance(made, Suggestion) and differs(made, job.found, job.snapshot):
            job.found.append(made)


async def draw(job: Job, asking: Callable[[], FimRequest], make: Callable[[FimRequest], Awaitable[Made]]) -> None:
    """The same from a server that tells of no branches."""
    for seed in range(1, job.wanted):
        request = asking()
        warm = max(DRAWN_TEMPERATURE, request.temperature)
        made, _stream = await make(replace(request, temperature=warm, seed=seed, branches=0, previous=""))
        if isinstance(made, Suggestion) and differs(made, job.found, job.snapshot):
            job.found.append(made)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A completion to ask for: one that begins with `tokens`."""

    tokens: tuple[int, ...]
    p: float


class Alternatives:
    """What may be asked for next, the likeliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alternative]] = []
        self._numbers = count()

    def add(self, stream: Stream, made: Suggestion | NoSuggestion, begin_p: float) -> None:
        """A completion was made: what it left aside, as far as that is in what is shown of it.

        Args:
            begin_p: the probability of what it was told to begin with.
        """
        text, most = stream.text, stream.max_tokens - 1
        shown = len(made.text) if isinstance(made, Suggestion) else len(text) + 1
        for branch in stream.branches or ():
            p = begin_p * branch.p
            fits = branch.at < min(most, len(stream.ids) + 1) and branch.chars < shown
            if fits and p >= LEAST and not tells_again(text[branch.chars :], branch.text):
                made_of = Alternative((*stream.ids[: branch.at], branch.token), p)
                heapq.heappush(self._heap, (-p, next(self._numbers), made_of))

    def next(self) -> Alternative | None:
        """The likeliest, once."""
        return heapq.heappop(self._heap)[2] if self._heap else None


def tells_again(text: str, other: str) -> bool:
    """Whether `other` only spells otherwise how `text` begins: in other tokens, blanks or quotes."""
    return plain(text[: 4 * len(other) + 80]).startswith(plain(other))


def differs(made: Suggestion, found: Sequence[Suggestion], snapshot: Snapshot) -> bool:
    """Whether it is another text than those found for a person; one that says less of the same is not.

    Blanks, quotes, ends, remarks and the names of its own variables make no difference.
    """
    said = essence(made, snapshot)
    return bool(said) and not any(essence(other, snapshot).startswith(said) for other in found)


def essence(made: Suggestion, snapshot: Snapshot) -> str:
    """A suggestion without what makes no difference."""
    start = snapshot.text.rfind("\n", 0, made.start) + 1
    line = snapshot.text[max(start, made.start - _LOOKED_BACK) : made.start]
    text = line + made.text
    known = snapshot.text[max(0, made.start - _LOOKED_AROUND) : made.start + _LOOKED_AROUND]
    bound = dict.fromkeys(one or other for one, other in _BOUND.findall(text))
    for number, name in enumerate(bound):
        if name not in line and not re.search(rf"\b{name}\b", known):  # a name of its own
            text = re.sub(rf"\b{name}\b", f"\0{number}", text)
    return plain(_REMARK.sub("", text).rstrip(_END))


def plain(text: str) -> str:
    """Without blanks, and with one kind of quotes."""
    return "".join(text.split()).replace("'", '"').replace("`", '"')
