"""The engine on a GPU: shares of the bandwidth's limit, rounds, equal tokens, and tests.

    python -m benchmarks gpu [--only PART[,PART]] [--budget-s 300] [--results DIR]
    python -m benchmarks gpu --device cpu --shapes tiny      a test of this script; its times say nothing about a GPU

Parts run in order of worth, each with a budget, and each row is written at once (schedule.py). Models have the real
shapes and random weights: times are true, texts are not. What speculation saves depends on how often the draft is
right, so completions are replayed from trace.json, which real models made on a CPU. `real` needs the weights of the
0.5B. Writes gpu-<kind>.json; a part that did not run has its reason there. Exit code 1 when a part failed, when a time
was impossible, or when tokens differ.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.speed.gpu import schedule
from benchmarks.speed.gpu.schedule import FAILED, Figures, Part, Record
from speclsp.errors import EngineError, InputError

BUDGET_S = 300.0
PARTS = (  # in order of worth; budgets are 1.1 times the times on an H200, or more
    Part("bandwidth", "gpu", 5, "copy and read bandwidth: the limit"),
    Part("passes", "passes", 80, "passes by rows: 0.5B, 1.5B and 7B in bf16 and nf4"),
    Part("rounds", "rounds", 45, "rounds by draft length, and their fixed cost"),
    Part("agreement", "agreement", 15, "a draft that is the target; speculative against plain"),
    Part("tests", "engine_checks", 65, "the decoder's tests"),
    Part("real", "engine_checks:run_real", 25, "the real 0.5B, plain and with n-grams"),
)
NAMES = [part.name for part in PARTS]
REPEATS, FEW_REPEATS = 20, 1
CPU_WARNING = "a test of the script on a CPU: no figure here says anything about a GPU"


# ── one part ─────────────────────────────────────────────────────────────────────────────────────────────────


def run_part(part: Part, record: Record, device: str, tiny: bool) -> None:
    """Run a part in this process."""
    from benchmarks.speed.gpu import timing

    timing.guard_memory(device)
    repeats = FEW_REPEATS if tiny else REPEATS
    if part.name == "bandwidth":
        limit = timing.bandwidth(device, repeats, lambda name, value: record.put(name, value=value))
        record.put("limit_gb_per_s", value=round(limit.gb_per_s, 1))
        record.put("cache_bytes", value=limit.cache_bytes)
        timing.release(device)
        return
    figures = schedule.read(record.file).get("parts", {}).get("bandwidth", {}).get("figures", {})
    if "limit_gb_per_s" in figures:
        limit = timing.Limit(figures["limit_gb_per_s"], figures.get("cache_bytes", 0.0))
    else:
        limit = timing.bandwidth(device, repeats, lambda name, value: None)
    module, _, function = part.module.partition(":")
    run = getattr(importlib.import_module(f"benchmarks.speed.gpu.{module}"), function or "run")
    run(timing.Bench(device, tiny, limit, repeats), record)


def work(file: Path, part: Part, options: argparse.Namespace) -> int:
    """The worker process: describe the machine, then run the part."""
    import torch

    tiny = options.shapes == "tiny"
    if options.device == "cpu":
        torch.set_num_threads(1)
    schedule.describe(file, about(options.device))

    def run(part: Part, record: Record) -> None:
        run_part(part, record, options.device, tiny)

    return 0 if schedule.work(file, part, run, options.worker_budget_s) else 1


def about(device: str) -> Figures:
    """The fields of the result file beside its parts."""
    from datetime import datetime, timezone

    made_utc = datetime.now(timezone.utc).isoformat(timespec="seconds")
    fields: Figures = {"bench": "gpu", "made_utc": made_utc, "machine": results_file.machine()}
    fields |= {"versions": results_file.versions(), "device": device}
    return fields | ({"warning": CPU_WARNING} if device == "cpu" else {"device_name": gpu_name()})


def gpu_name() -> str:
    import torch

    return str(torch.cuda.get_device_name())


# ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────


def chosen(only: str) -> list[Part]:
    """The parts that --only names; all of them by default. Raises InputError."""
    names = only.split(",") if only else NAMES
    if unknown := [name for name in names if name not in NAMES]:
        raise InputError(f"--only {only}: there is no part {unknown[0]!r}. Parts: {', '.join(NAMES)}.")
    return [part for part in PARTS if part.name in names]


def result_path(device: str) -> Path:
    """gpu-<kind>.json in the directory of results."""
    words = ["script", "test"] if device == "cpu" else gpu_name().lower().split()[1:]
    return results_file.RESULTS / f"gpu-{'-'.join(words)}.json"


def summary(data: Figures) -> Iterator[str]:
    """A short table: passes, rounds and completions, with their shares of the limit."""
    figures = {name: entry.get("figures", {}) for name, entry in data.get("parts", {}).items()}
    for name, model in figures.get("passes", {}).items():
        rows = " ".join(f"{count}: {in_words(row)}" for count, row in model.get("rows", {}).items())
        yield f"{name:24} ms by rows: {rows}"
    for name, pair in figures.get("rounds", {}).items():
        if "completion" in pair:
            done, fixed = pair["completion"], pair.get("fixed_cost", {}).get("fixed_ms", "not measured")
            with_draft = done.get("replayed", done["modelled"])
            yield (
                f"{name:24} {done['tokens']} tokens: plain {done['plain_ms']} ms, with the draft {with_draft['ms']} ms "
                f"(γ {with_draft['gamma']}); verify {in_words(pair['verify'])}, draft step "
                f"{in_words(pair['draft_step'])}, fixed {fixed} ms"
            )
    if greedy := figures.get("agreement", {}).get("greedy"):
        own = figures["agreement"].get("draft_is_target", {}).get("engine", {})
        yield (
            f"{'equal tokens':24} {greedy['divergences']} of {greedy['tokens']} differ; a draft that is the target: "
            f"{own.get('accepted', 'not measured')} of {own.get('drafted', 'not measured')} accepted"
        )


def in_words(row: Figures) -> str:
    """A time with its share of the limit."""
    share = f" ({row['percent_of_limit']:.0f} %)" if "percent_of_limit" in row else ""
    return "refused" if "refused" in row else f"{row['ms']:.3f}{share}"


def wrong(data: Figures) -> Iterator[str]:
    """Results that must not be: parts that failed, impossible times, tests that failed, tokens that differ."""
    parts = data.get("parts", {})
    for name, entry in parts.items():
        if entry.get("status") == FAILED:
            yield f"{name} failed: {entry.get('why', '')}"
        yield from (f"{name}, {row}: {why}" for row, why in refused(entry.get("figures", {})))
    figures: dict[str, Any] = {name: entry.get("figures", {}) for name, entry in parts.items()}
    if figures.get("agreement", {}).get("greedy", {}).get("divergences"):
        yield "agreement: speculative decoding differs from plain decoding"
    if failed := figures.get("tests", {}).get("failed"):
        yield f"tests: {', '.join(failed[:5])}"
    if figures.get("real", {}).get("identical") is False:
        yield "real: the texts differ"


def refused(figures: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(row, reason) of every time below the limit."""
    if isinstance(figures, dict):
        if "refused" in figures:
            yield " ".join(path), str(figures["refused"])
        for key, value in figures.items():
            yield from refused(value, (*path, str(key)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks gpu`."""
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--shapes", default="real", choices=("real", "tiny"), help="tiny: a test of this script")
    parser.add_argument("--only", metavar="PART,...", default="", help=f"parts to run, of {', '.join(NAMES)}")
    parser.add_argument(
        "--budget-s", metavar="S", type=float, default=BUDGET_S, help=f"seconds of the whole run ({BUDGET_S:g})"
    )
    parser.add_argument("--worker-budget-s", type=float, default=0.0, help=argparse.SUPPRESS)


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when something is wrong, 2 when there is no GPU."""
    parts = chosen(options.only)
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise EngineError(
                f"torch {torch.__version__} sees no GPU, and these are a GPU's figures: run this where there is one, "
                "or test the script itself with --device cpu --shapes tiny."
            )
    file = result_path(options.device)
    if options.worker_budget_s:
        return work(file, parts[0], options)

    def command(part: Part, part_s: float) -> list[str]:
        flags = ["--device", options.device, "--shapes", options.shapes, "--results", os.fspath(results_file.RESULTS)]
        return schedule.worker_command(["gpu", *flags, "--only", part.name, "--worker-budget-s", repr(part_s)])

    schedule.run_parts(file, parts, command, options.budget_s)
    data = schedule.read(file)
    for part in parts:
        entry = data["parts"][part.name]
        print(f"{part.name:14} {entry['status']:8} {entry.get('wall_s', 0.0):6.1f} s  {entry.get('why', '')}")
        for row in entry.get("skipped", []):
            print(f"{'':14} not measured: {row}")
    problems = list(wrong(data))
    print("", *summary(data), sep="\n")
    print(f"\nwritten: {file}")
    print("\n".join(problems) if problems else "nothing failed")
    return 1 if problems else 0
