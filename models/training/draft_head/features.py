"""Makes what a draft head learns from: the target's own greedy answers in the product's prompts, and its hidden states.

    python -m models.training.data                                  the prompts: build/training/examples.jsonl
    python -m models.training.draft_head.features --tokens 1000000  build/training/head/features-0000.safetensors, ...

    prompt ─► the engine, with the model's adapter ─► answer; prompt and answer ─► states of three layers for each token

The engine's own passes give the states, so they cost the prefill of the prompt and the decoding of the answer. A file
holds about 16,384 tokens. A run that was stopped goes on after the last whole file. Held-out examples come first.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.training.data import MODEL, OUT
from models.training.draft_head import text_files
from models.training.draft_head.learning import Text
from models.training.draft_head.state_recorder import StateRecorder
from models.training.train import read_rows
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import NGramDrafter
from speclsp.engine.decoding.generate import Limits, generate
from speclsp.engine.loading import loading
from speclsp.engine.loading.torch_checkpoint import tensor
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.errors import InputError, SpeclspError
from speclsp.weights import cards

WORK = OUT.parent / "head"
FILE_TOKENS = 16384
ANSWER_TOKENS = 48
HELD_OUT = 60  # examples

Row = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Exit code 0; 1 with one sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m models.training.draft_head.features", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--model", default=MODEL, help=f"the target (default: {MODEL})")
    parser.add_argument("--data", type=Path, default=OUT, help="examples (default: build/training/examples.jsonl)")
    parser.add_argument("--work", type=Path, default=WORK, help="the files (default: build/training/head)")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of all files (default: 1000000)")
    options = parser.parse_args(arguments)
    try:
        engine = loading.load(Config(model=options.model, engine=EngineConfig(draft=False)), cards.load(options.model))
        rows, data_sha256 = read_rows(options.data)
        make(engine, ordered(rows), options.work, options.tokens, data_sha256)
    except (SpeclspError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def ordered(rows: list[Row]) -> list[Row]:
    """Some held-out examples, then those to learn from, each in the order of the data."""
    held_out = [row for row in rows if row["split"] != "train"][:HELD_OUT]
    return held_out + [row for row in rows if row["split"] == "train"]


def make(engine: CompletionEngine, rows: list[Row], work: Path, tokens: int, data_sha256: str) -> None:
    """Write files until they hold `tokens` tokens. Raises InputError, WeightsError."""
    if not isinstance(engine.target_decoder, NativeDecoder):
        raise InputError(f"{engine.target} does not run in forward.c, which alone gives hidden states.")
    recorder = StateRecorder(engine.target_decoder)
    done, total = 0, 0
    for path in text_files.files(work):
        facts = text_files.facts_of(path)
        if facts["data"] != data_sha256 or facts["target"] != engine.target:
            raise InputError(f"{path} is of other data, or of another target: choose another --work folder.")
        done, total = int(facts["done"]), total + int(facts["tokens"])
    texts: list[tuple[Text, Row]] = []
    for number, row in enumerate(rows[done:], done + 1):
        if total >= tokens:
            return
        text = answered(engine, recorder, prompt_of(row))
        texts.append((text, {"split": row["split"], "package": row["package"]}))
        count = sum(len(text.ids) for text, _ in texts)
        if count >= FILE_TOKENS or total + count >= tokens or number == len(rows):
            facts = {"data": data_sha256, "target": engine.target, "done": str(number), "tokens": str(count)}
            text_files.write(work, texts, facts, 0o644)
            texts, total = [], total + count
            print(f"{total} tokens of {number} examples", flush=True)


def answered(engine: CompletionEngine, recorder: StateRecorder, prompt: Sequence[int]) -> Text:
    """The target's greedy answer after a prompt, and the states of all tokens but the last.

    The head must guess what the target writes, and not what the file has: the file's own next tokens are no labels.
    """
    limits = Limits(max_tokens=ANSWER_TOKENS, stop_tokens=engine.prompter.stop_tokens)
    engine.target_decoder.forget()
    arguments = (engine.policy, prompt, limits, Sampler(Sampling()), threading.Event())
    answer = [token for step in generate(engine.target_decoder, [NGramDrafter()], *arguments) for token in step.tokens]
    ids, states = recorder.text()
    return Text([*prompt, *answer][: len(ids) + 1], tensor(states), len(prompt))


def prompt_of(row: Row) -> list[int]:
    """The prompt, with the half word that the product would spell again."""
    healed = next((i for i, weight in enumerate(row["weights"]) if weight), 0)
    return [*row["prompt"], *row["answer"][:healed]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
