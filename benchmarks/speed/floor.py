"""The CPU engine against the machine's limit: a round beside its own weight reads, by number of rows.

    python -m benchmarks floor qwen2.5-coder-0.5b-instruct [PAIR ...] [--path avx-vnni]

A pass cannot be faster than reading the weights once, or than its products at the processor's peak. The bench measures
both peaks. It times whole rounds of 1 to 24 rows over a cache of 600 tokens in turn with their matrix products alone.
Then it times prefill by length, and the time from setting `cancel` inside a prefill until the engine stops. Times are
medians; each kind is timed once per turn, so a machine that slows down slows all alike. Writes
benchmarks/results/floor-<model>-<path>.json.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from time import perf_counter, sleep

from benchmarks import results_file
from benchmarks.speed.holes import source
from speclsp.config import Config
from speclsp.config.schema import EngineConfig
from speclsp.engine.api import Cancel
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import loading
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.int8.peaks import ATTENTION_PRODUCTS, INT8_PRODUCTS, READ_BYTES, Peaks, measure
from speclsp.engine.model.kv_cache import Cancelled
from speclsp.weights import cards

CONTEXT_TOKENS = 600
ROUNDS = (1, 2, 4, 8, 12, 16, 17, 24)
PREFILLS = (64, 128, 256, 512, 1024)
CANCELS = 200
RETURN_TOKENS, OTHER_TEXTS = 512, 8  # more texts than cache slots
AIMS = {"round_16_to_weights": 1.35, "cancel_p99_ms": 10.0}
ROUND_AIMS = {
    path: {"round_16_to_round_1": ratio}
    for path, ratio in {"AMX": 1.15, "AVX-512 BF16": 1.6, "AVX-512 VNNI": 1.6, "AVX-VNNI": 2.0}.items()
}


def timed_ms(work: Callable[[], object]) -> float:
    """Duration of `work` in milliseconds."""
    began_s = perf_counter()
    work()
    return (perf_counter() - began_s) * 1e3


def rounds(model: NativeDecoder, ids: list[int], turns: int) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Medians of weight reads and rounds, by name; and where the rounds' time went."""
    times_by_name: dict[str, list[float]] = {}
    parts: dict[str, dict[str, float]] = {}
    model.catch_up(ids[:CONTEXT_TOKENS])
    for _ in range(turns):
        for rows in (1, 16):
            times_by_name.setdefault(f"weights_{rows}", []).append(timed_ms(partial(model.read_weights, rows)))
        for rows in ROUNDS:
            model.rewind(CONTEXT_TOKENS)
            model.profile()
            new = ids[CONTEXT_TOKENS : CONTEXT_TOKENS + rows]
            times_by_name.setdefault(f"round_{rows}", []).append(timed_ms(partial(model.forward, new)))
            spent = parts.setdefault(f"round_{rows}", {})
            for name, ms in model.profile().items():
                spent[name] = spent.get(name, 0.0) + ms / turns
    medians = {name: round(statistics.median(times), 2) for name, times in times_by_name.items()}
    return medians, {name: {part: round(ms, 2) for part, ms in spent.items()} for name, spent in parts.items()}


def prefills(model: NativeDecoder, ids: list[int], turns: int) -> dict[str, float]:
    """Medians of a cold prefill, by length."""
    times_by_length: dict[str, list[float]] = {}
    for _ in range(turns):
        for length in PREFILLS:
            model.forget()
            times_by_length.setdefault(str(length), []).append(timed_ms(partial(model.catch_up, ids[:length])))
    return {length: round(statistics.median(times), 2) for length, times in times_by_length.items()}


def return_to_text(model: NativeDecoder, ids: list[int], turns: int) -> float:
    """Median milliseconds until the KV of a text is there again after OTHER_TEXTS texts took its cache slot."""
    size = RETURN_TOKENS
    texts = [(ids[first:] + ids[:first])[:size] for first in range(0, (OTHER_TEXTS + 1) * 32, 32)]
    model.forget()
    for text in texts:
        model.catch_up(text)
    return statistics.median(
        timed_ms(partial(model.catch_up, texts[turn % len(texts)])) for turn in range(turns * len(texts))
    )


