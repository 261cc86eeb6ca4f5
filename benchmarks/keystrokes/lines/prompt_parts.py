"""Parts of a prompt, as digests, and the part that broke the KV cache.

    [snippets] <prefix> text above the anchor <suffix> text after the cursor <middle> recent lines, the line being typed

The cause of a prompt that is computed anew is its first part that is not the same as in the last evaluated prompt of
the document. A prompt is evaluated when the engine has reported its tokens. The share of a prompt before its first
change depends on no machine: it would be cached if the document's previous prompt were evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from speclsp.engine.decoding.prompt import split_recent_lines
from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.syntax.text_windows import common_ends
from speclsp.plain_text import digest

SNIPPETS, WINDOW, ANCHOR, SUFFIX, EVICTION, FIRST = (
    "snippets", "window", "anchor lines", "suffix", "eviction", "first",
)  # fmt: skip
CAUSES = (SNIPPETS, WINDOW, ANCHOR, SUFFIX, EVICTION, FIRST)


class PromptText(NamedTuple):
    """The text of one prompt's parts, in prompt order."""

    snippets: str
    above: str
    suffix: str
    recent: str  # up to the cursor

    @classmethod
    def of(cls, fim: FimRequest) -> PromptText:
        """The parts of a request."""
        above, recent = split_recent_lines(fim.prefix)
        return cls("\n".join(chain.from_iterable(fim.extra)), above, fim.suffix, recent + fim.line_prefix)


NO_PROMPT = PromptText("", "", "", "")


@dataclass(frozen=True, slots=True)
class PromptParts:
    """Digests of one prompt's parts."""

    request: int | None  # the editor's id; None for a prefill
    path: str
    snippets: str
    above: str  # the prefix before the anchor cut
    suffix: str
    continues: bool  # the prefix begins with `above` of the document's previous prompt
    unchanged: float  # share of its characters before the first change from the previous prompt; a prefill is one too

    @classmethod
    def of(cls, fim: FimRequest, request: int | None, previous: PromptText = NO_PROMPT) -> PromptParts:
        """`previous`: the document's previous prompt."""
        prompt = PromptText.of(fim)
        whole = "".join(prompt)
        unchanged = round(common_ends("".join(previous), whole)[0] / max(1, len(whole)), 4)
        continues = fim.prefix.startswith(previous.above)
        parts = digest(prompt.snippets), digest(prompt.above), digest(prompt.suffix)
        return cls(request, fim.path, *parts, continues, unchanged)


def cause(parts: PromptParts, earlier: Sequence[PromptParts], evaluated: AbstractSet[int]) -> str:
    """The cause for which a prompt is not cached.

    `earlier`: the document's prompts before it, oldest first. `evaluated`: requests whose prompt the engine evaluated;
    where there is none, the last prefill takes their place.
    """
    known = [at for at, row in enumerate(earlier) if row.request in evaluated]
    known = known or [at for at, row in enumerate(earlier) if row.request is None]
    if not known:
        return FIRST
    last = earlier[known[-1]]
    if parts.snippets != last.snippets:
        return SNIPPETS
    if not all(row.continues for row in (*earlier[known[-1] + 1 :], parts)):
        return WINDOW
    if parts.above != last.above:
        return ANCHOR
    return SUFFIX if parts.suffix != last.suffix else EVICTION


def causes(rows: Sequence[PromptParts], answered: AbstractSet[int]) -> dict[int, str]:
    """The cause at each request, by its id, whether its prompt was cached or not.

    `answered`: requests whose trace has prompt tokens. One without a prompt of its own has read the stream of the
    newest prompt before it.
    """
    sent = sorted(row.request for row in rows if row.request is not None)
    evaluated = {max(known) for number in answered if (known := [other for other in sent if other <= number])}
    return {
        row.request: cause(row, of_path[:at], evaluated)
        for of_path in by_document(rows)
        for at, row in enumerate(of_path)
        if row.request is not None
    }


def by_document(rows: Sequence[PromptParts]) -> list[list[PromptParts]]:
    """The prompts of each document, oldest first."""
    by_path: dict[str, list[PromptParts]] = {}
    for row in rows:
        by_path.setdefault(row.path, []).append(row)
    return list(by_path.values())
