"""Fewer bits beside int8: a model's speed, memory and error in each format, in one run.

    python -m benchmarks int4 qwen2.5-coder-1.5b-instruct [--path avx2]

Passes of the formats take turns over a cache of 600 tokens, so a machine
that slows down slows all alike. The error is that of the logits against float32 arithmetic on the file's values.
Writes benchmarks/results/int4-<model>-<path>.json.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path

import torch

from benchmarks import results_file
from benchmarks.speed.floor import CONTEXT_TOKENS, timed_ms
from benchmarks.speed.holes import source
from speclsp.engine.loading.checkpoint import read_decoder, read_tokenizer
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import on_host
from speclsp.weights import cards, store

ROUNDS = (1, 2, 4, 8, 12, 16, 24)
PREFILL_TOKENS, ERROR_TOKENS = 512, 256
FORMATS = ("int8", "int4")


def logits_error(array: Floats, exact_array: Floats) -> dict[str, float]:
    """Distance of logits from the exact ones."""
    logits, exact = torch.from_numpy(array), torch.from_numpy(exact_array)
    log_p, log_q = exact.log_softmax(-1), logits.log_softmax(-1)
    return {
        "relative": round(float((logits - exact).norm() / exact.norm()), 4),
        "kl_mean": round(float((log_p.exp() * (log_p - log_q)).sum(-1).mean()), 5),
        "same_token": round(float((logits.argmax(-1) == exact.argmax(-1)).float().mean()), 4),
    }


def times_ms(models: dict[str, NativeDecoder], ids: list[int], turns: int) -> dict[str, dict[str, float]]:
    """Medians of rounds and prefill, by format."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in models}
    for turn in range(turns):
        for name, model in models.items():
            if turn % 3 == 0:
                model.forget()
                prefill_ms = timed_ms(partial(model.catch_up, ids[:PREFILL_TOKENS])) / PREFILL_TOKENS
                times[name].setdefault("prefill_per_token", []).append(prefill_ms)
            model.catch_up(ids[:CONTEXT_TOKENS])
        for rows in ROUNDS:
            for name, model in models.items():
                model.rewind(CONTEXT_TOKENS)
                new = ids[CONTEXT_TOKENS : CONTEXT_TOKENS + rows]
                times[name].setdefault(f"round_{rows}", []).append(timed_ms(partial(model.forward, new)))
    return {
        name: {kind: round(statistics.median(values), 3) for kind, values in kinds.items()}
        for name, kinds in times.items()
    }


def bench(model_name: str, turns: int, path: str) -> bool:
    """Measure, print and write the JSON; False when this path or these files have no 4-bit weights."""
    native.use(path)
    card = cards.load(model_name)
    directory: Path = store.ensure(card.target)
    tokenizer = read_tokenizer(directory)
    vocab = len(tokenizer.get_vocab(with_added_tokens=True))
    ids = tokenizer.encode(source("argparse"), add_special_tokens=False).ids[: CONTEXT_TOKENS + max(ROUNDS)]
    models: dict[str, NativeDecoder] = {}
    for name in FORMATS:
        model = read_decoder(directory, name, "cpu", CONTEXT_TOKENS + 64, vocab)
        if not isinstance(model, NativeDecoder) or model.number_format != name:
            print(f"{model_name} has no {name} weights here: use another cpu_path.")
            return False
        models[name] = model
    ms = times_ms(models, ids, turns)
    for model in models.values():
        model.forget()
    logits = {name: model.forward(ids[:ERROR_TOKENS]) for name, model in models.items()}
    memory = {name: round(model.weight_mib) for name, model in models.items()}
    read = {name: round(model.weight_bytes / 2**20) for name, model in models.items()}
    threads = models["int8"].threads
    models.clear()
    exact = on_host(read_decoder(directory, "bf16", "cpu", ERROR_TOKENS + 64, vocab).forward(ids[:ERROR_TOKENS]))
    errors = {name: logits_error(logits[name], exact) for name in FORMATS}
    share = {name: {kind: round(ms[name][kind] / ms["int8"][kind], 3) for kind in ms[name]} for name in FORMATS[1:]}
    for kind, old in ms["int8"].items():
        times = ", ".join(f"{name} {ms[name][kind]:.2f} ({share[name][kind]:.2f} x)" for name in share)
        print(f"{kind:18} int8 {old:8.2f} ms, {times}")
    print(f"memory {memory} MiB, read in a step {read} MiB, logits {errors}")
    figures = {
        "model": card.target.name,
        "path": native.best_path(),
        "threads": threads,
        "turns": turns,
        "ms": ms,
        "share_of_int8": share,
        "weights_mib": memory,
        "read_mib": read,
        "logits_error": errors,
    }
    slug = next(setting for setting, of in native.SETTINGS.items() if of == native.best_path())
    results_file.write("int4", figures, name=f"int4-{card.target.name}-{slug}")
    return True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks int4`."""
    parser.add_argument("model_name", metavar="MODEL", help="a model whose file is Q4_K")
    parser.add_argument("--path", default="auto", choices=["auto", *native.SETTINGS], help="engine.cpu_path")
    parser.add_argument("--turns", metavar="N", type=int, default=15, help="timings of each kind (default: 15)")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when there is nothing to compare."""
    return 0 if bench(options.model_name, options.turns, options.path) else 1
