"""Makes what a draft head learns from: the target's own greedy answers in the product's prompts, and its hidden states.

    python -m models.training.data                                  the prompts: build/training/examples.jsonl
    python -m models.training.head_features --tokens 1000000        build/training/head/features-0000.safetensors, ...

    prompt ─► the engine, with the model's adapter ─► answer; prompt and answer ─► states of three layers for each token

The engine's own passes give the states, so they cost the prefill of the prompt and the decoding of the answer. A file
holds about 16,384 tokens. A run that was stopped goes on after the last whole file. Held-out examples come first.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import Any

from models.training.data import MODEL, OUT
from models.training.train import read_rows
from speclsp.cli.first_run.draft_tuning import draft_examples, head_texts
from speclsp.cli.first_run.draft_tuning.head_learning import Text
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import loading
from speclsp.engine.model.int8.hidden_states import StateRecorder
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.errors import InputError, SpeclspError
from speclsp.weights import cards

WORK = OUT.parent / "head"
FILE_TOKENS = 16384
HELD_OUT = 60  # examples

Row = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Exit code 0; 1 with one sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m models.training.head_features", description=__doc__.splitlines()[0]
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
    for path in head_texts.files(work):
        facts = head_texts.facts_of(path)
        if facts["data"] != data_sha256 or facts["target"] != engine.target:
            raise InputError(f"{path} is of other data, or of another target: choose another --work folder.")
        done, total = int(facts["done"]), total + int(facts["tokens"])
    texts: list[tuple[Text, Row]] = []
    for number, row in enumerate(rows[done:], done + 1):
        if total >= tokens:
            return
        text = draft_examples.answered(engine, recorder, prompt_of(row), threading.Event())
        texts.append((text, {"split": row["split"], "package": row["package"]}))
        count = sum(len(text.ids) for text, _ in texts)
        if count >= FILE_TOKENS or total + count >= tokens or number == len(rows):
            facts = {"data": data_sha256, "target": engine.target, "done": str(number), "tokens": str(count)}
            head_texts.write(work, texts, facts, 0o644)
            texts, total = [], total + count
            print(f"{total} tokens of {number} examples", flush=True)


def prompt_of(row: Row) -> list[int]:
    """The prompt, with the half word that the product would spell again."""
    healed = next((i for i, weight in enumerate(row["weights"]) if weight), 0)
    return [*row["prompt"], *row["answer"][:healed]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
