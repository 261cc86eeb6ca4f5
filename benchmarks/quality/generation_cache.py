"""What a model said to a prompt, token by token, kept on disk: asked once, judged as often as the rules change.

Greedy text follows from the model's files, its number format, the engine's source and the prompt's ids, and that is
the key, with a sum over some logits as this process computes them: what two processes or machines say that reckon
otherwise is never taken for one model's. Where a text was ended by its reader, it is kept as far as it came. Whoever
wants more has it made again. Leaving out one source of context leaves most prompts as they are, and another rule for
where a text ends leaves them all.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion
from speclsp.weights import model_directory, store

if TYPE_CHECKING:
    from speclsp.engine.api import Request
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.decoding.prompt import Prompt

TOKEN_PACKAGES = ("model", "decoding", "loading")  # of speclsp.engine: any file in them may change a token
SUMMED_TOKENS, SUMMED_ROWS = 200, 4  # that `arithmetic` reads, and whose logits it sums


class Reader(Protocol):
    """Who says how much of a text is wanted: a postprocess.Plan."""

    @property
    def max_tokens(self) -> int: ...

    def finished(self, text: str) -> bool: ...

    def clean(self, text: str, *, whole: bool = True) -> Suggestion | NoSuggestion: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The text as its tokens brought it."""

    tokens: Sequence[int]
    texts: Sequence[str]  # what each token added
    logprobs: Sequence[float]  # of each, at temperature 1
    stop: str  # "eos" | "limit"; "" where its reader had enough
    prompt_tokens: int
    ms: float  # all of it, from a cold prompt
    first_ms: float


@dataclass(frozen=True, slots=True)
class Heard:
    """As much of it as one reader takes."""

    text: str
    tokens: int
    whole: bool  # it ended by itself, or the reader had enough


def heard(said: Said, reader: Reader) -> Heard | None:
    """What `reader` would have heard; None where it would have gone on and `said` does not."""
    text = ""
    for number, more in enumerate(said.texts, 1):
        text += more
        if reader.finished(text):
            return Heard(text, number, True)
        if number >= reader.max_tokens and not (said.stop == "eos" and number == len(said.texts)):
            return Heard(text, number, False)
    return Heard(text, len(said.texts), True) if said.stop == "eos" else None


class Memory:
    """The generations of all runs on this machine. Each is on disk before the next one is asked for."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(directory / "said.sqlite", timeout=60)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("CREATE TABLE IF NOT EXISTS said (key TEXT PRIMARY KEY, what TEXT NOT NULL)")

    def get(self, key: str) -> Said | None:
        found = self.database.execute("SELECT what FROM said WHERE key = ?", (key,)).fetchone()
        return Said(**json.loads(found[0])) if found else None

    def put(self, key: str, said: Said) -> None:
        with self.database:
            self.database.execute("INSERT OR REPLACE INTO said VALUES (?, ?)", (key, json.dumps(asdict(said))))

    def close(self) -> None:
        self.database.close()


def key_of(model: str, prompt: Prompt, request: Request) -> str:
    """Names a generation by all that decides its tokens. How long it may get does not: see `heard`."""
    sampling = (
        request.temperature,
        request.top_p,
        request.top_k,
        request.seed,
        request.sampling,
        request.stop,
        request.ignore_eos,
        request.speculate,
        request.gamma,
        request.sources,
    )
    return digest([model, prompt.ids, prompt.heal.hex(), sampling])


def model_of(engine: CompletionEngine, reckons: str, models_dir: str = "") -> str:
    """A model's files, number format and kernels, the source of the engine that runs it, and its `arithmetic`."""
    directory = store.path(engine.card.target, models_dir)
    sums = model_directory.sums_of(directory) if directory is not None else {}
    if not sums and directory is not None:
        sums = {file.name: model_directory.sum_of(file) for file in sorted(directory.iterdir()) if file.is_file()}
    return digest([engine.target, engine.device, sums, sorted(engine.prompter.stop_tokens), engine_source(), reckons])


def arithmetic(engine: CompletionEngine) -> str:
    """A sum over the target's logits after a text of no meaning, to the last bit: which numbers this process makes.

    Between completions; the text goes through prefill and a round's pass and is forgotten.
    """
    import torch

    target, vocab = engine.target_decoder, len(engine.prompter.vocabulary)
    ids = [1 + number * 7919 % (vocab - 1) for number in range(min(SUMMED_TOKENS, target.context_tokens))]
    with torch.inference_mode():
        target.forget(all_of_it=False)
        target.catch_up(ids[:-SUMMED_ROWS])
        logits = target.forward(ids[-SUMMED_ROWS:]).float().cpu().contiguous()
        target.rewind(0)
    return hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:12]


@cache
def engine_source() -> str:
    """A checksum of every source file that can change a token."""
    import speclsp.engine

    root = Path(str(speclsp.engine.__file__)).parent
    files = sorted(
        file for package in TOKEN_PACKAGES for kind in ("*.py", "*.c", "*.h") for file in (root / package).rglob(kind)
    )
    return digest([[str(file.relative_to(root)), model_directory.sum_of(file)] for file in files])


def digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
