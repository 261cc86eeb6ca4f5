"""A completer without a model: its text is a hash of its input, so a test recognizes a stale answer.

    E:<first 8 hex digits of sha256(text before the cursor)>:<the same for the text after it>

One character is one token and one round. A round waits `echo.round_ms` on the request's cancel event, so the cost of a
cancelled request can be timed without a model. Nothing is drafted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import perf_counter

from speclsp.config import Config
from speclsp.engine.api import Piece, Request, Result
from speclsp.plain_text import digest, first_stop, longest_stop_start


class EchoCompleter:
    """Makes completions that depend on the request's text only."""

    model = target = "echo"
    draft = ""
    device = "cpu"
    passes = context_tokens = trained_tokens = 0

    def __init__(self, config: Config) -> None:
        self.round_ms = config.echo.round_ms
        self.step_ms = float(self.round_ms)

    def truncate(self, request: Request) -> Request:
        """The request itself: its whole text is hashed."""
        return request

    def complete(self, request: Request, cancel: threading.Event) -> EchoCompletion:
        """Start a completion. `request.n` numbers alternatives: from the second on, the number is appended."""
        return EchoCompletion(request, self.round_ms, cancel)


class EchoCompletion:
    """One completion, a character per round."""

    def __init__(self, request: Request, round_ms: int, cancel: threading.Event) -> None:
        before, after = text_around_cursor(request)
        number = f":{request.n}" if request.n > 1 else ""
        self.answer = f"E:{digest(before)}:{digest(after)}{number}"
        self.request = request
        self.round_s = round_ms / 1000
        self.cancel = cancel
        self.result = Result(prompt_tokens=len(before) + len(after))

    def __iter__(self) -> Iterator[Piece]:
        """Yield one character a round; text that may be the start of a stop text is withheld until that is decided."""
        start_s = perf_counter()
        while not self.ended((perf_counter() - start_s) * 1e3):
            round_start_s = perf_counter()
            if self.cancel.wait(self.round_s):
                continue
            yield self.next_piece((perf_counter() - start_s) * 1e3, (perf_counter() - round_start_s) * 1e3)

    def ended(self, ms: float) -> bool:
        """True if the completion has ended, `ms` after its start; `result` is final then."""
        result = self.result
        if result.stop_type:
            return True
        if self.cancel.is_set():
            result.stop_type = "cancelled"
        elif len(result.tokens) == len(self.answer):
            result.stop_type = "eos"
        elif len(result.tokens) >= self.request.max_tokens:
            result.stop_type = "limit"
        elif 0 < self.request.deadline_ms <= ms:
            result.stop_type = "deadline"
        else:
            return False
        result.text = self.answer[: len(result.tokens)]
        return True

    def next_piece(self, ms: float, round_ms: float) -> Piece:
        """One more character, `ms` after the completion's start."""
        result, shown = self.result, len(self.result.text)
        token = ord(self.answer[len(result.tokens)])
        result.tokens.append(token)
        result.ends.append(len(result.tokens))
        result.rounds += 1
        result.decode_ms = ms
        result.ttft_ms = result.ttft_ms or ms
        text = self.answer[: len(result.tokens)]
        last = len(text) in (len(self.answer), self.request.max_tokens)
        stop = first_stop(text, self.request.stop)
        withheld = 0 if last else longest_stop_start(text, self.request.stop)
        result.text = text[: len(text) - withheld if stop is None else stop]
        if stop is not None or last:
            result.stop_type = "word" if stop is not None else "eos" if text == self.answer else "limit"
        return Piece(text=result.text[shown:], tokens=(token,), source="", drafted=0, accepted=0, ms=round_ms)


def text_around_cursor(request: Request) -> tuple[str, str]:
    """The text before the cursor and the text after it."""
    if request.raw_prompt is not None:
        return request.raw_prompt, ""
    return request.prefix + request.line_prefix, request.suffix
