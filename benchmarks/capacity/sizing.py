"""Capacity planning: GPUs for a team, from typing traces simulated on servers with continuous batching.

    python -m benchmarks sizing [--gpu "H100 SXM"] [--target 7B] [--quick]

    load       the requests of one typing developer, recorded by `python -m benchmarks traffic`
    anchors    the cost model (roofline.py) beside measurements published by others; nothing was run on a GPU here
    crossover  the batch above which speculation costs more than it saves, by target, α and γ
    capacity   developers on one GPU with 95 in 100 answers, of those still wanted then, whole within --within ms, and
               nine tenths of what an idle server would show shown before the next key
    teams      10, 100, 1 000 and 10 000 developers: replicas, latency, batch; with and without router affinity

An assumption, not a measurement: a developer types --typing minutes of the hour (20). Writes
benchmarks/results/sizing.json.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.capacity.roofline import GPUS, MODELS, Serving, anchors, off_above, schedule, speedup
from benchmarks.capacity.simulator import FleetRequest, Run, Session, cached, developers, run
from benchmarks.capacity.tables import print_tables
from speclsp.cli import measure
from speclsp.errors import InputError

TRAFFIC = "traffic-qwen2.5-coder-0.5b-instruct.json"  # in the results directory
TEAMS = (10, 100, 1_000, 10_000)
TARGETS = ("1.5B", "7B", "14B", "32B")
ALPHAS, GAMMAS = (0.5, 0.6, 0.7, 0.8), (2, 3, 4, 5)
ALPHA, GAMMA = 0.7, 3  # of the 0.5B draft for the 7B target: implied by the published speeds, not measured by us
NETWORK_MS = 20.0  # there and back
TYPING_MINUTES = (10.0, 20.0, 40.0)  # of an hour
HORIZON_MS, QUICK_HORIZON_MS = 120_000.0, 20_000.0
MAX_DEVELOPERS = 20_000
ENOUGH, NEARLY = 0.95, 0.9

Figures = dict[str, Any]


# ── the load ─────────────────────────────────────────────────────────────────────────────────────────────────


def read(file: Path) -> Figures:
    """The recorded traffic. Raises InputError."""
    try:
        traffic: Figures = json.loads(file.read_text(encoding="utf-8"))
        if traffic["bench"] != "traffic":
            raise KeyError(traffic["bench"])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{file} holds no recorded traffic ({type(error).__name__}): run `python -m benchmarks traffic` first."
        ) from None
    return traffic


def table(traffic: Figures, server: Figures) -> list[list[dict[str, int]]]:
    """The requests of each session against that server, by the columns' names."""
    names = traffic["columns"]
    return [
        [dict(zip(names, map(int, row.split()), strict=True)) for row in session["requests"]]
        for session in server["sessions"]
    ]


def sessions(traffic: Figures, server: Figures) -> list[Session]:
    """The same for the simulation. What a key cut short gets the length of one, at least as long, that was not."""
    tables, dice = table(traffic, server), random.Random(0)
    whole = sorted(row["output_tokens"] for rows in tables for row in rows if not row["overtaken"])
    ages = [int(name.rpartition("_")[2]) for name in traffic["columns"] if name.startswith("cached_tokens_")]
    result = []
    for session, rows in zip(server["sessions"], tables, strict=True):
        requests = []
        for row in rows:
            tokens = row["output_tokens"]
            if row["overtaken"]:
                tokens = dice.choice([length for length in whole if length >= tokens] or [tokens])
            cached_tokens = {age: row[f"cached_tokens_{age}"] for age in ages}
            requests.append(
                FleetRequest(row["at_ms"], row["prompt_tokens"], max(1, tokens), row["wanted_ms"], cached_tokens)
            )
        result.append(Session(session["seconds"], requests))
    return result


