"""Generation cache of the quality benchmark: what a model generated for a prompt, token by token, kept on disk.

A text is generated once and scored as often as the scoring or postprocessing changes. Greedy text follows from the
model's files, its number format, the engine's source and the prompt's ids; these make the key. A checksum of some
logits, as this process computes them, is part of it too: generations of two processes or machines whose arithmetic
differs are never mixed. A text whose reader stopped it early is kept as far as it came, and generated again for a
reader who needs more. Leaving out one source of context leaves most prompts unchanged, and another rule for where a
text ends changes no prompt.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.quality.cache.source_digest import digest, token_source
from speclsp.engine.model.kv_cache import on_host
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion
from speclsp.weights import model_directory, store

if TYPE_CHECKING:
    from speclsp.engine.api import Request
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.decoding.prompt import Prompt

SUMMED_TOKENS, SUMMED_ROWS = 200, 4  # tokens that `arithmetic` evaluates, and rows of logits in its checksum


class Reader(Protocol):
    """Decides how much of a text is needed: a postprocess.SuggestionPlan."""

    @property
    def max_tokens(self) -> int: ...

    def finished(self, text: str) -> bool: ...

    def to_suggestion(self, text: str, *, complete: bool = True) -> Suggestion | NoSuggestion: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generated text, token by token."""

    tokens: Sequence[int]
    texts: Sequence[str]  # the text that each token added
    logprobs: Sequence[float]  # of each token, at temperature 1
    stop: str  # "eos" | "limit"; "" where its reader stopped it
    prompt_tokens: int
    ms: float  # all of it, from a cold prompt
    first_ms: float


@dataclass(frozen=True, slots=True)
class ReadText:
    """The part of a generation that one reader takes."""

    text: str
    tokens: int
    whole: bool  # it ended by itself, or the reader stopped it


def read_text(generation: Generation, reader: Reader) -> ReadText | None:
    """The part that `reader` takes; None where it needs more than `generation` holds."""
    text = ""
    for number, added in enumerate(generation.texts, 1):
        text += added
        if reader.finished(text):
            return ReadText(text, number, True)
        at_its_end = generation.stop == "eos" and number == len(generation.texts)
        if number >= reader.max_tokens and not at_its_end:
            return ReadText(text, number, False)
    return ReadText(text, len(generation.texts), True) if generation.stop == "eos" else None


class GenerationCache:
    """The generations of all runs on this machine, in one SQLite file. Each is on disk before the next one starts."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(directory / "said.sqlite", timeout=60)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("CREATE TABLE IF NOT EXISTS said (key TEXT PRIMARY KEY, what TEXT NOT NULL)")

    def get(self, key: str) -> Generation | None:
        row = self.database.execute("SELECT what FROM said WHERE key = ?", (key,)).fetchone()
        return Generation(**json.loads(row[0])) if row else None

    def put(self, key: str, generation: Generation) -> None:
        with self.database:
            values = (key, json.dumps(asdict(generation)))
            self.database.execute("INSERT OR REPLACE INTO said VALUES (?, ?)", values)

    def close(self) -> None:
        self.database.close()


def generation_key(model: str, prompt: Prompt, request: Request) -> str:
    """Key of a generation: everything that decides its tokens. The length limit does not: see `read_text`."""
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


def model_key(engine: CompletionEngine, arithmetic: str, models_dir: str = "") -> str:
    """Key of a model: its files, number format and kernels, the engine's source, and its `arithmetic` checksum."""
    directory = store.path(engine.card.target, models_dir)
    sums = model_directory.sums_of(directory) if directory is not None else {}
    if not sums and directory is not None:
        sums = {file.name: model_directory.sum_of(file) for file in sorted(directory.iterdir()) if file.is_file()}
    return digest([engine.target, engine.device, sums, sorted(engine.prompter.stop_tokens), token_source(), arithmetic])


def arithmetic(engine: CompletionEngine) -> str:
    """Checksum of the target's logits after a meaningless text, to the last bit: it identifies the arithmetic here.

    Call it between completions. The text goes through prefill and the pass of a round, and is then forgotten.
    """
    target, vocab = engine.target_decoder, len(engine.prompter.vocabulary)
    ids = [1 + number * 7919 % (vocab - 1) for number in range(min(SUMMED_TOKENS, target.context_tokens))]
    target.forget(include_owned=False)
    target.catch_up(ids[:-SUMMED_ROWS])
    logits = on_host(target.forward(ids[-SUMMED_ROWS:]))
    target.rewind(0)
    return hashlib.sha256(logits.tobytes()).hexdigest()[:12]
