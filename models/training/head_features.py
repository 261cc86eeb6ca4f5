"""Makes what a draft head learns from: the target's own greedy answers in the product's prompts, and its hidden states.

    python -m models.training.data                                  the prompts: build/training/examples.jsonl
    python -m models.training.head_features --tokens 1000000        build/training/head/features-0000.safetensors, ...

    prompt ─► the engine, with the model's adapter ─► answer; prompt and answer ─► states of three layers for each token

The engine's own passes give the states, so they cost the prefill of the prompt and the decoding of the answer. A file
holds about 16,384 tokens. A run that was stopped goes on after the last whole file. Held-out examples come first.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from models.training.data import MODEL, OUT
from models.training.train import read_rows
from speclsp import private_files
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import NGramDrafter
from speclsp.engine.decoding.generate import Limits, generate
from speclsp.engine.loading import loading
from speclsp.engine.model.int8.hidden_states import StateRecorder
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
    """Write files until they hold `tokens` tokens. Raises InputError, OSError."""
    if not isinstance(engine.target_decoder, NativeDecoder):
        raise InputError(f"{engine.target} does not run in forward.c, which alone gives hidden states.")
    recorder = StateRecorder(engine.target_decoder)
    done, total = 0, 0
    for path in files(work):
        facts = metadata(path)
        if facts["data"] != data_sha256 or facts["target"] != engine.target:
            raise InputError(f"{path} is of other data, or of another target: choose another --work folder.")
        done, total = int(facts["done"]), total + int(facts["tokens"])
    texts: list[tuple[Row, list[int], torch.Tensor]] = []
    work.mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        if number < done:
            continue
        if total >= tokens:
            return
        texts.append((row, *answered(engine, recorder, row)))
        count = sum(len(ids) for _, ids, _ in texts)
        if count >= FILE_TOKENS or total + count >= tokens or number + 1 == len(rows):
            facts = {"data": data_sha256, "target": engine.target, "done": str(number + 1), "tokens": str(count)}
            write(work / f"features-{len(files(work)):04d}.safetensors", texts, facts)
            texts, total = [], total + count
            print(f"{total} tokens of {number + 1} examples", flush=True)


def prompt_of(row: Row) -> list[int]:
    """The prompt, with the half word that the product would spell again."""
    healed = next((i for i, weight in enumerate(row["weights"]) if weight), 0)
    return [*row["prompt"], *row["answer"][:healed]]


def answered(engine: CompletionEngine, recorder: StateRecorder, row: Row) -> tuple[list[int], torch.Tensor]:
    """The prompt with the target's answer, and the states of all tokens but the last."""
    prompt, stops = prompt_of(row), engine.prompter.stop_tokens
    engine.target_decoder.forget()
    rounds = generate(
        engine.target_decoder, [NGramDrafter()], engine.policy, prompt,
        Limits(max_tokens=ANSWER_TOKENS, stop_tokens=stops), Sampler(Sampling()), threading.Event(),
    )  # fmt: skip
    answer = [token for step in rounds for token in step.tokens]
    ids, states = recorder.text()
    text = [*prompt, *answer]
    assert ids == text[: len(ids)]
    row["prompt_tokens"] = len(prompt)
    return text[: len(ids) + 1], states


def write(path: Path, texts: list[tuple[Row, list[int], torch.Tensor]], facts: dict[str, str]) -> None:
    """Write a file in one step."""
    listed = [
        {"split": row["split"], "package": row["package"], "prompt": row["prompt_tokens"], "ids": ids}
        for row, ids, _ in texts
    ]
    content = save({str(n): states for n, (*_, states) in enumerate(texts)}, facts | {"texts": json.dumps(listed)})
    private_files.replace(path, content, mode=0o644)


def files(work: Path) -> list[Path]:
    """The files, in their order."""
    return sorted(work.glob("features-*.safetensors"))


def metadata(path: Path) -> dict[str, str]:
    """The facts of a file. Raises InputError."""
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata())
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}): remove it and those after it.") from None


def texts_of(path: Path) -> Iterator[tuple[Row, torch.Tensor]]:
    """The texts of a file, {"split", "package", "prompt" (tokens), "ids"}, each with its states [T, 3 * hidden]."""
    with safe_open(path, "pt") as file:
        for number, row in enumerate(json.loads(file.metadata()["texts"])):
            yield row, file.get_tensor(str(number))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
