"""Equal tokens: a draft that is the target, and speculative against plain decoding.

A draft with the target's weights and the target's width of pass accepts everything if both caches hold the same bits.
Two ways to fill the caches separate the causes where it does not:

    engine     as in a completion: prefill leaves the prompt's last two tokens to the first round of both models
    narrow     the whole prompt by passes of a round: in full, if a row's bits depend on no other row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.speed.gpu import timing
from benchmarks.speed.gpu.models import Padded, build, missing, pairs_of, prompt
from benchmarks.speed.gpu.schedule import NotMeasurable, Record
from benchmarks.speed.gpu.timing import Bench
from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.fused_round import FusedRound
from speclsp.engine.model.cuda.cuda_decoder import DRAFT_WIDTHS, CudaDecoder

GAMMA = 5
GREEDY_GAMMAS = (1, 4, 8)
PROMPT_TOKENS = 100


def run(bench: Bench, record: Record) -> None:
    """Both checks on the smallest target."""
    _, model = next(iter(pairs_of(bench).values()))
    if why := missing(bench, (model, "bf16")):
        raise NotMeasurable(why)
    weights = build(bench, model, "bf16")
    twin = FusedRound(CudaDecoder(**weights), Padded(**weights, widths=DRAFT_WIDTHS))
    record.put("model", value=f"{model.name} bf16")
    prompts, tokens = (1, 24) if bench.tiny else (4, 96)
    texts = [prompt(twin.target.shape.vocab, PROMPT_TOKENS, seed) for seed in range(1, prompts + 1)]
    for name, fill in FILLS.items():
        if record.has_time(f"draft_is_target, {name}", 2.0 if bench.on_gpu() else 0.0):
            record.put("draft_is_target", name, value=draft_is_target(twin, texts, tokens, fill))
    if record.has_time("greedy", 2.0 if bench.on_gpu() else 0.0):
        record.put("greedy", value=greedy(twin, texts, tokens))
    del twin, weights
    timing.release(bench.device)


# ── ways to fill the caches with a prompt ────────────────────────────────────────────────────────────────────


def as_in_a_completion(pair: FusedRound, ids: Sequence[int]) -> None:
    pair.target.catch_up(ids[: -pair.target.first_pass_tokens])


def all_by_rounds(pair: FusedRound, ids: Sequence[int]) -> None:
    pair.target.forward(ids[:-2])
    pair.draft.forward(ids[:-2])


FILLS: dict[str, Callable[[FusedRound, Sequence[int]], None]] = {"engine": as_in_a_completion, "narrow": all_by_rounds}


# ── the draft that is the target ─────────────────────────────────────────────────────────────────────────────


def draft_is_target(
    twin: FusedRound, texts: Sequence[Sequence[int]], tokens: int, fill: Callable[[FusedRound, Sequence[int]], None]
) -> dict[str, Any]:
    """Guesses and accepted ones over all texts."""
    drafted = accepted = 0
    for text in texts:
        twin.target.forget()
        twin.draft.forget()
        fill(twin, text)
        ids = list(text)
        while len(ids) < len(text) + tokens:
            guesses, count, token = twin.round(ids, GAMMA, Sampling())
            ids += [*guesses[:count], token]
            drafted, accepted = drafted + len(guesses), accepted + count
    return {"drafted": drafted, "accepted": accepted, "in_full": drafted == accepted}


# ── speculative against plain decoding ───────────────────────────────────────────────────────────────────────


def greedy(pair: FusedRound, texts: Sequence[Sequence[int]], tokens: int) -> dict[str, Any]:
    """Tokens of speculative decoding that differ from plain decoding's, and the plain margins there."""
    divergences = compared = accepted = 0
    margins: list[float] = []
    for text in texts:
        expected, ahead = plainly(pair.target, text, tokens)
        for gamma in GREEDY_GAMMAS:
            done = 0
            while done < tokens:  # after a divergence, go on from the plain text
                actual, count = speculated(pair, [*text, *expected[:done]], gamma, tokens - done)
                same = next((i for i, token in enumerate(actual) if token != expected[done + i]), len(actual))
                if same < len(actual):
                    divergences += 1
                    margins.append(ahead[done + same])
                done, accepted = done + same + 1, accepted + count
            compared += tokens
    return {
        "tokens": compared,
        "accepted": accepted,
        "divergences": divergences,
        "widest_margin_at_a_divergence": round(max(margins, default=0.0), 4),
    }


def speculated(pair: FusedRound, ids: Sequence[int], gamma: int, tokens: int) -> tuple[list[int], int]:
    """(`tokens` new tokens in rounds of `gamma` guesses from cold caches, accepted guesses)."""
    pair.target.forget()
    pair.draft.forget()
    pair.target.catch_up(ids[:-2])
    text, accepted = list(ids), 0
    while len(text) < len(ids) + tokens:
        guesses, count, token = pair.round(text, gamma, Sampling())
        text += [*guesses[:count], token]
        accepted += count
    return text[len(ids) :][:tokens], accepted


def plainly(target: CudaDecoder, ids: Sequence[int], tokens: int) -> tuple[list[int], list[float]]:
    """(`tokens` new tokens one by one, from a cold cache; the margin of each over the second best)."""
    target.forget()
    target.catch_up(ids[:-2])
    text, margins = list(ids), []
    for _ in range(tokens):
        logits = target.forward(text[len(target.ids) :])[-1].float()
        best = logits.topk(2).values
        text.append(int(logits.argmax()))
        margins.append(float(best[0] - best[1]))
    return text[len(ids) :], margins
