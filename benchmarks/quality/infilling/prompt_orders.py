"""Orders of the fill-in-the-middle prompt that `quality` compares with the engine's own; models understand all of them.

ours      <prefix> P <suffix> S <middle> L      L: the last few lines, up to the cursor
line      the same, L being the current line alone
standard  <prefix> P L <suffix> S <middle>
spm       <suffix> S <prefix> P L <middle>
"""

from __future__ import annotations

from speclsp.engine.api import Request
from speclsp.engine.decoding.prompt import Prompter, PromptStyle
from speclsp.engine.decoding.token_healing import split_healing


class CurrentLine(Prompter):
    """Order "line": only the line with the cursor after the middle marker."""

    def split_request(self, request: Request) -> tuple[str, str, str]:
        line, heal = split_healing(request.line_prefix, request.heal)
        return request.prefix, line, heal


def prompter_for(of: Prompter, order: str, context_tokens: int) -> Prompter:
    """A prompter that writes prompts in `order`, within `context_tokens` tokens; "ours": the card's."""
    kind = CurrentLine if order == "line" else Prompter
    style = None if order == "ours" else PromptStyle("lines" if order == "line" else order)
    return kind(of.card, of.tokenizer, of.vocabulary, context_tokens, style)