def load(traffic: Figures, server: Figures) -> Figures:
    """Load of one typing developer on a server."""
    rows = [row for session_rows in table(traffic, server) for row in session_rows]
    seconds = sum(session["seconds"] for session in server["sessions"])
    keys = sum(session["keys"] for session in server["sessions"])
    new = [row["prompt_tokens"] - row["cached_tokens_1"] for row in rows]
    first_ms = [float(row["first_ms"]) for row in rows if row["first_ms"] >= 0]
    return {
        "slower_ms": server["slower_ms"],
        "typing_seconds": round(seconds, 1),
        "keys": keys,
        "requests": len(rows),
        "requests_per_second": round(len(rows) / seconds, 3),
        "requests_per_key": round(len(rows) / keys, 3),
        "overtaken": round(sum(row["overtaken"] for row in rows) / len(rows), 3),
        "seen_at_a_key": round(sum(session["seen"] for session in server["sessions"]) / keys, 3),
        "prompt_tokens": round(sum(row["prompt_tokens"] for row in rows) / len(rows)),
        "new_prompt_tokens": round(sum(new) / len(rows), 1),
        "cached_share": round(1 - sum(new) / sum(row["prompt_tokens"] for row in rows), 3),
        "output_tokens": round(sum(row["output_tokens"] for row in rows) / len(rows), 2),
        "output_tokens_p95": measure.quantile([float(row["output_tokens"]) for row in rows], 0.95),
        "first_p50_ms": measure.quantile(first_ms, 0.5),
        "open_p50_ms": measure.quantile([float(row["open_ms"]) for row in rows], 0.5),
        "open_p95_ms": measure.quantile([float(row["open_ms"]) for row in rows], 0.95),
        "wanted_p50_ms": measure.quantile([float(row["wanted_ms"]) for row in rows], 0.5),
        "prompt_tokens_per_second": round(sum(new) / seconds, 1),
        "output_tokens_per_second": round(sum(row["output_tokens"] for row in rows) / seconds, 2),
    }


# ── the servers ──────────────────────────────────────────────────────────────────────────────────────────────


def pair(gpu: str, target: str, gamma: int = GAMMA, alpha: float = ALPHA) -> Serving:
    """A target with the 0.5B as its draft."""
    return Serving(gpu=GPUS[gpu], target=MODELS[target], draft=MODELS["0.5B"], gamma=gamma, alpha=alpha)


def fits(serving: Serving, context_tokens: float) -> bool:
    """True if its memory holds more than a few prompts beside the weights."""
    return serving.cache_tokens >= 16 * context_tokens


def ways(serving: Serving, context_tokens: float, reading: float) -> dict[str, Serving]:
    """Without speculation, with it in every round, and with γ chosen by the batch."""
    table = tuple(schedule(serving, context_tokens, reading))
    return {"off": replace(serving, draft=None, gamma=0), "on": serving, "by batch": replace(serving, by_batch=table)}


def crossover(gpu: str, context_tokens: float, reading: float) -> list[Figures]:
    """The largest batch at which speculation pays: for decoding alone, and with the prompts that go with it."""
    return [
        {"target": target, "alpha": alpha, "gamma": gamma, "alone": alone, "with_prompts": with_prompts}
        for target in TARGETS
        if fits(pair(gpu, target), context_tokens)
        for alpha in ALPHAS
        for gamma in GAMMAS
        for alone, with_prompts in [
            [off_above(pair(gpu, target, gamma, alpha), context_tokens, beside) for beside in (0.0, reading)]
        ]
    ]


def curve(gpu: str, target: str, context_tokens: float, reading: float) -> list[Figures]:
    """Speedup by batch with the prompts that go with it, for the plot."""
    return [
        {"alpha": alpha, "batch": batch, "speedup": round(speedup(serving, batch, context_tokens, reading), 3)}
        for alpha in ALPHAS
        for serving in [pair(gpu, target, GAMMA, alpha)]
        for batch in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    ]


# ── the simulation ───────────────────────────────────────────────────────────────────────────────────────────


def simulate(
    typed: Sequence[Session],
    serving: Serving,
    count: int,
    replicas: int,
    share: float,
    horizon_ms: float,
    affinity: bool = True,
) -> Run:
    """`count` developers on so many replicas."""
    return run(list(developers(typed, count, share, horizon_ms)), serving, replicas, horizon_ms, affinity)


