"""Parts of a prompt, as digests, and the part that broke the KV cache.

    [snippets] <prefix> text above the anchor <suffix> text after the cursor <middle> recent lines, the line being typed

The cause of a prompt that is computed anew is its first part that is not the same as in the last evaluated prompt of
the document. A prompt is evaluated when the engine has reported its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain

from speclsp.engine.decoding.prompt import split_recent_lines
from speclsp.lsp.backend.types import FimRequest
from speclsp.plain_text import digest

SNIPPETS, WINDOW, ANCHOR, SUFFIX, EVICTION, FIRST = (
    "snippets", "window", "anchor lines", "suffix", "eviction", "first",
)  # fmt: skip
CAUSES = (SNIPPETS, WINDOW, ANCHOR, SUFFIX, EVICTION, FIRST)


@dataclass(frozen=True, slots=True)
class PromptParts:
    """Digests of one prompt's parts."""

    request: int | None  # the editor's id; None for a prefill
    path: str
    snippets: str
    above: str  # the prefix before the anchor cut
    suffix: str
    continues: bool  # the prefix begins with `above` of the document's previous prompt

    @classmethod
    def of(cls, fim: FimRequest, request: int | None, previous_above: str) -> PromptParts:
        """`previous_above`: the text of the previous prompt's `above`."""
        snippets = digest("\0".join(chain.from_iterable(fim.extra)))
        above, _recent = split_recent_lines(fim.prefix)
        continues = fim.prefix.startswith(previous_above)
        return cls(request, fim.path, snippets, digest(above), digest(fim.suffix), continues)


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
    by_path: dict[str, list[PromptParts]] = {}
    for row in rows:
        by_path.setdefault(row.path, []).append(row)
    sent = sorted(row.request for row in rows if row.request is not None)
    evaluated = {max(known) for number in answered if (known := [other for other in sent if other <= number])}
    return {
        row.request: cause(row, of_path[:at], evaluated)
        for of_path in by_path.values()
        for at, row in enumerate(of_path)
        if row.request is not None
    }
