"""Log of recent requests: each request with the tokens that answered it, in memory.

    a completion ends ─► DeliveredCompletion ─► RecentRequests (the last 32, bounded; gone with the process)

replay.py runs them again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from speclsp.engine.api import Completer, Request, Result

MAX_REQUESTS = 32
MAX_BYTES = 8 * 2**20  # of their text
CUT_SHORT = ("deadline", "cancelled")  # such an answer would have continued


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredCompletion:
    """A request, and the tokens that answered it."""

    request: Request
    tokens: tuple[int, ...]
    stop_type: str
    prompt_tokens: int
    draft_only: bool
    made_by: tuple[str, str, str]  # model, target with its number format, device
    at_s: float = field(default_factory=time.time)

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        request = self.request
        texts = [request.prefix, request.line_prefix, request.suffix, request.raw_prompt or ""]
        texts += [request.previous, request.draft_window]
        texts += request.stop
        texts += [text for extra in request.extra for text in (extra.filename, extra.text)]
        return sum(map(sys.getsizeof, texts)) + 36 * len(self.tokens)

    @property
    def complete(self) -> bool:
        """True when it came to its own end."""
        return self.stop_type not in CUT_SHORT


def model_identity(completer: Completer) -> tuple[str, str, str]:
    """The facts about a completer that decide its tokens: model, target with its number format, device."""
    return completer.model, completer.target, completer.device


class RecentRequests:
    """The last requests, in this process's memory only. Filled by the engine's thread, read by any."""

    def __init__(self, max_requests: int = MAX_REQUESTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._entries: deque[DeliveredCompletion] = deque()
        self._lock = threading.Lock()
        self.bytes = 0

    def log(self, request: Request, result: Result, completer: Completer) -> None:
        """Add a result of `completer`, unless it is empty."""
        if result.tokens:
            self.add(
                DeliveredCompletion(
                    request=request,
                    tokens=tuple(result.tokens),
                    stop_type=result.stop_type,
                    prompt_tokens=result.prompt_tokens,
                    draft_only=result.draft_only,
                    made_by=model_identity(completer),
                )
            )

    def add(self, entry: DeliveredCompletion) -> None:
        """Add the newest entry and drop the oldest to make room. An entry that is too large by itself is not kept."""
        size = entry.size_bytes
        if size > self._max_bytes:
            return
        with self._lock:
            self._entries.append(entry)
            self.bytes += size
            while len(self._entries) > self._max_requests or self.bytes > self._max_bytes:
                self.bytes -= self._entries.popleft().size_bytes

    def last(self, count: int) -> list[DeliveredCompletion]:
        """The last `count` entries, the oldest of them first."""
        with self._lock:
            return list(self._entries)[-count:] if count > 0 else []
