"""A completer without a model: the text it gives says which text it was given, so a test knows a stale answer.

    E:<first 8 hex of sha256(everything before the cursor)>:<the same of everything after it>

One character is one token and one round, and a round takes `echo.round_ms`, waited on the request's cancel event:
what a cancelled request costs can be timed without a model. Nothing is drafted.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator

from speclsp.config import Config
from speclsp.engine.api import Piece, Request, Result


class EchoCompleter:
    """Answers at once, and always the same for the same text."""

    pair = "echo"
    target = "echo"
    draft = ""
    device = "cpu"

    def __init__(self, config: Config) -> None:
        self.round_ms = config.echo.round_ms

    @property
    def step_ms(self) -> float:
        return float(self.round_ms)

    @property
    def passes(self) -> int:
        return 0

    def complete(self, request: Request, cancel: threading.Event) -> EchoCompletion:
        """Start an answer. `request.n` says which of several it is: from the second on, it is appended."""
        return EchoCompletion(request, self.round_ms, cancel)


class EchoCompletion:
    """One answer, a character per round."""

    def __init__(self, request: Request, round_ms: int, cancel: threading.Event) -> None:
        before, after = given(request)
        number = f":{request.n}" if request.n > 1 else ""
        self.answer = f"E:{digest(before)}:{digest(after)}{number}"
        self.request = request
        self.round_s = round_ms / 1000
        self.cancel = cancel
        self.result = Result(prompt_tokens=len(before) + len(after))

    def __iter__(self) -> Iterator[Piece]:
        """Yield one character a round; what may be the start of a stop text is held back until it is known."""
        start = time.perf_counter()
        while not self.over(ms_since(start)):
            round_start = time.perf_counter()
            if self.cancel.wait(self.round_s):
                continue
            yield self.round(ms_since(start), ms_since(round_start))

    def over(self, ms: float) -> bool:
        """Whether this answer has ended, `ms` after it began; `result` then says why and holds all of its text."""
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

    def round(self, ms: float, round_ms: float) -> Piece:
        """One more character, `ms` after the answer began."""
        result, shown = self.result, len(self.result.text)
        token = ord(self.answer[len(result.tokens)])
        result.tokens.append(token)
        result.rounds += 1
        result.decode_ms = ms
        result.ttft_ms = result.ttft_ms or ms
        said = self.answer[: len(result.tokens)]
        last = len(said) in (len(self.answer), self.request.max_tokens)
        result.text, stopped = visible(said, self.request.stop, last)
        if stopped or last:
            result.stop_type = "word" if stopped else "eos" if said == self.answer else "limit"
        return Piece(text=result.text[shown:], tokens=(token,), source="", drafted=0, accepted=0, ms=round_ms)


def given(request: Request) -> tuple[str, str]:
    """The text before the cursor and the text after it."""
    if request.raw_prompt is not None:
        return request.raw_prompt, ""
    return request.prefix + request.line_prefix, request.suffix


def digest(text: str) -> str:
    """The first 8 hex digits of sha256; a lone surrogate counts as its three bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def visible(said: str, stops: tuple[str, ...], last: bool) -> tuple[str, bool]:
    """What of `said` can be shown, and whether a stop text ended it. `last`: nothing follows to complete one."""
    found = [said.index(stop) for stop in stops if stop in said]
    if found:
        return said[: min(found)], True
    held = (n for stop in stops for n in range(1, len(stop)) if said.endswith(stop[:n]))
    return said[: len(said) - (0 if last else max(held, default=0))], False


def ms_since(start: float) -> float:
    """Milliseconds since `start`, a `time.perf_counter()`."""
    return (time.perf_counter() - start) * 1000