def shown_alone(typed: Sequence[Session], serving: Serving, horizon_ms: float) -> float:
    """The share of one developer's requests that an otherwise idle server answers before the next key."""
    return simulate(typed, serving, 1, 1, 1.0, 10 * horizon_ms).shown(NETWORK_MS)


def enough(done: Run, within_ms: float, alone: float) -> bool:
    """True if answers come in time, and nearly as many as on an idle server come before the next key."""
    return done.answered_within(within_ms, NETWORK_MS) >= ENOUGH and done.shown(NETWORK_MS) >= NEARLY * alone


def capacity(typed: Sequence[Session], serving: Serving, share: float, horizon_ms: float, within_ms: float) -> int:
    """The most developers on one GPU that are answered in time; 0 when not even one is."""
    alone = shown_alone(typed, serving, horizon_ms)

    def bears(count: int) -> bool:
        # few developers are watched for longer, or chance decides
        long_ms = max(horizon_ms, min(20 * horizon_ms, horizon_ms * 100 / count))
        return enough(simulate(typed, serving, count, 1, share, long_ms), within_ms, alone)

    low, high = 0, 16
    while high < MAX_DEVELOPERS and bears(high):
        low, high = high, high * 2
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if bears(middle) else (low, middle)
    return low


def run_figures(done: Run, within_ms: float) -> Figures:
    """Summary of a run."""
    seconds = done.horizon_ms / 1000
    return {
        "requests_per_second": round(len(done.requests) / seconds, 1),
        **{
            f"{of}_p{share * 100:.0f}_ms": finite(done.quantile_ms(of, share, within_ms) + NETWORK_MS)
            for of in ("first", "last")
            for share in (0.5, 0.95)
        },
        "answered_within": round(done.answered_within(within_ms, NETWORK_MS), 4),
        "shown_before_next_key": round(done.shown(NETWORK_MS), 4),
        "mean_batch": round(done.mean_batch, 1),
        "busy": round(done.busy, 3),
        "prompt_tokens_read_per_second": round(sum(replica.read_tokens for replica in done.replicas) / seconds),
        "output_tokens_per_second": round(sum(replica.made_tokens for replica in done.replicas) / seconds),
    }


def at_capacity(
    typed: Sequence[Session], serving: Serving, share: float, horizon_ms: float, within_ms: float
) -> Figures:
    """The most developers on one GPU, and the figures of a run with that many; None where there is no such run."""
    most = capacity(typed, serving, share, horizon_ms / 4, within_ms)
    done = simulate(typed, serving, most, 1, share, horizon_ms / 2) if most else None
    return {"developers": most, "at": run_figures(done, within_ms) if done is not None else None}


def finite(ms: float) -> float | None:
    return round(ms, 1) if ms < float("inf") else None


