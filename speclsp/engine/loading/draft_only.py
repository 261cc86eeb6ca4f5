"""What the draft model says alone while the target is still being read: single lines, marked as such.

Better than nothing for a few seconds, and never taken for more than it is: every Result says `draft_only`, nothing is
speculated, and the engine that follows starts with empty caches (loading.py).
"""

from __future__ import annotations

import threading
from dataclasses import replace

from speclsp.engine.api import Completion, Request
from speclsp.engine.decoding.completion import CompletionEngine

MOST_TOKENS = 32  # of an answer


class DraftOnlyEngine:
    """A completer; see seam.Completer.

    Args:
        engine: the draft in the target's place.
    """

    def __init__(self, engine: CompletionEngine) -> None:
        self.engine = engine

    @property
    def pair(self) -> str:
        return self.engine.pair

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
        return 0.0  # not measured yet, and another thread takes its part of the machine

    @property
    def passes(self) -> int:
        return self.engine.passes

    def complete(self, request: Request, cancel: threading.Event) -> Completion:
        """Start a completion of one line at most."""
        line = replace(
            request,
            stop=(*request.stop, "\n"),
            max_tokens=min(request.max_tokens, MOST_TOKENS),
            speculate=False,
            gamma=0,
        )
        completion = self.engine.complete(line, cancel)
        completion.result.draft_only = True
        return completion
