"""Plain against speculative decoding on real holes, on this machine, in one run: the ratio that counts.

    python benchmarks/completions.py qwen2.5-coder-0.5b-instruct [PAIR ...] [--holes 20] [--tokens 32] [--repeats 2]

Every hole is decoded in each way, in turn, its prompt computed anew; medians over holes are printed, and everything is
written to benchmarks/results/completions-<pair>.json with the machine it ran on. Exit code 1 when any text differed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from dataclasses import replace
from pathlib import Path

from speclsp import __version__, cards
from speclsp.bench.completions import run
from speclsp.bench.holes import holes
from speclsp.config import Config
from speclsp.engine import loading
from speclsp.engine.complete import Engine
from speclsp.engine.seam import Request, Result

RESULTS = Path(__file__).parent / "results"


def ways(engine: Engine) -> dict[str, dict[str, object]]:
    """The ways of decoding that are compared: changes to the request."""
    found: dict[str, dict[str, object]] = {
        "plain": {"speculate": False},
        "speculative": {},
        "n-grams, 7": {"sources": ("ngram",), "gamma": 7},
    }
    if engine.draft:
        found["draft, 3"] = {"sources": ("model",), "gamma": 3}
    return found


def measured(engine: Engine, request: Request, repeats: int) -> dict[str, list[Result]]:
    """Each way `repeats` times, in turn, from a cold prompt."""
    made: dict[str, list[Result]] = {name: [] for name in ways(engine)}
    for _ in range(repeats):
        for name, changes in ways(engine).items():
            made[name].append(run(engine, replace(request, cache_prompt=False, **changes)))  # type: ignore[arg-type]
    return made


def summary(results: list[Result]) -> dict[str, float]:
    """Medians over holes, in milliseconds; counts in all."""
    tokens, rounds = sum(len(r.tokens) for r in results), sum(r.rounds for r in results)
    drafted, accepted = sum(r.drafted for r in results), sum(r.accepted for r in results)
    return {
        "prefill_ms": round(statistics.median(r.prompt_ms for r in results), 1),
        "ttft_ms": round(statistics.median(r.ttft_ms for r in results), 1),
        "decode_ms": round(statistics.median(r.decode_ms for r in results), 1),
        "total_ms": round(statistics.median(r.prompt_ms + r.decode_ms for r in results), 1),
        "ms_per_token": round(sum(r.decode_ms for r in results) / max(tokens, 1), 2),
        "ms_per_round": round(sum(r.decode_ms for r in results) / max(rounds, 1), 2),
        "tokens_per_round": round(tokens / max(rounds, 1), 3),
        "drafted": drafted,
        "accepted": accepted,
        "acceptance": round(accepted / max(drafted, 1), 3),
        "prompt_tokens": statistics.median(r.prompt_tokens for r in results),
        "new_tokens": tokens,
    }


def by_source(results: list[Result]) -> dict[str, dict[str, int]]:
    """Drafted and accepted tokens of each drafter, in all."""
    counts: dict[str, dict[str, int]] = {}
    for result in results:
        for source, count in result.by_source.items():
            into = counts.setdefault(source, {"drafted": 0, "accepted": 0})
            for key, value in count.items():
                into[key] += value
    return counts


def machine() -> dict[str, object]:
    """What it ran on."""
    import torch

    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "torch": torch.__version__,
        "os": platform.platform(),
    }


def bench(pair: str, count: int, tokens: int, repeats: int) -> bool:
    """Measure a pair, print a table, write the JSON; whether every way gave the same tokens."""
    engine = loading.load(Config(pair=pair), cards.load(pair))
    requests = holes(count, max_tokens=tokens)
    run(engine, requests[0])  # warm
    made: dict[str, list[Result]] = {name: [] for name in ways(engine)}
    identical = 0
    for number, request in enumerate(requests):
        of_hole = measured(engine, request, repeats)
        every = [result for results in of_hole.values() for result in results]
        identical += all(result.tokens == every[0].tokens for result in every)
        for name, results in of_hole.items():
            made[name].append(sorted(results, key=lambda r: r.prompt_ms + r.decode_ms)[len(results) // 2])
        print(f"\r{pair}: hole {number + 1} of {count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    ways_found = {name: summary(results) | {"by_source": by_source(results)} for name, results in made.items()}
    plain = ways_found["plain"]
    print(f"{pair}: {engine.target}, draft {engine.draft or 'none'}, {engine.device}; {identical} of {count} identical")
    print(f"{'':12} {'total ms':>9} {'prefill':>8} {'decode':>8} {'ms/token':>9} {'tok/round':>9} {'held':>6} {'x':>6}")
    for name, way in ways_found.items():
        speed_up = plain["decode_ms"] / way["decode_ms"]
        way["decode_speed_up"] = round(speed_up, 3)
        print(
            f"{name:12} {way['total_ms']:9.0f} {way['prefill_ms']:8.0f} {way['decode_ms']:8.0f} "
            f"{way['ms_per_token']:9.1f} "
            f"{way['tokens_per_round']:9.2f} {way['acceptance']:6.0%} {speed_up:6.2f}"
        )
    RESULTS.mkdir(exist_ok=True)
    report = {
        "pair": pair,
        "target": engine.target,
        "draft": engine.draft,
        "device": engine.device,
        "speclsp": __version__,
        "machine": machine(),
        "holes": count,
        "repeats": repeats,
        "prompt_cache": "cold",
        "identical_holes": identical,
        "costs_ms": {
            "verify": engine.costs.verify_ms,
            "draft": engine.costs.draft_ms,
            "prefill": engine.costs.prefill_ms,
        },
        "ways": ways_found,
    }
    (RESULTS / f"completions-{pair}.json").write_text(json.dumps(report, indent=1) + "\n")
    return identical == count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("--holes", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    same = [bench(pair, asked.holes, asked.tokens, asked.repeats) for pair in asked.pairs]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