def team(
    typed: Sequence[Session],
    serving: Serving,
    count: int,
    per_gpu: int,
    share: float,
    horizon_ms: float,
    within_ms: float,
) -> Figures:
    """The fewest replicas that answer a team in time, developers spread by hash; and the same ones without affinity."""
    replicas, alone = max(1, -(-count // max(1, per_gpu))), shown_alone(typed, serving, horizon_ms)
    while True:
        done = simulate(typed, serving, count, replicas, share, horizon_ms)
        if enough(done, within_ms, alone) or replicas > count:
            break
        replicas += max(1, replicas // 20)
    without = simulate(typed, serving, count, replicas, share, horizon_ms, affinity=False) if replicas > 1 else done
    return {
        "developers": count,
        "replicas": replicas,
        "affinity": run_figures(done, within_ms),
        "no_affinity": run_figures(without, within_ms),
    }


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────


def bench(options: argparse.Namespace) -> Figures:
    """All figures."""
    traffic = read(options.traffic or results_file.RESULTS / TRAFFIC)
    horizon_ms, within_ms = QUICK_HORIZON_MS if options.quick else HORIZON_MS, options.within
    loads = [load(traffic, server) for server in traffic["servers"]]
    # the recording with the most work for the server, so that slower answers are not counted as fewer questions
    hardest = max(range(len(loads)), key=lambda at: loads[at]["prompt_tokens_per_second"])
    typed, context = sessions(traffic, traffic["servers"][hardest]), float(loads[hardest]["prompt_tokens"])
    share = options.typing / 60
    chosen = pair(options.gpu, options.target)
    if not fits(chosen, context):
        raise InputError(f"--target {options.target} does not fit on --gpu {options.gpu!r} in bf16 with its draft.")
    requests = [request for session in typed for request in session.requests]
    reading = sum(request.prompt_tokens - cached(request, 1) for request in requests) / sum(
        request.output_tokens for request in requests
    )
    gpus = [options.gpu] if options.quick else list(GPUS)
    rows: list[Figures] = [
        {"gpu": gpu, "target": target, "speculation": name, **at_capacity(typed, serving, share, horizon_ms, within_ms)}
        for gpu in gpus
        for target in TARGETS
        if fits(pair(gpu, target), context)
        for name, serving in ways(pair(gpu, target), context, reading).items()
    ]
    of: dict[str, int] = {}
    for row in rows:
        if (row["gpu"], row["target"]) == (options.gpu, options.target):
            of[str(row["speculation"])] = row["developers"]
    kinds = ways(chosen, context, reading)
    teams = [
        {"speculation": name, **team(typed, kinds[name], count, of[name], share, horizon_ms / 2, within_ms)}
        for count in (TEAMS[:2] if options.quick else TEAMS)
        for name in ("off", "by batch")
    ]
    sensitivity = [
        {"typing_minutes": at, "developers": capacity(typed, kinds["off"], at / 60, horizon_ms / 4, within_ms)}
        for at in TYPING_MINUTES
    ]
    return {
        "gpu": options.gpu,
        "target": options.target,
        "draft": "0.5B",
        "alpha": ALPHA,
        "gamma": GAMMA,
        "within_ms": within_ms,
        "network_ms": NETWORK_MS,
        "typing_minutes_per_hour": options.typing,
        "traffic": {name: traffic[name] for name in ("pair", "minutes", "made_utc")},
        "load": loads,
        "simulated_load": hardest,
        "anchors": [asdict(anchor) for anchor in anchors()],
        "gpus": {name: asdict(gpu) for name, gpu in GPUS.items()},
        "crossover": {gpu: crossover(gpu, context, reading) for gpu in gpus},
        "curve": curve(options.gpu, options.target, context, reading),
        "prompt_tokens_per_output_token": round(reading, 1),
        "by_batch": [list(row) for row in kinds["by batch"].by_batch],
        "capacity": rows,
        "teams": teams,
        "sensitivity": sensitivity,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks sizing`."""
    parser.add_argument("--gpu", choices=list(GPUS), default="H100 SXM", help="for the table of teams")
    parser.add_argument("--target", choices=TARGETS, default="7B", help="Qwen2.5-Coder, by its size")
    parser.add_argument("--typing", metavar="MINUTES", type=float, default=20.0, help="of an hour, each developer (20)")
    parser.add_argument("--within", metavar="MS", type=float, default=500.0, help="p95 from key to last token (500)")
    parser.add_argument(
        "--traffic", metavar="FILE", type=Path, help="what `python -m benchmarks traffic` wrote (default: in --results)"
    )
    parser.add_argument("--quick", action="store_true", help="one GPU, small teams, a shorter simulation")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    if not 0 < options.typing <= 60:
        raise InputError(f"--typing {options.typing:g}: expected minutes of an hour, above 0 and at most 60.")
    if not options.within > NETWORK_MS:
        raise InputError(f"--within {options.within:g}: expected more than the network's {NETWORK_MS:g} ms.")
    figures = bench(options)
    print_tables(figures)
    print(f"wrote {results_file.write('sizing', figures)}", flush=True)
    return 0
