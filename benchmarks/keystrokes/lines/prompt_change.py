"""Change of a prompt from the document's previous one: the first part that differs, and the share before it.

    [snippets] <prefix> text above the anchor <suffix> text after the cursor <middle> recent lines, the line being typed

The share before the change is cached if the engine has evaluated the previous prompt. The recent lines differ at every
key. So a prompt that differs in them only, and is computed anew, was evicted or follows one without an evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from speclsp.engine.decoding.prompt import split_recent_lines
from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.syntax.text_windows import common_ends

CAUSES = SNIPPETS, WINDOW, ANCHOR, SUFFIX, RECENT, FIRST = (
    "snippets", "window", "anchor lines", "suffix", "recent lines", "first",
)  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class PromptChange:
    """Change of one prompt from the previous one of its document, which may be a prefill's."""

    request: int | None  # the editor's id; None for a prefill
    cause: str
    unchanged: float  # share of its characters before the change

    @classmethod
    def of(cls, prompt: PromptText, previous: PromptText | None, request: int | None) -> PromptChange:
        """`previous`: None for the document's first prompt."""
        if previous is None:
            return cls(request, FIRST, 0.0)
        whole = "".join(prompt)
        unchanged = round(common_ends("".join(previous), whole)[0] / max(1, len(whole)), 4)
        return cls(request, first_change(prompt, previous), unchanged)


def first_change(prompt: PromptText, previous: PromptText) -> str:
    """The first part that differs. The text above the anchor differs at its start (WINDOW), or it has grown."""
    if prompt.snippets != previous.snippets:
        return SNIPPETS
    if not (prompt.above + prompt.recent).startswith(previous.above):
        return WINDOW
    if prompt.above != previous.above:
        return ANCHOR
    return SUFFIX if prompt.suffix != previous.suffix else RECENT
