"""Completions by the draft model alone while the target is still being read: single lines, marked `draft_only`.

They bridge a few seconds. Every Result says `draft_only`, nothing is speculated, and the full engine starts with empty
caches (loading.py).
"""

from __future__ import annotations

import threading
from dataclasses import replace

from speclsp.engine.api import Completion, Request
from speclsp.engine.decoding.completion import CompletionEngine

MAX_TOKENS = 32  # of a completion


class DraftOnlyEngine:
    """A completer whose target is the draft model; see api.Completer.

    Args:
        engine: an engine with the draft in the target's place.
    """

    def __init__(self, engine: CompletionEngine) -> None:
        self.engine = engine

    @property
    def model(self) -> str:
        return self.engine.model

    @property
    def target(self) -> str:
        return f"{self.engine.card.target.name} (still loading)"

    @property
    def draft(self) -> str:
        draft = self.engine.card.draft
        return f"{draft.name} ({self.engine.target_format})" if draft else ""

    @property
    def device(self) -> str:
        return self.engine.device

    @property
    def step_ms(self) -> float:
        return 0.0  # not measured yet, and another thread uses the machine as well

    @property
    def passes(self) -> int:
        return self.engine.passes

    @property
    def context_tokens(self) -> int:
        return self.engine.context_tokens

    @property
    def trained_tokens(self) -> int:
        return self.engine.trained_tokens

    def truncate(self, request: Request) -> Request:
        """See api.Completer."""
        return self.engine.truncate(request)

    def complete(self, request: Request, cancel: threading.Event) -> Completion:
        """Start a completion of one line at most."""
        line = replace(
            request,
            stop=(*request.stop, "\n"),
            max_tokens=min(request.max_tokens, MAX_TOKENS),
            speculate=False,
            gamma=0,
        )
        completion = self.engine.complete(line, cancel)
        completion.result.draft_only = True
        return completion
