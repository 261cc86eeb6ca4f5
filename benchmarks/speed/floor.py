"""The CPU engine against the machine's limit: a round beside its own weight reads, by number of rows.

    python -m benchmarks floor qwen2.5-coder-0.5b-instruct [PAIR ...]

A pass cannot be quicker than reading the weights once. So the matrix products of a pass alone, with the same kernel,
are timed in turn with whole rounds of 1 to 24 rows over a cache of 600 tokens; then prefill by length, and the time
from setting `cancel` in the middle of a prefill until the engine stops. Times are medians; each kind is timed once per
turn, so that a machine that slows down slows all alike. Writes benchmarks/results/floor-<pair>.json.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter, sleep

from benchmarks import results_file
from benchmarks.speed.holes import source
from speclsp.config import Config
from speclsp.engine.api import Cancel
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import loading
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import Cancelled
from speclsp.weights import cards

CONTEXT_TOKENS = 600
ROUNDS = (1, 2, 4, 8, 12, 16, 17, 24)
PREFILLS = (64, 128, 256, 512, 1024)
CANCELS = 200
AIMS = {"round_16_to_weights": 1.35, "round_16_to_round_1": 1.15, "cancel_p99_ms": 10.0}


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


def bench(pair: str, turns: int) -> bool:
    """Measure a pair, print, write the JSON; False when this machine runs it otherwise."""
    engine: CompletionEngine = loading.load(Config(model=pair), cards.load(pair))
    model = engine.target_decoder
    if not isinstance(model, NativeDecoder):
        print(f"{pair} runs as {engine.target} here, not through forward.c: there is nothing to compare.")
        return False
    text = source("argparse")
    ids = engine.prompter.tokenizer.encode(text, add_special_tokens=False).ids[: max(PREFILLS)]
    medians, parts = rounds(model, ids, turns)
    by_length = prefills(model, ids, max(3, turns // 3))
    stops = cancel_to_stop(model, ids[:512], CANCELS, seed=1)
    ratios = {
        "round_16_to_weights": round(medians["round_16"] / medians["weights_16"], 3),
        "round_16_to_weights_of_one_row": round(medians["round_16"] / medians["weights_1"], 3),
        "round_1_to_weights": round(medians["round_1"] / medians["weights_1"], 3),
        "round_16_to_round_1": round(medians["round_16"] / medians["round_1"], 3),
        "cancel_p50_ms": round(statistics.median(stops), 2),
        "cancel_p99_ms": round(stops[int(0.99 * len(stops))], 2),
    }
    print(f"{engine.target}, {engine.device}, {CONTEXT_TOKENS} tokens in the cache")
    print(f"weight reads alone: {medians['weights_1']:.1f} ms with 1 row, {medians['weights_16']:.1f} with 16")
    for rows in ROUNDS:
        of_parts = ", ".join(f"{name} {ms:.1f}" for name, ms in parts[f"round_{rows}"].items())
        print(f"round of {rows:2}: {medians[f'round_{rows}']:6.1f} ms  ({of_parts})")
    for length, ms in by_length.items():
        print(f"prefill of {length:>4}: {ms:6.1f} ms, {ms / int(length):.3f} a token")
    for name, value in ratios.items():
        print(f"{name}: {value}" + (f" (aim: at most {AIMS[name]})" if name in AIMS else ""))
    figures = {
        "pair": pair,
        "target": engine.target,
        "device": engine.device,
        "context_tokens": CONTEXT_TOKENS,
        "turns": turns,
        "ms": medians,
        "parts_ms": parts,
        "prefill_ms": by_length,
        "cancel_trials": len(stops),
        "ratios": ratios,
        "aims": AIMS,
    }
    results_file.write("floor", figures, name=f"floor-{pair}")
    return True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks floor`."""
    parser.add_argument("pairs", nargs="+", metavar="PAIR", help="model pair")
    parser.add_argument("--turns", metavar="N", type=int, default=15, help="timings of each kind (default: 15)")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when a pair does not run through the native kernels on this machine."""
    measured = [bench(pair, options.turns) for pair in options.pairs]
    return 0 if all(measured) else 1
