"""Completions by the draft model alone while the target is still being read: single lines, marked `draft_only`.

They bridge a few seconds. Every Result says `draft_only`, nothing is speculated, and the full engine starts with empty
caches (loading.py).
"""

from __future__ import annotations

import threading
from dataclasses import replace

from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import CompletionEngine, RunningCompletion

MAX_TOKENS = 32  # of a completion


class DraftOnlyEngine(CompletionEngine):
    """An engine with the draft model in the target's place."""

    @property
    def target(self) -> str:
        return f"{self.card.target.name} (still loading)"

    @property
    def draft(self) -> str:
        return f"{self.card.draft.name} ({self.target_format})" if self.card.draft else ""

    @property
    def step_ms(self) -> float:
        return 0.0  # not measured yet, and another thread uses the machine as well

    def complete(self, request: Request, cancel: threading.Event) -> RunningCompletion:
        """Start a completion of one line at most."""
        line = replace(
            request,
            stop=(*request.stop, "\n"),
            max_tokens=min(request.max_tokens, MAX_TOKENS),
            speculate=False,
            gamma=0,
        )
        completion = super().complete(line, cancel)
        completion.result.draft_only = True
        return completion
