"""Alternative suggestions for an explicit request: best-first search over the branches that the model nearly took.

    first      self.items.append(item)        greedy, as always; the engine reports the branches beside its path
    likeliest  self.items.extend 0.21         the completion begins with it, and continues greedily: one more token
    respelled  self.items .append             a branch that spells the same text is skipped
    alike      self.items.append(item);       a text that resembles an earlier one is not shown

The likeliest of all reported branches is the next to try, so the texts come in the order of the model's probability.
If a server reports no branches, the alternatives are sampled.
"""

from __future__ import annotations

import heapq
import re
import string
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.completion.job import CompletionJob
from speclsp.lsp.completion.stream import Stream
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion

BRANCHES = 3  # reported at each token
MIN_PROBABILITY = 0.01  # that a completion begins with the branch
TRIES = 3  # per wanted alternative: the others resemble earlier ones, or become no suggestion
SAMPLE_TEMPERATURE = 0.8  # the lowest, for sampled alternatives

_LINE_CHARACTERS = 400  # of the line before the cursor
_END = string.whitespace + ",;:.()[]{}\"'`"
_COMMENT = re.compile(r"(?<=\S)[ \t]+(?:#|//|--)[ \t].*$", re.MULTILINE)  # behind code

NextRequest = Callable[[], FimRequest]
Complete = Callable[[FimRequest], Awaitable[tuple[Suggestion | NoSuggestion, Stream]]]


async def generate(
    job: CompletionJob, first: Suggestion | NoSuggestion, stream: Stream, next_request: NextRequest, complete: Complete
) -> None:
    """Fill `job.suggestions` one by one, so that the deadline finds those that are complete.

    Args:
        first: the result of `stream`, which answered the first `next_request()`.
        next_request: the same request again, with the time that is left.
        complete: streams a request to its end. Raises EngineError.
    """
    if isinstance(first, Suggestion):
        job.suggestions.append(first)
    if stream.branches is None:
        await sample(job, next_request, complete)
        return
    queue: list[AlternativeStart] = []
    push_branches(queue, stream, first, begin_p=1.0)
    for tries in range(TRIES * (job.request.wanted - 1)):
        if not queue or len(job.suggestions) >= job.request.wanted:
            return
        start = heapq.heappop(queue)
        result, stream = await complete(replace(next_request(), begin=start.tokens, previous=""))
        push_branches(queue, stream, result, begin_p=-start.minus_p, tries=tries + 1)
        if isinstance(result, Suggestion) and is_distinct(result, job.suggestions, job.snapshot):
            job.suggestions.append(result)


async def sample(job: CompletionJob, next_request: NextRequest, complete: Complete) -> None:
    """Sample the alternatives, for a server that reports no branches."""
    for seed in range(1, job.request.wanted):
        request = next_request()
        temperature = max(SAMPLE_TEMPERATURE, request.temperature)
        sampled = replace(request, temperature=temperature, seed=seed, branches=0, previous="")
        result, _ = await complete(sampled)
        if isinstance(result, Suggestion) and is_distinct(result, job.suggestions, job.snapshot):
            job.suggestions.append(result)


class AlternativeStart(NamedTuple):
    """The beginning of an alternative completion. In a heap, the likeliest comes first; equal ones keep their order."""

    minus_p: float
    order: tuple[int, int]  # the completion it is beside, and its number there
    tokens: tuple[int, ...]


def push_branches(
    queue: list[AlternativeStart], stream: Stream, result: Suggestion | NoSuggestion, begin_p: float, tries: int = 0
) -> None:
    """Add the branches beside a completion to the heap `queue`, as far as they lie in its shown text.

    Args:
        begin_p: the probability of its prescribed first tokens.
        tries: completions before it.
    """
    text, most = stream.text, stream.max_tokens - 1
    shown = len(result.text) if isinstance(result, Suggestion) else len(text) + 1
    for number, branch in enumerate(stream.branches or ()):
        p = begin_p * branch.p
        fits = branch.at < min(most, len(stream.ids) + 1) and branch.chars < shown
        if fits and p >= MIN_PROBABILITY and not is_respelling(text[branch.chars :], branch.text):
            tokens = (*stream.ids[: branch.at], branch.token)
            heapq.heappush(queue, AlternativeStart(-p, (tries, number), tokens))


def is_respelling(text: str, other: str) -> bool:
    """True if `other` only respells the beginning of `text`: in other tokens, blanks or quotes."""
    return without_blanks(text[: 4 * len(other) + 80]).startswith(without_blanks(other))


def is_distinct(suggestion: Suggestion, others: Sequence[Suggestion], snapshot: Snapshot) -> bool:
    """True if a person sees another text than in `others`; the beginning of one of them is not distinct.

    Blanks, quotes, ends and comments make no difference.
    """
    normalized = normalize(suggestion, snapshot)
    return bool(normalized) and not any(normalize(other, snapshot).startswith(normalized) for other in others)


def normalize(suggestion: Suggestion, snapshot: Snapshot) -> str:
    """The text of a suggestion and its line, without everything that makes no difference."""
    start = snapshot.text.rfind("\n", 0, suggestion.start) + 1
    line = snapshot.text[max(start, suggestion.start - _LINE_CHARACTERS) : suggestion.start]
    return without_blanks(_COMMENT.sub("", line + suggestion.text).rstrip(_END))


def without_blanks(text: str) -> str:
    """The text without blanks, and with one kind of quotes."""
    return "".join(text.split()).replace("'", '"').replace("`", '"')
