"""Is the engine right on this device? The draft that is the target, and speculative against plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.fused_round import FusedRound
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder


def prompts(vocab: int, count: int, length: int) -> list[list[int]]:
    dice = torch.Generator().manual_seed(1)
    return [torch.randint(0, vocab, (length,), generator=dice).tolist() for _ in range(count)]


def generated(made: FusedRound, prompt: Sequence[int], gamma: int, tokens: int) -> tuple[list[int], int, int]:
    """(`tokens` new tokens in fused rounds of `gamma` guesses from cold caches, number guessed, number accepted)."""
    made.target.forget()
    made.draft.forget()
    made.target.catch_up(prompt[:-1])
    ids, drafted, accepted = list(prompt), 0, 0
    while len(ids) < len(prompt) + tokens:
        guesses, accepted_now, token = made.round(ids, gamma, Sampling())
        ids += [*guesses[:accepted_now], token]
        drafted, accepted = drafted + len(guesses), accepted + accepted_now
    return ids[len(prompt) :][:tokens], drafted, accepted


def plainly(target: CudaDecoder, prompt: Sequence[int], tokens: int) -> tuple[list[int], list[float]]:
    """(`tokens` new tokens one by one, from a cold cache; the margin of each over the second best)."""
    target.forget()
    target.catch_up(prompt[:-1])
    ids, margins = list(prompt), []
    for _ in range(tokens):
        best = target.forward(ids[-1:])[0].topk(2).values
        target.rewind(len(ids) - 1)
        ids.append(int(target.forward(ids[-1:])[0].argmax()))
        margins.append(float(best[0] - best[1]))
    return ids[len(prompt) :], margins


def correctness(made: FusedRound, twin: FusedRound, count: int, tokens: int, vocab: int) -> dict[str, Any]:
    """Draft == target accepts everything; greedy speculative is plain decoding; where not, how often and how near."""
    drafted = accepted = divergences = compared = 0
    margins: list[float] = []
    for prompt in prompts(vocab, count, 100):
        _, guessed, accepted_now = generated(twin, prompt, 5, tokens)
        drafted, accepted = drafted + guessed, accepted + accepted_now
        expected, ahead = plainly(made.target, prompt, tokens)
        for gamma in (1, 4, 8):
            done = 0
            while done < tokens:  # after a divergence, go on from the plain text
                actual, _, _ = generated(made, [*prompt, *expected[:done]], gamma, tokens - done)
                same = next((i for i, token in enumerate(actual) if token != expected[done + i]), len(actual))
                if same < len(actual):
                    divergences += 1
                    margins.append(ahead[done + same])
                done += same + 1
            compared += tokens
    return {
        "draft_is_target": {"drafted": drafted, "accepted": accepted, "in_full": drafted == accepted},
        "greedy": {
            "tokens": compared,
            "divergences": divergences,
            "divergences_per_1000": round(1000 * divergences / compared, 3),
            "widest_margin_at_a_divergence": round(max(margins, default=0.0), 4),
        },
    }
