"""Passes of one model by rows, as shares of the bandwidth's limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.speed.gpu import timing
from benchmarks.speed.gpu.models import BYTES, Model, build_s, context_of, decoder, missing, models_of
from benchmarks.speed.gpu.schedule import Record
from benchmarks.speed.gpu.timing import Bench, NotCaptured, captured_ms
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
from speclsp.engine.model.cuda.ops import choose

ROWS = (1, 2, 4, 8, 16)


def run(bench: Bench, record: Record) -> None:
    """Passes by rows of every model in every number format; bf16 first."""
    for_every_model(bench, record, model_passes)


def for_every_model(bench: Bench, record: Record, measure: Callable[[Bench, Record, Model, str], None]) -> None:
    """Measure each model in each number format that has time and memory; else list it as not measured."""
    for number_format in BYTES:
        for model in models_of(bench):
            name = f"{model.name} {number_format}"
            if not record.has_time(name, build_s(bench, model, number_format)):
                continue
            if why := missing(bench, (model, number_format)):
                record.skip(name, why)
                continue
            measure(bench, record, model, number_format)
            timing.release(bench.device)


def model_passes(bench: Bench, record: Record, model: Model, number_format: str) -> None:
    """The passes of one model."""
    name, before_mib = f"{model.name} {number_format}", timing.allocated_mib(bench.device)
    made = decoder(bench, model, number_format)
    record.put(name, "weights_and_cache_mib", value=round(timing.allocated_mib(bench.device) - before_mib, 1))
    for rows in (rows for rows in ROWS if rows <= made.widths[-1]):
        if record.has_time(f"{name}, {rows} rows"):
            try:
                record.put(name, "rows", str(rows), value=pass_row(bench, model, number_format, made, rows))
            except NotCaptured as error:
                record.skip(f"{name}, {rows} rows", str(error))


def pass_row(bench: Bench, model: Model, number_format: str, made: CudaDecoder, rows: int) -> dict[str, Any]:
    """A pass of `rows` tokens to their most probable next tokens, over a filled cache."""
    length = context_of(bench)[1]
    ms = pass_ms(bench, made, f"{model.name} {number_format}, {rows} rows", rows, length)
    return bench.limit.row(ms, model.pass_bytes(number_format, length))


def pass_ms(bench: Bench, made: CudaDecoder, name: str, rows: int, length: int) -> float:
    """Device time of a pass of `rows` tokens at position `length` - 1."""
    start = torch.full((1,), length - 1, dtype=torch.int64, device=bench.device)
    slot, ids = torch.zeros_like(start), torch.ones(rows, dtype=torch.int64, device=bench.device)
    out = torch.zeros(rows, dtype=torch.int64, device=bench.device)

    def work() -> None:
        out.copy_(choose(made.logits_of(ids, start, slot), None, None, start, start)[0])

    return captured_ms(made.graphs, name, work, bench.device, bench.repeats)
