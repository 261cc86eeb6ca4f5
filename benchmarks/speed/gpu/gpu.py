"""The engine on a GPU: correctness, and its time beside the memory bandwidth's limit and beside transformers.

    python -m benchmarks gpu [--shapes 0.5b-1.5b,0.5b-7b] [--repeats 20] [--prompts 20] [--no-peers]
    python -m benchmarks gpu --device cpu --shapes tiny      a test of this script; its times say nothing about a GPU

Models have the real shapes and random weights: times are true, texts are not. The gain of speculation depends on how
often the draft is right, so completions are replayed from benchmarks/speed/gpu/trace.json (trace.py), which the real
0.5B and 1.5B models made on a CPU; every such figure is labelled. Writes benchmarks/results/gpu-<kind>.json; exit
code 1 when a check of correctness fails.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from benchmarks import results_file
from benchmarks.speed.gpu.checks import correctness, prompts
from benchmarks.speed.gpu.models import PAIRS, Model, Padded, build
from benchmarks.speed.gpu.peers import idle, peers
from benchmarks.speed.gpu.trace import COMPLETION_TOKENS, TRACE, replayed_rounds
from speclsp.engine.decoding import fused_round
from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.fused_round import FusedRound
from speclsp.engine.decoding.policy import tau
from speclsp.engine.model.cuda.cuda_decoder import DRAFT_WIDTHS, CudaDecoder
from speclsp.engine.model.kv_cache import Cancelled
from speclsp.errors import EngineError

CONTEXT_TOKENS = 2048
GAMMAS = (1, 2, 3, 4, 5, 6, 8, 12, 15)
PREFILL_LENGTHS = (16, 64, 256, 512, 1024)


Work = Callable[[], Any]


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────────────────


def wall_ms(device: str, work: Work, repeats: int) -> float:
    """The median time from call to the device being idle."""
    return fused_round.elapsed_ms(device, work, repeats)


def device_ms(device: str, work: Work, repeats: int) -> float:
    """The time on the device, between two events around `repeats` of them in a row; on a CPU, by the clock."""
    work()
    idle(device)
    if device == "cpu":
        return wall_ms(device, work, repeats)
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    for _ in range(repeats):
        work()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / repeats


def copy_gb_per_s(device: str, repeats: int) -> float:
    """Memory bandwidth of a plain copy, counting bytes read and bytes written."""
    size = 2**30 if device != "cpu" else 2**26
    source = torch.empty(size, dtype=torch.uint8, device=device)
    into = torch.empty_like(source)
    return 2 * size / device_ms(device, lambda: into.copy_(source), repeats) / 1e6


# ── how fast is it? ──────────────────────────────────────────────────────────────────────────────────────────


def passes(
    made: FusedRound, models: tuple[Model, str, Model], length: int, gb_per_s: float, repeats: int
) -> dict[str, Any]:
    """Plain step, verification by width, draft step and whole rounds, over a context of `length` tokens."""
    draft_model, draft_format, target_model = models
    target, device = made.target, made.target.device
    context = prompts(target.shape.vocab, 1, length)[0]
    target.catch_up(context[:-1])
    made.round(context, 1, Sampling())  # both caches hold the context, and the header says where
    target.rewind(length - 1)

    def timed(decoder: CudaDecoder, rows: int) -> float:
        start = torch.full((1,), length - 1, dtype=torch.int64, device=device)
        slot, ids = torch.zeros_like(start), torch.ones(rows, dtype=torch.int64, device=device)
        out = torch.zeros(rows, dtype=torch.int64, device=device)

        @torch.inference_mode()
        def work() -> None:
            out.copy_(decoder.logits_of(ids, start, slot).argmax(dim=-1))

        key = ("bench", id(decoder), rows)
        decoder.graphs.run(key, work)
        decoder.graphs.capture_pending()
        return device_ms(device, partial(decoder.graphs.run, key, work), repeats)

    def figure(ms: float, floor_bytes: float) -> dict[str, float]:
        return {"ms": round(ms, 4), "percent_of_floor": round(100 * floor_bytes / gb_per_s / 1e6 / ms, 1)}

    target_bytes = target_model.pass_bytes("bf16", length)
    draft_bytes = draft_model.pass_bytes(draft_format, length)
    width = target.widths[-1]
    figures: dict[str, Any] = {
        "plain_step": figure(timed(target, width), target_bytes),
        "verify_by_rows": {rows: figure(timed(target, rows), target_bytes) for rows in range(1, 18)},
        "draft_step": figure(timed(made.draft, 1), draft_bytes),
        "round_by_gamma": {},
    }
    for gamma in (gamma for gamma in GAMMAS if gamma < width):
        whole_ms, graph_ms = round_ms(made, context, length, gamma, repeats)
        figures["round_by_gamma"][gamma] = {
            **figure(whole_ms, target_bytes + gamma * draft_bytes),
            "device_ms": round(graph_ms, 4),
            "host_gap_ms": round(max(whole_ms - graph_ms, 0.0), 4),
        }

    def plain_round() -> None:
        target.rewind(length - 1)
        target.forward(context[-1:]).argmax(dim=-1).tolist()

    figures["plain_round_ms"] = round(wall_ms(device, plain_round, repeats), 4)
    return figures


def round_ms(made: FusedRound, context: Sequence[int], length: int, gamma: int, repeats: int) -> tuple[float, float]:
    """Milliseconds of a whole round of `gamma` guesses: from call to idle, and of its graph on the device."""
    target, device = made.target, made.target.device

    def once() -> None:
        target.rewind(length - 1)
        made.round(context, gamma, Sampling())

    once()
    made.graphs.capture_pending()
    key = made._key(gamma, Sampling())
    whole_ms = wall_ms(device, once, repeats)

    @torch.inference_mode()
    def on_device() -> None:
        made.device_header = None
        made.uplink.send([length, *context[-2:], 0, 0, 0])
        made.graphs.run(key, partial(made._round, gamma, Sampling()))

    return whole_ms, device_ms(device, on_device, repeats)


def prefill_by_length(target: CudaDecoder, repeats: int) -> dict[int, float]:
    """Milliseconds of a cold prompt."""
    figures = {}
    for length in (length for length in PREFILL_LENGTHS if length < target.context_tokens):
        prompt = prompts(target.shape.vocab, 1, length)[0]

        def once(prompt: Sequence[int] = prompt) -> None:
            target.forget()
            target.catch_up(prompt)

        once()
        figures[length] = round(wall_ms(target.device, once, repeats), 3)
    return figures


def cancel_ms(made: FusedRound, repeats: int) -> dict[str, dict[str, float]]:
    """From setting the flag, at a random moment, to the device being idle again: in prefill, and between rounds."""
    target, dice = made.target, torch.Generator().manual_seed(3)
    length = min(1024, target.context_tokens - 64)
    prompt = prompts(target.shape.vocab, 1, length)[0]

    def prefill(cancel: threading.Event) -> None:
        target.forget()
        target.catch_up(prompt, cancel)

    def rounds(cancel: threading.Event) -> None:
        ids = list(prompt)
        target.catch_up(ids[:-1])
        while not cancel.is_set() and len(ids) < len(prompt) + 40:
            guesses, accepted, token = made.round(ids, 4, Sampling())
            ids += [*guesses[:accepted], token]

    figures = {}
    for name, work in (("prefill", prefill), ("rounds", rounds)):
        whole_ms, late = wall_ms(target.device, partial(work, threading.Event()), 3), []
        for _ in range(max(repeats, 5)):
            cancel, set_s = threading.Event(), [0.0]

            def set_it(cancel: threading.Event = cancel, set_s: list[float] = set_s) -> None:
                set_s[0] = time.perf_counter()
                cancel.set()

            timer = threading.Timer(float(torch.rand(1, generator=dice)) * whole_ms / 1e3, set_it)
            timer.start()
            with suppress(Cancelled):
                work(cancel)
            idle(target.device)
            ended_s = time.perf_counter()
            timer.join()
            if 0.0 < set_s[0] < ended_s:
                late.append((ended_s - set_s[0]) * 1e3)
        figures[name] = {
            "p50": round(quantile(late, 0.5), 3),
            "p99": round(quantile(late, 0.99), 3),
            "times": len(late),
        }
    return figures


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def kernels_against_torch(made: FusedRound, length: int, repeats: int) -> dict[str, Any]:
    """Microseconds of each kernel and of its torch function, and of the product for few rows and of cuBLAS."""
    from speclsp.engine.model.cuda import kernels, ops

    target, layer = made.target, made.target.layers[0]
    shape, rows, device = target.shape, target.widths[-1], target.device
    x = torch.randn((rows, shape.hidden), dtype=target.dtype, device=device)
    q = torch.randn((rows, shape.heads, shape.head_dim), dtype=target.dtype, device=device)
    k = torch.randn((rows, shape.kv_heads, shape.head_dim), dtype=target.dtype, device=device)
    start, slot = (torch.tensor([at], device=device) for at in (length, 0))
    gate_up = layer.up(x)
    cache = target.keys[0], target.values[0]
    calls: dict[str, Callable[[ops.Ops], Any]] = {
        "add_norm": lambda by: by.add_norm(x, x, layer.norm_mlp.weight, shape.eps),
        "rope_write": lambda by: by.rope_write(q, k, k, target.cos, target.sin, start, slot, *cache),
        "attend": lambda by: by.attend(q, *cache, start, slot, target.scale),
        "silu_mul": lambda by: by.silu_mul(gate_up),
    }
    figures: dict[str, Any] = {}
    for name, call in calls.items():
        torch_ms, triton_ms = (captured_ms(made, partial(call, by), repeats) for by in (ops.TORCH, kernels.TRITON))
        figures[name] = {"torch_us": round(torch_ms * 1e3, 2), "triton_us": round(triton_ms * 1e3, 2)}
    for name, linear in (("qkv", layer.qkv), ("out", layer.out), ("up", layer.up), ("head", target.head)):
        weight, bias = linear.weight, linear.bias  # type: ignore[attr-defined]  # bf16: FloatLinear
        rows_in = torch.randn((rows, weight.shape[1]), dtype=target.dtype, device=device)
        cublas_ms = captured_ms(made, partial(linear, rows_in), repeats)
        skinny_ms = captured_ms(made, partial(kernels.skinny, rows_in, weight, bias), repeats)
        figures[f"linear {name}"] = {"cublas_us": round(cublas_ms * 1e3, 2), "skinny_us": round(skinny_ms * 1e3, 2)}
    return figures


def captured_ms(made: FusedRound, work: Work, repeats: int) -> float:
    """Device time of captured work, without its launch cost."""

    def quiet() -> None:
        with torch.inference_mode():
            work()

    key = ("bench", id(work))
    made.graphs.run(key, quiet)
    made.graphs.capture_pending()
    return device_ms(made.target.device, partial(made.graphs.run, key, quiet), repeats)


# ── completions, replayed ────────────────────────────────────────────────────────────────────────────────────


def completions(found: dict[str, Any], trace: dict[str, Any] | None) -> dict[str, Any]:
    """Milliseconds for COMPLETION_TOKENS tokens after the prompt, from measured round times and a given acceptance."""
    by_gamma = {gamma: entry["ms"] for gamma, entry in found["round_by_gamma"].items()}
    modelled = {gamma: COMPLETION_TOKENS / tau(0.7, gamma) * ms for gamma, ms in by_gamma.items()}
    best = min(modelled, key=modelled.__getitem__)
    figures: dict[str, Any] = {
        "plain_ms": round(found["plain_round_ms"] * COMPLETION_TOKENS, 2),
        "alpha_0.7_modelled": {"gamma": best, "ms": round(modelled[best], 2)},
    }
    if trace is not None:
        replayed = {gamma: ms * replayed_rounds(trace, gamma) for gamma, ms in by_gamma.items()}
        best = min(replayed, key=replayed.__getitem__)
        figures["replayed_trace"] = {
            "acceptance": f"replayed from {trace['pair']} on a CPU; not measured on these models",
            "gamma": best,
            "ms": round(replayed[best], 2),
            "by_gamma_ms": {gamma: round(ms, 2) for gamma, ms in replayed.items()},
        }
    return figures


# ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────


def bench(name: str, device: str, gb_per_s: float, repeats: int, checked: int, with_peers: bool) -> dict[str, Any]:
    """Everything about one pair of shapes. `checked`: prompts of the check of correctness."""
    draft_model, draft_format, target_model = PAIRS[name]
    if draft_format == "nf4" and find_spec("bitsandbytes") is None:
        draft_format = "bf16"  # noted in the figures: not every GPU machine has bitsandbytes
    models = (draft_model, draft_format, target_model)
    vocab = min(draft_model.vocab, target_model.vocab, 151_665 if target_model.vocab > 100_000 else 10**9)
    context_tokens = CONTEXT_TOKENS if device != "cpu" else 512
    length = min(1024, context_tokens // 2)
    trace = json.loads(TRACE.read_text(encoding="utf-8")) if TRACE.is_file() else None
    target_parts = build(target_model, "bf16", device, vocab, context_tokens, seed=1)
    draft_parts = build(draft_model, draft_format, device, vocab, context_tokens, seed=2)
    twin = FusedRound(CudaDecoder(**target_parts), Padded(**target_parts, widths=DRAFT_WIDTHS))
    costs, fused = fused_round.warm_up(
        CudaDecoder(**target_parts), CudaDecoder(**draft_parts, widths=DRAFT_WIDTHS), repeats
    )
    assert fused is not None
    few = device == "cpu"
    figures: dict[str, Any] = {
        "draft": f"{draft_model.name} {draft_format}",
        "target": f"{target_model.name} bf16",
        "weights": "random",
        "context_tokens": length,
        "correctness": correctness(fused, twin, 1 if few else checked, 24 if few else 128, vocab),
        "costs_of_warm_up_ms": {"verify": costs.verify_ms, "draft": costs.draft_ms, "prefill": costs.prefill_ms},
    }
    del twin
    figures |= passes(fused, models, length, gb_per_s, repeats)
    figures["prefill_ms_by_tokens"] = prefill_by_length(fused.target, repeats)
    figures["cancel_ms"] = cancel_ms(fused, 5 if few else 100)
    figures["completion_of_32_tokens"] = completions(figures, trace)
    if not few:
        figures["kernels_us"] = kernels_against_torch(fused, length, repeats)
    if with_peers:
        del fused, target_parts, draft_parts
        figures["transformers"] = peers(models, device, length, trace)
    return figures


def report(name: str, found: dict[str, Any]) -> None:
    """The figures, for people."""
    print(f"\n{name}: {found['draft']} -> {found['target']}, random weights, {found['context_tokens']} tokens cached")
    for what in ("plain_step", "draft_step"):
        print(f"  {what:16} {found[what]['ms']:9.3f} ms  {found[what]['percent_of_floor']:5.1f} % of the floor")
    for what in ("verify_by_rows", "round_by_gamma"):
        for key, entry in found[what].items():
            gap = f"  host gap {entry['host_gap_ms']:.3f} ms" if "host_gap_ms" in entry else ""
            print(f"  {what:14} {key:2} {entry['ms']:8.3f} ms  {entry['percent_of_floor']:5.1f} %{gap}")
    for key in (
        "prefill_ms_by_tokens",
        "cancel_ms",
        "completion_of_32_tokens",
        "kernels_us",
        "transformers",
        "correctness",
    ):
        if key in found:
            print(f"  {key}: {json.dumps(found[key])}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks gpu`."""
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--shapes", default="0.5b-1.5b,0.5b-7b", help=f"comma-separated, of {', '.join(PAIRS)}")
    parser.add_argument("--repeats", metavar="N", type=int, default=20, help="timings of each kind (default: 20)")
    parser.add_argument("--prompts", metavar="N", type=int, default=20, help="checked for equal tokens (default: 20)")
    parser.add_argument("--no-peers", action="store_true", help="without transformers beside it")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when a result is not bit-identical, 2 when there is no GPU."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            f"torch {torch.__version__} sees no GPU, and these are a GPU's figures: run this where there is one, "
            "or test the script itself with --device cpu --shapes tiny."
        )
    repeats = options.repeats
    if options.device == "cpu":
        repeats = 2
        torch.set_num_threads(1)
    gb_per_s = copy_gb_per_s(options.device, repeats)
    figures: dict[str, Any] = {"device": options.device, "copy_gb_per_s": round(gb_per_s, 1), "pairs": {}}
    if options.device == "cpu":
        figures["warning"] = "a test of the script on a CPU: no figure here says anything about a GPU"
    for name in options.shapes.split(","):
        figures["pairs"][name] = bench(name, options.device, gb_per_s, repeats, options.prompts, not options.no_peers)
        report(name, figures["pairs"][name])
    words = torch.cuda.get_device_name().lower().split()[1:] if options.device == "cuda" else ["script", "test"]
    file = results_file.write("gpu", figures, f"gpu-{'-'.join(words)}")
    print(f"\nwritten: {file}")
    checks = [pair["correctness"] for pair in figures["pairs"].values()]
    right = all(check["draft_is_target"]["in_full"] and check["greedy"]["divergences"] == 0 for check in checks)
    print("correct" if right else "NOT bit-identical: see correctness above")
    return 0 if right else 1
