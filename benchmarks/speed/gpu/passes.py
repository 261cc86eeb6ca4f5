"""Passes of one model by rows, and its kernels one by one, as shares of the bandwidth's limit.

A kernel runs once for every layer in one graph: each layer reads its own weights, so that they come from memory and not
from the device's cache, as in a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed.gpu import timing
from benchmarks.speed.gpu.models import BYTES, Model, build_s, context_of, decoder, missing, models_of, prompt
from benchmarks.speed.gpu.schedule import Record
from benchmarks.speed.gpu.timing import Bench, NotCaptured, captured_ms
from speclsp.engine.decoding.fused_round import choose_layers, way_name
from speclsp.engine.model.cuda import ops
from speclsp.engine.model.cuda.cuda_decoder import TARGET_WIDTHS, CudaDecoder

PRODUCTS = ("qkv", "out", "up", "down")  # of a layer
ROWS = {"bf16": (1, 2, 4, 8, 16), "nf4": (1, 2, 4, 8, 16)}


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
    ways = choose_layers(made, prompt(made.shape.vocab, 64), bench.repeats)
    record.put(name, "layers", value={"chosen": way_name(made.fused), "wall_ms_of_a_pass": ways})
    for rows in (rows for rows in ROWS[number_format] if rows <= made.widths[-1]):
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
        out.copy_(made.ops.choose(made.logits_of(ids, start, slot), None, None, start, start)[0])

    return captured_ms(made.graphs, name, work, bench.device, bench.repeats)


# ── kernels ──────────────────────────────────────────────────────────────────────────────────────────────────


def run_kernels(bench: Bench, record: Record) -> None:
    """The operations of a layer, the head and the end of a round, in bf16; nf4's products too."""
    for_every_model(bench, record, model_kernels)


def model_kernels(bench: Bench, record: Record, model: Model, number_format: str) -> None:
    """The kernels of one model."""
    name, made = f"{model.name} {number_format}", decoder(bench, model, number_format)
    works = products(bench, model, number_format, made)
    if number_format == "bf16":
        works |= operations(bench, model, made) | tail(made)
    for kernel, (work, count, read_bytes) in works.items():
        if not record.has_time(f"{name}, {kernel}"):
            continue
        try:
            ms = captured_ms(made.graphs, f"{name}, {kernel}", work, bench.device, bench.repeats) / count
            record.put(name, kernel, value=bench.limit.row(ms, read_bytes, read_bytes * count))
        except NotCaptured as error:
            record.skip(f"{name}, {kernel}", str(error))


Works = dict[str, tuple[Callable[[], Any], int, float]]  # kernel -> work, kernels in it, bytes that each reads


def products(bench: Bench, model: Model, number_format: str, made: CudaDecoder) -> Works:
    """The matrix products at a pass's width, by the library and by our kernel for few rows."""
    rows, layers = made.widths[-1], made.layers
    linears = {"qkv": [layer.qkv for layer in layers], "out": [layer.out for layer in layers]}
    linears |= {"up": [layer.up for layer in layers], "down": [layer.down for layer in layers], "head": [made.head]}
    qkv = (model.heads + 2 * model.kv_heads) * model.head_dim
    shapes = {
        "qkv": (model.hidden, qkv), "out": (model.heads * model.head_dim, model.hidden),
        "up": (model.hidden, 2 * model.inner), "down": (model.inner, model.hidden),
        "head": (model.hidden, model.vocab),
    }  # fmt: skip
    works: Works = {}
    for name, alike in linears.items():
        if name == "head" and number_format != "bf16":
            continue  # the head keeps 16 bits
        inside, out = shapes[name]
        x = torch.randn((rows, inside), dtype=made.dtype, device=bench.device)
        read_bytes = inside * out * BYTES[number_format]
        works[f"{name}, library"] = partial(for_all, alike, x), len(alike), read_bytes
        if made.fused is not None:
            works[f"{name}, ours"] = partial(fused_for_all, made, name, x), len(alike), read_bytes
    return works


def for_all(linears: list[Any], x: Tensor) -> None:
    for linear in linears:
        linear(x)


def fused_for_all(made: CudaDecoder, name: str, x: Tensor) -> None:
    """A product of every layer with all that its kernel does: the norm before it, or the residual after it."""
    fused, hidden = made.fused, made.shape.hidden
    assert fused is not None
    squares = torch.ones((TARGET_WIDTHS[-1], fused.squares), dtype=torch.float32, device=x.device)
    if name == "head":
        fused.linear(x, fused.head, norm=made.norm, squares=squares)
        return
    at, residual = list(PRODUCTS).index(name), torch.zeros((len(x), hidden), dtype=x.dtype, device=x.device)
    for layer, linears in zip(made.layers, fused.layers, strict=True):
        norm = {"qkv": layer.norm_attention, "up": layer.norm_mlp}.get(name)
        into = residual if norm is None else None
        fused.linear(x, linears[at], norm=norm, residual=into, squares=squares, gated=name == "up")


def operations(bench: Bench, model: Model, made: CudaDecoder) -> Works:
    """The operations between the products, by our kernels and by torch."""
    rows, layers, device = made.widths[-1], made.layers, bench.device
    length = context_of(bench)[1]
    x = torch.randn((rows, model.hidden), dtype=made.dtype, device=device)
    q = torch.randn((rows, model.heads, model.head_dim), dtype=made.dtype, device=device)
    k = torch.randn((rows, model.kv_heads, model.head_dim), dtype=made.dtype, device=device)
    gate_up = torch.randn((rows, 2 * model.inner), dtype=made.dtype, device=device)
    start, slot = (torch.tensor([at], device=device) for at in (length, 0))
    caches = list(zip(made.keys, made.values, strict=True))

    def every(by: ops.Ops, name: str) -> None:
        for layer, (keys, values) in zip(layers, caches, strict=True):
            if name == "add_norm":
                by.add_norm(x, x, layer.norm_mlp.weight, made.shape.eps)
            elif name == "rope_write":
                by.rope_write(q, k, k, made.cos, made.sin, start, slot, keys, values)
            elif name == "attend":
                by.attend(q, keys, values, start, slot, made.scale)
            else:
                by.silu_mul(gate_up)

    read_bytes = {"attend": model.kv_bytes / model.layers * length}
    return {
        f"{name}, {label}": (partial(every, by, name), len(layers), read_bytes.get(name, 0.0))
        for name in ("add_norm", "rope_write", "attend", "silu_mul")
        for label, by in {"torch": ops.TORCH, "ours": made.ops}.items()
    }


def tail(made: CudaDecoder) -> Works:
    """The end of a round: the choices and their log probabilities from the head's output, by our kernels and torch."""
    rows, vocab = made.widths[-1], made.shape.vocab
    logits = torch.randn((rows, vocab), dtype=made.dtype, device=made.device)
    zero = torch.zeros(1, dtype=torch.int64, device=made.device)
    read_bytes = float(logits.numel() * logits.element_size())
    return {
        f"tail, {label}": (partial(by.choose, logits, None, None, zero, zero), 1, read_bytes)
        for label, by in {"torch": ops.TORCH, "ours": made.ops}.items()
    }
