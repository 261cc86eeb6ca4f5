"""Trains a draft head from the files of features.py, in pieces, and writes it as a file.

    python -m models.training.draft_head.train --budget-minutes 25 --minutes 10    10 minutes; again, and it goes on
    python -m models.training.draft_head.train --budget-minutes 25 --export FILE   at the end, the head's file

    features ─► steps of 6 texts ─► state.safetensors every minute, log.jsonl: a line a step, held-out acceptance

Any Llama-shaped target that runs in forward.c works, with its adapter or without one: --model names it, as in
features.py. Exit code 3: a part is left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from models.training.data import MODEL, OUT
from models.training.draft_head import export, text_files
from models.training.draft_head.features import WORK
from models.training.draft_head.layer import INNER, VOCABULARY, HeadLayer, new_head
from models.training.draft_head.learning import HeadTraining, Text
from models.training.draft_head.state_recorder import layers_of
from models.training.train import read_rows, write_log
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading import adapter_choice, checkpoint, head_file
from speclsp.engine.loading.head_file import GROUP
from speclsp.engine.loading.model_config import read_config
from speclsp.errors import EngineError, InputError, SpeclspError
from speclsp.weights import cards, store

HELD_OUT_EVERY = 50  # steps
HELD_OUT_TEXTS = 40
GUESSES = 4  # of a chain whose acceptance is counted


def main(arguments: list[str]) -> int:
    """Exit code 0 at the end, 3 if a part is left, 1 with one sentence."""
    name = "python -m models.training.draft_head.train"
    parser = argparse.ArgumentParser(prog=name, description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MODEL, help=f"the target (default: {MODEL})")
    parser.add_argument("--data", type=Path, default=OUT, help="examples, whose tokens make the vocabulary")
    parser.add_argument("--features", type=Path, nargs="+", default=[WORK], help="folders of features.py")
    parser.add_argument("--work", type=Path, default=WORK, help="state and log (default: build/training/head)")
    parser.add_argument("--minutes", type=float, default=1e9, help="length of this piece (default: to the end)")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, default=0, help="length of the whole training")
    length.add_argument("--budget-minutes", type=float, default=0.0, help="the same, in time")
    parser.add_argument("--inner", type=int, default=INNER, help=f"width of the head's MLP (default: {INNER})")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help=f"common tokens (default: {VOCABULARY})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--export", type=Path, help="the head's file")
    parser.add_argument("--bits", type=int, choices=(8, 4), default=4, help="of a weight in the file (default: 4)")
    options = parser.parse_args(arguments)
    try:
        return train(options)
    except (SpeclspError, EngineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def train(options: argparse.Namespace) -> int:
    """Train a piece. Raises SpeclspError, OSError."""
    texts, held_out, facts = read_texts(options.features)
    rows, _ = read_rows(options.data)
    card = cards.load(options.model)
    directory = store.path(card.target)
    if directory is None:
        raise InputError(f"the weights of {options.model} are not here: `speclsp models pull {options.model}`.")
    loras, problem = adapter_choice.choose("auto", "", [(card.target, directory)])
    if problem:
        raise InputError(problem)
    vocabulary = common_tokens(rows, options.vocabulary, read_config(directory).vocab_size)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    head = new_head(directory, loras[0], vocabulary, options.inner, options.seed).on(device)
    plan = {
        "model": options.model, "inner": options.inner, "vocabulary": options.vocabulary, "steps": options.steps,
        "budget_minutes": options.budget_minutes, "seed": options.seed, "texts": len(texts),
        "target": facts["target"],
    }  # fmt: skip
    training = HeadTraining(
        head, texts, options.work / "state.safetensors", plan,
        steps=options.steps, budget_s=options.budget_minutes * 60, seed=options.seed,
    )  # fmt: skip
    log, until_s = options.work / "log.jsonl", time.monotonic() + options.minutes * 60
    cut_log(log, training.step_count)

    def report(line: dict[str, Any]) -> None:
        if line["step"] % HELD_OUT_EVERY == 0 or training.progress >= 1:
            line |= {"held_out": acceptance(head, held_out[:HELD_OUT_TEXTS])}
        with log.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    is_done = training.run(lambda: time.monotonic() >= until_s, report)
    if options.export and is_done:
        tokenizer = checkpoint.read_tokenizer(directory)
        use = head_file.use_of(directory, loras[0], Vocabulary(tokenizer))
        metadata = export.metadata(use, options.export.stem, layers_of(read_config(directory).num_hidden_layers))
        size = export.write(head.tensors(), vocabulary, metadata, options.export, 0o644, options.bits)
        print(f"{options.export}: {size} bytes")
    return 0 if is_done else 3


def common_tokens(rows: list[dict[str, Any]], count: int, vocab: int) -> torch.Tensor:
    """The most common tokens of the examples to learn from. Each package has the same weight.

    Returns:
        [count] ids, a multiple of GROUP, which forward.c multiplies together. The lowest ids, which a tokenizer merged
        first, fill them up.
    """
    weights: Counter[int] = Counter()
    packages: dict[str, Counter[int]] = {}
    for row in rows:
        if row["split"] == "train":
            packages.setdefault(row["package"], Counter()).update([*row["prompt"], *row["answer"]])
    for counts in packages.values():
        total = sum(counts.values())
        weights.update({token: round(1e9 * n / total) for token, n in counts.items()})
    chosen = dict.fromkeys([token for token, _ in weights.most_common()] + list(range(vocab)))
    return torch.tensor(sorted(list(chosen)[: min(count, vocab) // GROUP * GROUP]))


def read_texts(folders: list[Path]) -> tuple[list[Text], list[Text], dict[str, str]]:
    """(texts to learn from, held-out texts, the facts of the first file). Raises InputError."""
    listed = [path for folder in folders for path in text_files.files(folder)]
    if not listed:
        raise InputError(f"{folders[0]} has no features: `python -m models.training.draft_head.features` makes them.")
    parts: dict[bool, list[Text]] = {True: [], False: []}
    for path in listed:
        for text, row in text_files.read(path):
            parts[row["split"] == "train"].append(text)
    return parts[True], parts[False], text_files.facts_of(listed[0])


@torch.no_grad()
def acceptance(head: HeadLayer, texts: Iterable[Text]) -> list[float]:
    """The share of places in the answers where the first 1, 2, ... GUESSES guesses are the target's own tokens.

    Guesses are from the head's vocabulary and the prompt's tokens, as in the engine.
    """
    counts, places = torch.zeros(GUESSES), 0
    for text in texts:
        ids, total = torch.tensor(text.ids, device=head.device), len(text.ids)
        at = torch.arange(text.prompt, max(text.prompt, min(len(text.states), total - GUESSES)), device=head.device)
        if not len(at):
            continue  # the answer is too short for a chain
        vocabulary = torch.unique(torch.cat([head.target.vocabulary, ids[: text.prompt]]))
        rows = head.target.embedding[vocabulary].float()
        before = torch.zeros(total, text.states.shape[1], device=head.device)
        before[1 : len(text.states) + 1] = text.states[: total - 1]
        right = torch.ones(len(at), dtype=torch.bool, device=head.device)
        for step, state in enumerate(head.chain(ids, before, at, GUESSES)):
            guess = vocabulary[(head.norm(state, "norm_last") @ rows.T).argmax(-1)]
            right &= guess == ids[at + step + 1]
            counts[step] += int(right.sum())
        places += len(at)
    return [round(float(count) / max(places, 1), 3) for count in counts]


def cut_log(log: Path, step: int) -> None:
    """Remove the log's lines after `step`, and a line that was not written to its end."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    log.parent.mkdir(parents=True, exist_ok=True)
    write_log(log, "".join(f"{line}\n" for line in lines if json.loads(line)["step"] <= step))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
