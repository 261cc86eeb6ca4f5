"""Cancellation latency on a device, and memory: by model and number format, and what smaller caches give back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import torch

from benchmarks.speed.gpu import timing
from benchmarks.speed.gpu.models import (
    Model,
    build_s,
    context_of,
    decoder,
    measurable_models,
    missing,
    models_of,
    pairs_of,
    prompt,
)
from benchmarks.speed.gpu.schedule import NotMeasurable, Record
from benchmarks.speed.gpu.timing import Bench, idle, quantile, wall_ms
from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.fused_round import FusedRound, warm_prefill
from speclsp.engine.model.cuda.memory_plan import PREFILL_WIDTHS
from speclsp.engine.model.kv_cache import SLOTS, Cancelled

TIMES, FEW_TIMES = 80, 5
GAMMA = 4


def run(bench: Bench, record: Record) -> None:
    """Cancellation with the largest target first: its groups of layers are the longest."""
    for name, draft_model, target_model in measurable_models(bench, record, 8.0, largest_first=True):
        pair_cancelled(bench, record, name, draft_model, target_model)


def pair_cancelled(bench: Bench, record: Record, name: str, draft_model: Model, target_model: Model) -> None:
    """Cancellation of one pair's prefill and rounds."""
    fused = FusedRound(decoder(bench, target_model, "bf16"), decoder(bench, draft_model, "bf16", draft=True))
    context = prompt(fused.target.shape.vocab, min(PREFILL_WIDTHS[-1], context_of(bench)[1]))
    warm_prefill(fused.target, context, 3)
    for what, work in works(bench, fused).items():
        record.put(name, what, value=late_ms(bench, work, record))


def works(bench: Bench, fused: FusedRound) -> dict[str, Callable[[threading.Event], None]]:
    """Work that a flag stops: a cold prompt, and rounds."""
    target = fused.target
    ids = prompt(target.shape.vocab, context_of(bench)[1])

    def prefill(cancel: threading.Event) -> None:
        target.forget()
        target.catch_up(ids, cancel)

    def rounds(cancel: threading.Event) -> None:
        text = list(ids)
        target.catch_up(text[:-1])
        while not cancel.is_set() and len(text) < len(ids) + 40:
            guesses, accepted, token = fused.round(text, GAMMA, Sampling())
            text += [*guesses[:accepted], token]

    return {"prefill": prefill, "rounds": rounds}


def late_ms(bench: Bench, work: Callable[[threading.Event], None], record: Record) -> dict[str, float]:
    """From setting the flag, at a random moment, to the device being idle again."""
    dice = torch.Generator().manual_seed(3)
    whole_ms, late = wall_ms(bench.device, partial(work, threading.Event()), 3), []
    for _ in range(FEW_TIMES if bench.tiny else TIMES):
        if record.time_left_s() < 1.0 and not bench.tiny:
            break
        cancel, set_s = threading.Event(), [0.0]

        def set_it(cancel: threading.Event = cancel, set_s: list[float] = set_s) -> None:
            set_s[0] = time.perf_counter()
            cancel.set()

        timer = threading.Timer(float(torch.rand(1, generator=dice)) * whole_ms / 1e3, set_it)
        timer.start()
        with suppress(Cancelled):
            work(cancel)
        idle(bench.device)
        ended_s = time.perf_counter()
        timer.join()
        if 0.0 < set_s[0] < ended_s:
            late.append((ended_s - set_s[0]) * 1e3)
    return {"p50": round(quantile(late, 0.5), 3), "p99": round(quantile(late, 0.99), 3), "times": len(late)}


def run_memory(bench: Bench, record: Record) -> None:
    """MiB of weights, of caches and of captured rounds; then of smaller caches."""
    draft_model, target_model = next(iter(pairs_of(bench).values()))
    if why := missing(bench, (draft_model, "bf16"), (target_model, "bf16")):
        raise NotMeasurable(why)
    before_mib = timing.reserved_mib(bench.device)

    def put(step: str) -> None:
        timing.release(bench.device)
        record.put(step, value=round(timing.reserved_mib(bench.device) - before_mib, 1))

    target = decoder(bench, target_model, "bf16", slots=SLOTS)
    put(f"{target_model.name} bf16, {SLOTS} texts of {target.context_tokens} tokens")
    target.forward(prompt(target.shape.vocab, target.widths[-1]))
    target.graphs.capture_pending()
    put("with a captured pass")
    target.set_slot_count(1)
    put("1 text")
    target.set_context_tokens(target.context_tokens // 2)
    put("half the context")
    del target
    put("after release")
    for model in models_of(bench):
        for number_format in ("bf16", "nf4"):
            name = f"{model.name} {number_format}, 1 text"
            if not record.has_time(name, build_s(bench, model, number_format)):
                continue
            if why := missing(bench, (model, number_format)):
                record.skip(name, why)
                continue
            made = decoder(bench, model, number_format)
            put(name)
            del made
            timing.release(bench.device)
