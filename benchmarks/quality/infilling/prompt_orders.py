"""Orders of the fill-in-the-middle prompt that `quality` compares with the engine's own; models understand all of them.

ours      <prefix> P <suffix> S <middle> L      L: the last few lines, up to the cursor
line      the same, L being the current line alone
standard  <prefix> P L <suffix> S <middle>
spm       <suffix> S <prefix> P L <middle>
"""

from __future__ import annotations

from dataclasses import replace

from speclsp.engine.api import Request
from speclsp.engine.decoding.prompt import Prompter
from speclsp.engine.decoding.token_healing import split_healing


class CurrentLine(Prompter):
    """Order "line": only the line with the cursor after the middle marker."""

    def split_request(self, request: Request) -> tuple[str, str, str]:
        line, heal = split_healing(request.line_prefix, request.heal)
        return request.prefix, line, heal


class WholePrefix(Prompter):
    """Order "standard": nothing after the middle marker."""

    def split_request(self, request: Request) -> tuple[str, str, str]:
        above, heal = split_healing(request.prefix + request.line_prefix, request.heal)
        return above, "", heal


def prompter_for(of: Prompter, order: str, context_tokens: int) -> Prompter:
    """A prompter that writes prompts in `order`, within `context_tokens` tokens; "ours": the card's."""
    kind = {"line": CurrentLine, "standard": WholePrefix}.get(order, Prompter)
    card = of.card
    if order != "ours":
        card = replace(card, fim=replace(card.fim, order="spm" if order == "spm" else "psm"))
    return kind(card, of.tokenizer, of.vocabulary, context_tokens)
