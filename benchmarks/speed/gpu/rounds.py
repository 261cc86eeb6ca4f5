"""Whole rounds by draft length, their fixed cost, and completions replayed with a recorded acceptance.

trace.json records, for each token of a real target's greedy text, whether the real draft predicts it from the text so
far. Greedy speculation depends on nothing else, so the rounds of any γ follow exactly. Commit ce6f748a made it, by
`python -m benchmarks gpu-trace`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.gpu import timing
from benchmarks.speed.gpu.models import Model, context_of, decoder, measurable_models, missing, prompt
from benchmarks.speed.gpu.passes import pass_ms
from benchmarks.speed.gpu.schedule import Record
from benchmarks.speed.gpu.timing import Bench, device_ms, fixed_cost, wall_ms
from benchmarks.speed.rounds import tau
from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.fused_round import FusedRound
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder

GAMMAS = (1, 2, 3, 4, 5, 6, 8)
PREFILL_LENGTHS = (64, 256, 1024)
ALPHA = 0.7  # acceptance of the model of a completion's time
TRACE = Path(__file__).parent / "trace.json"
COMPLETION_TOKENS = 32


def run(bench: Bench, record: Record) -> None:
    """Every pair, with the draft in nf4 and in bf16."""
    for name, draft_model, target_model in measurable_models(bench, record, 8.0):
        one_target(bench, record, name, draft_model, target_model)


def one_target(bench: Bench, record: Record, name: str, draft_model: Model, target_model: Model) -> None:
    """Rounds of one target with each number format of its draft."""
    target = decoder(bench, target_model, "bf16")
    for number_format in ("nf4", "bf16"):
        key = f"{name}, {number_format} draft"
        if why := missing(bench, (draft_model, number_format)):
            record.skip(key, why)
        elif record.has_time(key, 5.0 if bench.on_gpu() else 0.0):
            draft = decoder(bench, draft_model, number_format, draft=True)
            pair_rounds(bench, record, key, (draft_model, number_format, target_model), FusedRound(target, draft))
            target.graphs.forget()  # those of this draft, and their memory
            timing.release(bench.device)
    if record.has_time(f"{name}, prefill"):
        record.put(name, "prefill_ms_by_tokens", value=prefill_by_length(bench, target))


def fill(bench: Bench, target: CudaDecoder) -> list[int]:
    """Make the cache hold all but the last token of a context; the context."""
    context = prompt(target.shape.vocab, context_of(bench)[1])
    target.catch_up(context[:-1])
    return context


def pair_rounds(bench: Bench, record: Record, key: str, models: tuple[Model, str, Model], fused: FusedRound) -> None:
    """The rounds of a pair in one number format of its draft."""
    draft_model, number_format, target_model = models
    context, target = fill(bench, fused.target), fused.target
    length, width = len(context), target.widths[-1]
    record.put(key, "draft", value=f"{draft_model.name} {number_format}")
    record.put(key, "target", value=f"{target_model.name} bf16")
    record.put(key, "context_tokens", value=length)
    fused.round(context, 1, Sampling())
    target.rewind(length - 1)
    record.put(key, "plain_ms", value=round(plain_ms(bench, target, context), 4))
    verify_ms = pass_ms(bench, target, f"{key}, verify", width, length)
    draft_bytes = draft_model.pass_bytes(number_format, length)
    draft_step_ms = pass_ms(bench, fused.draft, f"{key}, draft step", 1, length)
    record.put(key, "verify", value=bench.limit.row(verify_ms, target_model.pass_bytes("bf16", length)))
    record.put(key, "draft_step", value=bench.limit.row(draft_step_ms, draft_bytes))
    on_device: dict[int, float] = {}
    wall: dict[int, float] = {}
    for gamma in (gamma for gamma in GAMMAS if gamma < width):
        if record.has_time(f"{key}, γ {gamma}"):
            wall[gamma], on_device[gamma] = round_ms(bench, fused, context, gamma)
            read_bytes = target_model.pass_bytes("bf16", length) + gamma * draft_bytes
            row = {**bench.limit.row(on_device[gamma], read_bytes), "wall_ms": round(wall[gamma], 4)}
            record.put(key, "by_gamma", str(gamma), value=row)
    if len(on_device) > 1:
        record.put(key, "fixed_cost", value=fixed_cost(on_device, verify_ms))
        record.put(key, "completion", value=completion(record.figures[key]["plain_ms"], wall))


def plain_ms(bench: Bench, target: CudaDecoder, context: Sequence[int]) -> float:
    """A step without a draft, from call to token on the host."""

    def step() -> None:
        target.rewind(len(context) - 1)
        target.choose(context[-1:], 1, None, ())

    step()
    target.graphs.capture_pending()
    return wall_ms(bench.device, step, bench.repeats)


def round_ms(bench: Bench, fused: FusedRound, context: Sequence[int], gamma: int) -> tuple[float, float]:
    """Milliseconds of a whole round: from call to idle, and of its graph on the device."""
    length = len(context)
    key = fused.graph_key(gamma, None)

    def once() -> None:
        fused.target.rewind(length - 1)
        fused.round(context, gamma, Sampling())

    @torch.inference_mode()
    def on_device() -> None:
        fused.device_header = None
        fused.uplink.send([length, *context[-2:], 0, 0, 0])
        fused.graphs.run(key, partial(fused.round_on_device, gamma, None))

    on_device()  # eagerly; `once` would run a shorter round that is captured already
    fused.graphs.capture_pending()
    return wall_ms(bench.device, once, bench.repeats), device_ms(bench.device, on_device, bench.repeats)


def prefill_by_length(bench: Bench, target: CudaDecoder) -> dict[str, float]:
    """Milliseconds of a cold prompt."""
    figures = {}
    for length in (length for length in PREFILL_LENGTHS if length < target.context_tokens):
        ids = prompt(target.shape.vocab, length)

        def once(ids: Sequence[int] = ids) -> None:
            target.forget()
            target.catch_up(ids)

        once()
        target.graphs.capture_pending()
        figures[str(length)] = round(wall_ms(bench.device, once, bench.repeats), 3)
    return figures


def completion(plain: float, wall: dict[int, float]) -> dict[str, Any]:
    """Milliseconds for COMPLETION_TOKENS tokens after the prompt, from measured rounds and a given acceptance."""
    modelled = {gamma: COMPLETION_TOKENS / tau(ALPHA, gamma) * ms for gamma, ms in wall.items()}
    best = min(modelled, key=modelled.__getitem__)
    figures: dict[str, Any] = {
        "tokens": COMPLETION_TOKENS,
        "plain_ms": round(plain * COMPLETION_TOKENS, 2),
        "modelled": {"alpha": ALPHA, "gamma": best, "ms": round(modelled[best], 2)},
    }
    trace = json.loads(TRACE.read_text(encoding="utf-8"))
    replayed = {gamma: ms * replayed_rounds(trace, gamma) for gamma, ms in wall.items()}
    best = min(replayed, key=replayed.__getitem__)
    figures["replayed"] = {
        "acceptance": f"recorded from {trace['pair']} on a CPU; not measured on these models",
        "gamma": best,
        "ms": round(replayed[best], 2),
        "by_gamma_ms": {str(gamma): round(ms, 2) for gamma, ms in replayed.items()},
    }
    return figures


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
