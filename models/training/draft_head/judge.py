"""Judge of a draft head: the target's answers at held-out places, decoded plainly, with n-grams, and with the head too.

    python -m models.training.draft_head.judge HEAD.safetensors --places 60 --out FILE.json

Each place is decoded in all ways, in turns, and the tokens must be equal. A round counts as long as the median round
of its way with the same drafter and number of guesses, drafting included. So other programs that run for a moment do
not decide. Policies learn from place to place, as in an editor. Places are those of --data whose packages no training
has read, by language.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import model_options, results_file
from models.training import releases
from models.training.data import MODEL, OUT
from models.training.draft_head.features import ANSWER_TOKENS, prompt_of
from models.training.train import read_rows
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import Drafter, HeadDrafter, NGramDrafter
from speclsp.engine.decoding.generate import Limits, Round, generate
from speclsp.engine.decoding.policy import MeasuredPolicy
from speclsp.engine.loading import head_file, loading
from speclsp.engine.model.int8.draft_head import DraftHead
from speclsp.errors import EngineError, SpeclspError
from speclsp.weights import cards

TURNS = 9
PLAIN, NGRAMS, HEAD = WAYS = ("plain", "n-grams", "n-grams and head")


def main(arguments: list[str]) -> int:
    """Exit code 0; 1 with one sentence."""
    name = "python -m models.training.draft_head.judge"
    parser = argparse.ArgumentParser(prog=name, description=__doc__.splitlines()[0])
    parser.add_argument("head", type=Path, help="the head's file")
    parser.add_argument("--model", default=MODEL, help=f"the target (default: {MODEL})")
    parser.add_argument("--data", type=Path, default=OUT, help="examples (default: build/training/examples.jsonl)")
    parser.add_argument("--places", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="held-out examples that the training's own figures used")
    parser.add_argument("--out", default="draft-head", help="the result in benchmarks/results (default: draft-head)")
    options = parser.parse_args(arguments)
    try:
        engine = loading.load(Config(model=options.model, engine=EngineConfig(draft=False)), cards.load(options.model))
        file = head_file.read(options.head)
        head = head_file.attach(engine.target_decoder, file)
        engine.head = head
        measure(engine, head)
        rows = [row for row in read_rows(options.data)[0] if row["split"] != "train"][options.skip :][: options.places]
        figures = {**model_options.about(engine), "head": head_file.label(file), "bytes": options.head.stat().st_size}
        figures |= judged(engine, rows)
        results_file.write("draft-head", figures, options.out)
        print(json.dumps(figures, indent=1))
    except (SpeclspError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def measure(engine: CompletionEngine, head: DraftHead) -> None:
    """Measure passes and guesses in turns. The fastest of each counts: other programs may run now."""
    target, context = engine.target_decoder, list(range(1, 257))
    widths = [rows for rows in engine.costs.verify_ms if rows < len(context)]
    times: dict[int, list[float]] = {rows: [] for rows in widths}
    guesses = []
    target.forget()
    target.catch_up(context)
    for _ in range(TURNS):
        for rows in widths:
            target.rewind(len(context))
            began_s = perf_counter()
            target.forward(context[:rows])
            times[rows].append((perf_counter() - began_s) * 1e3)
        target.rewind(len(context))
        guesses.append(head.measure(1))
    engine.costs.set_guess("head", min(guesses))
    engine.costs.verify_ms = {rows: min(of_rows) for rows, of_rows in times.items()}
    target.forget()


def judged(engine: CompletionEngine, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of each way, over all places and by language. Raises EngineError: the tokens differ."""
    policies = {way: MeasuredPolicy(replace(engine.costs), engine.config.max_draft_tokens) for way in WAYS}
    language_of = {package.name: package.languages[0] for package in releases.listed()}
    places = []
    for number, row in enumerate(rows):
        runs = {way: decoded(engine, policies[way], prompt_of(row), way) for way in WAYS[:: 1 - number % 2 * 2]}
        texts = {tuple(token for step in steps for token in step.tokens) for steps in runs.values()}
        if len(texts) > 1:
            raise EngineError(f"place {number} has {len(texts)} different answers, and drafts must not change any.")
        places.append((language_of.get(row["package"], "other"), runs))
        print(f"{number + 1} of {len(rows)}", file=sys.stderr, flush=True)
    languages = sorted({language for language, _ in places})
    groups = {"all": [runs for _, runs in places]}
    groups |= {name: [runs for language, runs in places if language == name] for name in languages}
    costs = engine.costs
    usual_ms = {way: usual(step for _, runs in places for step in runs[way]) for way in WAYS}
    return {
        "places": len(rows), "head_ms": round(costs.guess("head"), 3),
        "verify_ms": {str(rows): round(ms, 2) for rows, ms in costs.verify_ms.items()},
        "by_language": {
            name: {"places": len(of_group)}
            | {way: figures([run[way] for run in of_group], usual_ms[way]) for way in WAYS}
            for name, of_group in groups.items()
        },
        "head_acceptance": {
            str(depth): round(policies[HEAD].acceptance("head", depth).alpha, 3) for depth in range(4)
        },
    }  # fmt: skip


def decoded(engine: CompletionEngine, policy: MeasuredPolicy, prompt: list[int], way: str) -> list[Round]:
    """The rounds of an answer. A way without the head keeps no hidden states."""
    drafters: list[Drafter] = [NGramDrafter()] if way != PLAIN else []
    if way == HEAD and engine.head is not None:
        engine.head.open()
        drafters.append(HeadDrafter(engine.head, prompt, engine.prompter.stop_tokens))
    else:
        engine.target_decoder.detach()
    policy.start()
    limits = Limits(max_tokens=ANSWER_TOKENS, stop_tokens=engine.prompter.stop_tokens)
    arguments = (limits, Sampler(Sampling()), threading.Event())
    return [step for step in generate(engine.target_decoder, drafters, policy, prompt, *arguments) if step.ms]


def usual(rounds: Iterable[Round]) -> dict[tuple[str, int], float]:
    """The median milliseconds of a round, by its drafter and its number of guesses."""
    times: dict[tuple[str, int], list[float]] = {}
    for step in rounds:
        times.setdefault((step.source, step.drafted), []).append(step.ms)
    return {kind: median(values) for kind, values in times.items()}


def figures(answers: list[list[Round]], usual_ms: Mapping[tuple[str, int], float]) -> dict[str, Any]:
    """Tokens a round and ms a token, by the usual time of each kind of round."""
    rounds = [step for steps in answers for step in steps]
    tokens = sum(len(step.tokens) for step in rounds)
    ms = sum(usual_ms[step.source, step.drafted] for step in rounds)
    sources = Counter(step.source or "plain" for step in rounds)
    accepted: Counter[str] = Counter()
    for step in rounds:
        accepted[step.source or "plain"] += step.accepted
    return {
        "tokens": tokens, "rounds": len(rounds), "tokens_per_round": round(tokens / max(len(rounds), 1), 3),
        "ms_per_token": round(ms / max(tokens, 1), 3), "rounds_by_source": dict(sources),
        "drafted": sum(step.drafted for step in rounds), "accepted_by_source": dict(accepted),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