def cancel_to_stop(model: NativeDecoder, ids: list[int], trials: int, seed: int) -> list[float]:
    """Milliseconds from setting `cancel`, at a random moment of a cold prefill, until the prefill has stopped."""
    dice = random.Random(seed)
    stops: list[float] = []
    model.forget()
    whole_s = timed_ms(partial(model.catch_up, ids)) / 1e3
    while len(stops) < trials:
        model.forget()
        cancel, after_s, when = Cancel(), dice.uniform(0.05, 0.85) * whole_s, [0.0]

        def give_up(cancel: Cancel = cancel, after_s: float = after_s, when: list[float] = when) -> None:
            sleep(after_s)
            when[0] = perf_counter()
            cancel.set()

        thread = threading.Thread(target=give_up)
        thread.start()
        try:
            model.catch_up(ids, cancel)
        except Cancelled:
            stops.append((perf_counter() - when[0]) * 1e3)
        thread.join()
    return sorted(stops)


def limits_ms(model: NativeDecoder, peaks: Peaks) -> dict[str, float]:
    """The least time of each round and prefill: reading the weights, or their products, at the machine's peaks."""
    weights = model.layer_weights + model.head_weights
    read_ms, products_ms = weights / peaks.read_gb_s / 1e6, weights / peaks.int8_g_s / 1e6
    rounds = {f"round_{rows}": max(read_ms, rows * products_ms) for rows in ROUNDS}
    prefill_ms = model.layer_weights / peaks.int8_g_s / 1e6  # a token
    return {
        name: round(ms, 2)
        for name, ms in (rounds | {f"prefill_{length}": length * prefill_ms for length in PREFILLS}).items()
    }


def bench(name: str, turns: int, path: str) -> bool:
    """Measure a model, print, write the JSON; False when this machine runs it otherwise."""
    engine: CompletionEngine = loading.load(Config(model=name, engine=EngineConfig(cpu_path=path)), cards.load(name))
    model = engine.target_decoder
    if not isinstance(model, NativeDecoder):
        print(f"{name} runs as {engine.target} here, not through forward.c: there is nothing to compare.")
        return False
    text = source("argparse")
    ids = engine.prompter.tokenizer.encode(text, add_special_tokens=False).ids[: max(PREFILLS)]
    peaks = Peaks(*(measure(model.path, what, model.threads) for what in (READ_BYTES, INT8_PRODUCTS)))
    attention_g_s = measure(model.path, ATTENTION_PRODUCTS, model.threads)
    medians, parts = rounds(model, ids, turns)
    by_length = prefills(model, ids, max(3, turns // 3))
    return_ms = round(return_to_text(model, ids, 3), 2)
    stops = cancel_to_stop(model, ids[:512], CANCELS, seed=1)
    ratios = {
        "round_16_to_weights": round(medians["round_16"] / medians["weights_16"], 3),
        "round_16_to_weights_of_one_row": round(medians["round_16"] / medians["weights_1"], 3),
        "round_1_to_weights": round(medians["round_1"] / medians["weights_1"], 3),
        "round_16_to_round_1": round(medians["round_16"] / medians["round_1"], 3),
        "cancel_p50_ms": round(statistics.median(stops), 2),
        "cancel_p99_ms": round(stops[int(0.99 * len(stops))], 2),
    }
    aims = AIMS | ROUND_AIMS.get(model.path, {})
    limits = limits_ms(model, peaks)
    shares = {name: round(limits[name] / medians[name], 2) for name in limits if name in medians}
    shares |= {f"prefill_{length}": round(limits[f"prefill_{length}"] / ms, 2) for length, ms in by_length.items()}
    figures = {
        "pair": name,
        "target": engine.target,
        "device": engine.device,
        "context_tokens": CONTEXT_TOKENS,
        "turns": turns,
        "ms": medians,
        "parts_ms": parts,
        "path": model.path,
        "peaks": asdict(peaks) | {"attention_g_s": attention_g_s},
        "limits_ms": limits,
        "share_of_peak": shares,
        "prefill_ms": by_length,
        "return_ms": return_ms,
        "cancel_trials": len(stops),
        "ratios": ratios,
        "aims": aims,
    }
    print(results_file.as_text(figures))
    slug = next(name for name, of in native.SETTINGS.items() if of == model.path)
    results_file.write("floor", figures, name=f"floor-{name}-{slug}")
    return True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks floor`."""
    parser.add_argument("pairs", nargs="+", metavar="PAIR", help="model pair")
    parser.add_argument("--path", default="auto", choices=["auto", *native.SETTINGS], help="engine.cpu_path")
    parser.add_argument("--turns", metavar="N", type=int, default=15, help="timings of each kind (default: 15)")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when a model does not run through the native kernels on this machine."""
    measured = [bench(model_name, options.turns, options.path) for model_name in options.pairs]
    return 0 if all(measured) else 1
