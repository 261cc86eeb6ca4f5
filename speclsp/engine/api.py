"""The engine's interface: a Request, and the Pieces and Result it produces, round by round. Does not import torch.

A `Completer` turns a Request into Pieces: the speculative engine (completion.py) or the model-free echo (echo.py). It
runs in one thread. Closing the iterator, or setting `cancel`, stops it within one round.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

MIN_TEMPERATURE = 1e-5  # below it, decoding is greedy: logits / temperature could overflow float32


class Cancel(threading.Event):
    """Set when a completion is cancelled. `c_flag` is the same for C code (forward.c)."""

    def __init__(self) -> None:
        super().__init__()
        self.c_flag = ctypes.c_int32(0)

    def set(self) -> None:
        self.c_flag.value = 1
        super().set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A snippet of another file, which goes before the current file in the prompt."""

    filename: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One requested completion, in text. `line_prefix` goes after the middle marker, so that typing only appends."""

    prefix: str = ""  # everything before the current line
    line_prefix: str = ""  # the current line up to the cursor
    suffix: str = ""  # everything after the cursor
    filename: str = ""
    extra: tuple[Extra, ...] = ()
    raw_prompt: str | None = None  # /v1/completions without a suffix: used unchanged, without FIM markers
    max_tokens: int = 64  # at most; the context may leave fewer
    deadline_ms: int = 0  # from the start of decoding work on this request; 0: none
    temperature: float = 0.0  # below MIN_TEMPERATURE: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    seed: int = 0
    sampling: str = "coupled"  # or "rejection"; both draw exactly from the target
    stop: tuple[str, ...] = ()  # the completion ends before the first of these texts
    ignore_eos: bool = False
    cache_prompt: bool = True
    speculate: bool = True
    sources: tuple[str, ...] = ()  # only these drafters are used, for experiments; (): all
    gamma: int | None = None  # a fixed number of guesses per round; None: the policy decides
    heal: bool = True  # token healing: back up over the partial word before the cursor and respell it
    previous: str = ""  # a text that the completion is expected to repeat, as an earlier suggestion: a source of drafts
    session: str = ""
    n: int = 1  # different completions requested
    round_logprobs: bool = False  # report the tokens' own log-probabilities in each Piece, at negligible cost
    begin: tuple[int, ...] = ()  # tokens that the completion starts with, from an earlier one's `branches`
    branches: int = 0  # number of likely alternatives to report at each position
    idle: bool = False  # no client waits: it runs while there is no other request, and ends when there is one
    is_truncated: bool = False  # text of the prompt was left out already, before any was tokenized (truncation.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """An alternative continuation: a completion that begins with this one's tokens[:at], then `token`."""

    at: int  # number of the completion's tokens before it
    chars: int  # the same in characters of its text
    token: int
    text: str  # of the token, as far as it is part of the completion's text
    p: float  # the target's probability, at temperature 1, of all tokens from the request's `begin` to here


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The output of one round. `text` may be empty while a character or a stop text is still incomplete."""

    text: str
    tokens: tuple[int, ...]
    source: str  # the drafter of the guesses: "reuse" | "ngram" | "model" | "" (plain step)
    drafted: int
    accepted: int  # of the drafted; tokens = accepted drafts, then the target's own next token
    ms: float
    # One for each of `tokens`, for `Request.round_logprobs`: the natural logarithm of the target's probability at
    # temperature 1, among the tokens that could come (those that spell the typed text, no banned ones) ...
    logprobs: tuple[float, ...] = ()
    characters: tuple[int, ...] = ()  # ... and the number of the completion's characters that became certain with it
    branches: tuple[Branch, ...] | None = None  # at the positions of `tokens`, for `Request.branches`


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The costs before a completion's first round."""

    queue_ms: float  # time in the scheduler's queue
    prompt_tokens: int
    cached_tokens: int
    left_out_tokens: int | None
    prompt_ms: float


@dataclass(slots=True, kw_only=True)
class Result:
    """The whole completion and its costs. Times in milliseconds."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # after each of `tokens`: the characters decoded so far
    stop_type: str = ""  # "eos" | "limit" | "word" | "deadline" | "cancelled"
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, taken from the KV cache
    prefilled_tokens: int = 0  # of the prompt, computed; fewer than the rest when cancelled
    # Of the text around the cursor, cut from the prompt because they did not fit. None: more was left out uncounted.
    left_out_tokens: int | None = 0
    truncated: bool = False  # some of the text for the prompt did not fit, snippets of other files included
    prompt_ms: float = 0.0  # prefill
    decode_ms: float = 0.0  # all rounds
    ttft_ms: float = 0.0  # from the request to the first round's tokens
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)  # {"ngram": {"drafted": 8, "accepted": 5}}


class Completion(Protocol):
    """A running completion: iterate for Pieces; `result` is kept up to date after each and final after the last."""

    @property
    def result(self) -> Result: ...

    def __iter__(self) -> Iterator[Piece]: ...


class Completer(Protocol):
    """Makes completions from one thread, a round at a time; several may be running.

    A Piece without tokens, while `result.stop_type` is empty, is a pause between two steps of prefill.
    """

    @property
    def model(self) -> str: ...

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
        """The longest a pass should take; 0: unknown. A pass that takes far longer hangs (watchdog.py)."""
        ...

    @property
    def passes(self) -> int:
        """Passes so far, of steps that may take several."""
        ...

    @property
    def context_tokens(self) -> int:
        """The most tokens of a prompt and its completion, now; 0: no limit."""
        ...

    @property
    def trained_tokens(self) -> int:
        """The context that the model was trained for; 0: unknown."""
        ...

    def truncate(self, request: Request) -> Request:
        """The request without text that cannot be used; from any thread, at negligible cost."""
        ...

    def complete(self, request: Request, cancel: threading.Event) -> Completion:
        """Start a completion. Raises InputError when it cannot start with `Request.begin`."""
        ...
