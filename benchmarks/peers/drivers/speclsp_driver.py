"""speclsp as one of the peers: its engine, loaded as `speclsp engine` loads it, given token ids instead of text.

No token healing, and no stop tokens: like the peers, it runs through an end of text to the wanted length.
"""

from __future__ import annotations

import threading
from typing import Any

from protocol import Answer, TokenLog, serve

from speclsp import config
from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import RunningCompletion
from speclsp.engine.decoding.prompt import Prompt
from speclsp.engine.loading import loading
from speclsp.weights import cards


def load(job: dict[str, Any]) -> Answer:
    settings = {"model": job["pair"], "engine.threads": job["threads"], "engine.offline": True, **job["settings"]}
    engine = loading.load(config.load(settings), cards.load(job["pair"]))
    engine.prompter.stop_tokens = frozenset()
    modes: dict[str, dict[str, Any]] = job["modes"]

    def answer(ids: list[int], max_tokens: int, mode: str, cold: bool, log: TokenLog) -> None:
        request = Request(raw_prompt="", max_tokens=max_tokens, cache_prompt=not cold, **changes(modes[mode]))
        prompt = Prompt(ids=ids, max_tokens=max_tokens, heal=b"", previous=[], left_out=[])
        for piece in RunningCompletion(engine, request, prompt, threading.Event()):
            log(piece.tokens)

    return answer


def changes(settings: dict[str, Any]) -> dict[str, Any]:
    """A mode's settings are Request fields; JSON has no tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


if __name__ == "__main__":
    serve(load, ("speclsp", "torch", "transformers"))
