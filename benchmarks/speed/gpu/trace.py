"""Acceptance of a real draft: recorded once on any machine, replayed where models have random weights.

    python -m benchmarks gpu-trace [--holes N]      writes benchmarks/speed/gpu/trace.json

For each token of the real target's greedy text, the trace records whether the real draft predicts it from the text so
far. Greedy speculation depends on nothing else, so the rounds of any γ follow exactly.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import results_file

TRACE = Path(__file__).parent / "trace.json"
TRACED_MODEL = "qwen2.5-coder-1.5b-instruct"
COMPLETION_TOKENS = 32


def rounds_needed(agrees: Sequence[bool], gamma: int, tokens: int) -> int:
    """Rounds that `tokens` tokens take when the draft's guess at each place agrees or not: exact, if greedy."""
    done = count = 0
    while done < tokens:
        run = next((i for i, right in enumerate(agrees[done : done + gamma]) if not right), None)
        done += (min(gamma, len(agrees) - done) if run is None else run) + 1
        count += 1
    return count


def replayed_rounds(trace: dict[str, Any], gamma: int) -> float:
    """Rounds for COMPLETION_TOKENS tokens: those of all the trace's holes, by their tokens."""
    rounds = sum(rounds_needed(hole, gamma, len(hole)) for hole in trace["agrees"])
    return COMPLETION_TOKENS * rounds / sum(map(len, trace["agrees"]))


def record_trace(count: int) -> None:
    """Record whether the real draft agrees with each token of the real target's greedy text, at `count` holes."""
    from benchmarks.speed.holes import holes
    from speclsp.cli.measure import complete_once
    from speclsp.config import Config
    from speclsp.engine.loading import loading
    from speclsp.weights import cards

    engine = loading.load(Config(model=TRACED_MODEL, device="cpu"), cards.load(TRACED_MODEL))
    draft, agrees = engine.draft_decoder, []
    assert draft is not None, f"{TRACED_MODEL} has a draft"
    for request in holes(count, max_tokens=COMPLETION_TOKENS):
        plain = replace(request, speculate=False, heal=False)
        prompt, tokens = engine.prompter.build(plain).ids, complete_once(engine, plain).tokens
        if tokens:
            draft.catch_up(prompt[:-1])
            guesses = draft.forward([prompt[-1], *tokens[:-1]]).argmax(-1).tolist()
            agrees.append([int(guess == token) for guess, token in zip(guesses, tokens, strict=True)])
        print(f"hole {len(agrees)} of {count}: {agrees[-1] if tokens else 'nothing'}", file=sys.stderr)
    flat = [right for hole in agrees for right in hole]
    trace = {
        "pair": f"{engine.draft} -> {engine.target}",
        "what": "1 where the draft's greedy token after the target's own text is the target's next token",
        "holes": "benchmarks.speed.holes, not healed",
        "alpha": round(statistics.mean(flat), 4),
        "accepted_at_gamma_4": [accepted_counts(hole, 4) for hole in agrees],
        "machine": results_file.machine(),
        "versions": results_file.versions(),
        "agrees": agrees,
    }
    TRACE.write_text(json.dumps(trace) + "\n", encoding="utf-8")


def accepted_counts(agrees: Sequence[int], gamma: int) -> list[int]:
    """Number of guesses that each round of `gamma` would have accepted."""
    counts, at = [], 0
    while at < len(agrees):
        window = agrees[at : at + gamma]
        accepted = next((i for i, right in enumerate(window) if not right), len(window))
        counts.append(accepted)
        at += accepted + 1
    return counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks gpu-trace`."""
    parser.add_argument("--holes", metavar="N", type=int, default=8, help="places to complete (default: 8)")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    record_trace(options.holes)
    return 0
