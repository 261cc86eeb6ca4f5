"""The engine's side of the seam: what a request is, and what comes back, round by round. No torch here.

A `Completer` is anything that turns a Request into Pieces: the speculative engine (complete.py) or the model-free
echo (echo.py). It is driven from one thread; closing the iterator, or setting `cancel`, stops it within one round.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol


class Cancel(threading.Event):
    """Set when a completion is not wanted any more. `word` says so to code outside the interpreter (forward.c)."""

    def __init__(self) -> None:
        super().__init__()
        self.word = ctypes.c_int32(0)

    def set(self) -> None:
        self.word.value = 1
        super().set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Text from elsewhere that the model should see before the file at hand."""

    filename: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion to make, in text. `line_prefix` goes after the middle marker, so that typing only appends."""

    prefix: str = ""  # everything before the current line
    line_prefix: str = ""  # the current line up to the cursor
    suffix: str = ""  # everything after the cursor
    filename: str = ""
    extra: tuple[Extra, ...] = ()
    raw_prompt: str | None = None  # /v1/completions without a suffix: the prompt as it is, no FIM markers
    max_tokens: int = 64
    deadline_ms: int = 0  # from the start of decoding work on this request; 0: none
    temperature: float = 0.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    seed: int = 0
    sampling: str = "coupled"  # or "rejection"; both draw exactly from the target
    stop: tuple[str, ...] = ()  # the completion ends before the first of these texts
    ignore_eos: bool = False
    cache_prompt: bool = True
    speculate: bool = True
    sources: tuple[str, ...] = ()  # only these drafters may guess, for experiments; (): all
    gamma: int | None = None  # a fixed number of guesses per round; None: the policy decides
    heal: bool = True  # back up over the partial word before the cursor and respell it
    previous: str = ""  # a suggestion that was not taken, or was typed into: drafted from
    session: str = ""
    n: int = 1  # different completions wanted
    logprobs: int | None = None  # so many of the likeliest tokens with each token's own log-probability; None: neither
    round_logprobs: bool = False  # each Piece with its tokens' own: costs next to nothing, and changes nothing else
    begin: tuple[int, ...] = ()  # tokens that the completion begins with, as an earlier one's `branches` name them
    branches: int = 0  # tell, for each place, of so many other tokens that were likely there
    idle: bool = False  # nobody waits for it: it is made while nothing else is asked, and ends when something is


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """A token, its text by itself, and the natural logarithm of the target's probability for it at temperature 1."""

    token: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...] = ()  # the likeliest at its place: (token, text, logprob), best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Where a completion might have gone on otherwise; one that begins with its tokens[:at] and `token` goes so."""

    at: int  # how many of the completion's tokens come before it
    chars: int  # the same in characters of its text
    token: int
    text: str  # of the token, as far as it is part of the completion's text
    p: float  # that the completion goes so, from the request's `begin` to here: the target's, at temperature 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one round added. `text` may be empty while a character or a stop text is still incomplete."""

    text: str
    tokens: tuple[int, ...]
    source: str  # which drafter guessed: "reuse" | "ngram" | "model" | "" (plain step)
    drafted: int
    accepted: int  # of the drafted; tokens = accepted drafts, then the target's own next token
    ms: float
    accepted_chars: int = 0  # how many characters of `text`, from its start, were accepted drafts
    likely: tuple[Likely, ...] = ()  # one for each of `tokens`, where `Request.logprobs` asks for them
    # One for each of `tokens`, where `Request.round_logprobs` asks for them: the natural logarithm of the target's
    # probability at temperature 1, among the tokens that could come (those that spell what was typed, none banned) ...
    logprobs: tuple[float, ...] = ()
    characters: tuple[int, ...] = ()  # ... and how many characters of the completion became certain with it
    branches: tuple[Branch, ...] | None = None  # at the places of `tokens`, where `Request.branches` asks for them


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What came before a completion's first round."""

    queue_ms: float  # waited for its turn
    prompt_tokens: int
    cached_tokens: int
    left_out_tokens: int
    prompt_ms: float


@dataclass(slots=True, kw_only=True)
class Result:
    """The whole completion and what it cost. Times in milliseconds."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    stop_type: str = ""  # "eos" | "limit" | "word" | "deadline" | "cancelled"
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, found in the KV cache
    prefilled_tokens: int = 0  # of the prompt, computed; fewer than the rest when cancelled
    left_out_tokens: int = 0  # of the text around the cursor, cut from the prompt for want of room
    prompt_ms: float = 0.0  # prefill
    decode_ms: float = 0.0  # all rounds
    ttft_ms: float = 0.0  # from the request to the first round's tokens
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)  # {"ngram": {"drafted": 8, "accepted": 5}}
    likely: list[Likely] = field(default_factory=list)  # one for each token, where `Request.logprobs` asks for them
    draft_only: bool = False  # the target is still loading, and this is what the draft model alone says


class Completion(Protocol):
    """A running completion: iterate for Pieces; `result` is kept up to date after each and final after the last."""

    @property
    def result(self) -> Result: ...

    def __iter__(self) -> Iterator[Piece]: ...


class Completer(Protocol):
    """Makes completions from one thread, a round at a time; several may be under way.

    A Piece without tokens, while `result.stop_type` is empty, is a pause between two steps of prefill.
    """

    @property
    def pair(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def draft(self) -> str:
        """Its name and number format; "" when there is none."""
        ...

    @property
    def device(self) -> str: ...

    @property
    def step_ms(self) -> float:
        """What a pass should take at most; 0: nobody knows. One that takes far longer hangs (watchdog.py)."""
        ...

    @property
    def passes(self) -> int:
        """Passes so far, as far as a step may take several."""
        ...

    def complete(self, request: Request, cancel: threading.Event) -> Completion:
        """Start a completion. Raises InputError when the request cannot be served (too long, bad number)."""
        ...
