"""Effect of speculation on text and time: the same holes without speculation and with each drafter, in turn.

    python -m benchmarks completions --model qwen2.5-coder-0.5b-instruct [--holes 12] [--tokens 12 --tokens 48]

The comparison is fair by construction: one loaded engine, warmed up on another hole; every run computes its whole
prompt (nothing of it is cached) and generates the same number of tokens; the ways take turns, another one first at each
hole, so that a machine that slows down slows all; the median of each way counts. `compare` of
speclsp.cli.measure does the same over one hole, for `make demo`. Writes benchmarks/results/completions-<model>.json;
exit code 1 when any text differed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import model_options as loaded
from benchmarks import results_file
from benchmarks.speed import rounds
from benchmarks.speed.holes import holes
from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.engine.api import Completer, Request

# ── the experiment over many holes ───────────────────────────────────────────────────────────────────────────

SEED = 20
NGRAM_GAMMAS = (7, 15)  # with the token they follow, one slice of 8 rows, or two
MODEL_GAMMAS = (1, 3, 5)
TYPED_SINCE = 2  # characters typed since the suggestion that `reuse` drafts from was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way of decoding: changes to the request."""

    source: str  # the drafter that is measured; "" for plain decoding, "policy" for all of them
    gamma: int | None = None  # fixed; None: the policy decides
    changes: Mapping[str, Any]


def ways(has_draft: bool) -> dict[str, Way]:
    """Every way that is compared, by the name it has in tables."""
    by_name = {"plain": Way(source="", changes={"speculate": False})}
    for gamma in NGRAM_GAMMAS:
        by_name[f"n-grams, {gamma}"] = Way(source="ngram", gamma=gamma, changes={"sources": ("ngram",), "gamma": gamma})
    by_name["reuse, 7"] = Way(source="reuse", gamma=7, changes={"sources": ("reuse",), "gamma": 7})
    for gamma in MODEL_GAMMAS if has_draft else ():
        by_name[f"draft, {gamma}"] = Way(source="model", gamma=gamma, changes={"sources": ("model",), "gamma": gamma})
    by_name["policy"] = Way(source="policy", changes={})
    return by_name


def previous(completer: Completer, request: Request) -> str:
    """The rest of the suggestion that an editor showed TYPED_SINCE characters ago, right or wrong."""
    typed = request.line_prefix[-TYPED_SINCE:]
    earlier = replace(request, line_prefix=request.line_prefix[: len(request.line_prefix) - len(typed)])
    return rounds.run(completer, replace(earlier, speculate=False)).result.text[len(typed) :]


def measure(
    completer: Completer, requests: list[Request], repeats: int, progress: Callable[[float, str], None]
) -> dict[str, list[list[rounds.Run]]]:
    """{way: for each hole its runs}, cold, in turn, another way first at each hole."""
    chosen = ways(bool(completer.draft))
    runs: dict[str, list[list[rounds.Run]]] = {name: [[] for _ in requests] for name in chosen}
    for number, request in enumerate(requests):
        progress(number / len(requests), f"{completer.model}, {request.max_tokens} tokens")
        remembered = previous(completer, request)
        first = number % len(chosen)
        order = [*chosen][first:] + [*chosen][:first]
        for _ in range(repeats):
            for name in order:
                variation = replace(request, cache_prompt=False, **chosen[name].changes)
                if chosen[name].source == "reuse":
                    variation = replace(variation, previous=remembered)
                runs[name][number].append(rounds.run(completer, variation))
    progress(1.0, completer.model)
    return runs


def figures_of(way: Way, runs: list[list[rounds.Run]], plain: list[list[rounds.Run]]) -> dict[str, object]:
    """One way over all holes; a hole's time is the median of its runs."""

    every = [run for of_hole in runs for run in of_hole]
    counts = rounds.drafting(piece for run in every for piece in run.rounds)
    guessed = rounds.drafting((p for run in every for p in run.rounds if p.drafted), None)
    identical = sum(rounds.same(run, plain[hole][0]) for hole, of_hole in enumerate(runs) for run in of_hole)

    def per_hole(of: list[list[rounds.Run]], measure: Callable[[rounds.Run], float]) -> list[float]:
        return [statistics.median(map(measure, of_hole)) for of_hole in of]

    def speed_up(measure: Callable[[rounds.Run], float]) -> float:
        pairs = zip(per_hole(plain, measure), per_hole(runs, measure), strict=True)
        return round(statistics.median(slow / fast if fast else 1.0 for slow, fast in pairs), 3)

    figures: dict[str, object] = {
        "source": way.source,
        "gamma": way.gamma,
        "runs": len(every),
        "identical_runs": identical,
        "new_tokens": statistics.median(len(run.result.tokens) for run in every),
        "ttft_ms": rounds.spread(per_hole(runs, lambda run: run.result.ttft_ms)),
        "decode_ms": rounds.spread(per_hole(runs, lambda run: run.result.decode_ms)),
        "total_ms": rounds.spread(per_hole(runs, lambda run: run.total_ms)),
        "ms_per_token": round(sum(run.result.decode_ms for run in every) / max(counts.tokens, 1), 2),
        "decode_speed_up": speed_up(lambda run: run.result.decode_ms),
        "total_speed_up": speed_up(lambda run: run.total_ms),
        "rounds": counts.rounds,
        "rounds_with_guesses": guessed.rounds,
        "drafted": counts.drafted,
        "judged": counts.judged,
        "accepted": counts.accepted,
        "rejected": counts.drafted - counts.accepted,
        "tokens_per_round": round(counts.tokens_per_round, 3),
        "tokens_per_guessing_round": round(guessed.tokens_per_round, 3),
        "tau_per_guessing_round": round(guessed.predicted, 3),
        "alpha": round(counts.alpha, 3),
        "by_depth": [list(drafted_and_accepted) for drafted_and_accepted in counts.by_depth],
    }
    if way.gamma:
        figures["tau_at_gamma"] = round(rounds.tau(counts.alpha, way.gamma), 3)
    if way.source == "policy":
        by_source = sorted({piece.source for run in every for piece in run.rounds if piece.source})
        figures["by_source"] = {
            source: {"judged": tally.judged, "accepted": tally.accepted, "rounds": tally.rounds}
            for source in by_source
            for tally in [rounds.drafting((p for run in every for p in run.rounds), source)]
        }
    return figures


def best(found: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """{drafter: the name of its way with the least time per token}."""
    chosen: dict[str, str] = {}
    for name, way in found.items():
        source = way["source"]
        if source and (source not in chosen or way["ms_per_token"] < found[chosen[source]]["ms_per_token"]):
            chosen[source] = name
    return chosen


COLUMNS = (
    f"{'':12} {'first':>7} {'decode':>7} {'total':>7} {'ms/tok':>7} {'tok/rd':>7} {'tau':>6} {'alpha':>6} {'x':>6}"
)


def row(name: str, way: Mapping[str, Any]) -> str:
    """A way in the table: milliseconds, tokens a round where there were guesses beside τ, decoding's speed-up."""
    tau_column = f"{way['tau_per_guessing_round']:6.2f} {way['alpha']:6.0%}" if way["judged"] else f"{'-':>6} {'-':>6}"
    per_round = way["tokens_per_guessing_round"] if way["judged"] else way["tokens_per_round"]
    return (
        f"{name:12} {way['ttft_ms']['p50']:7.0f} {way['decode_ms']['p50']:7.0f} {way['total_ms']['p50']:7.0f} "
        f"{way['ms_per_token']:7.1f} {per_round:7.2f} {tau_column} {way['decode_speed_up']:6.2f}"
    )


def bench(settings: Config, count: int, lengths: list[int], repeats: int) -> bool:
    """Measure a model, print a table for each length, write the JSON. True if every way gave the same tokens."""
    engine = loaded.engine(settings)
    rounds.run(engine, replace(holes(count + 1)[-1], max_tokens=16))
    by_length, same_everywhere = {}, True
    for tokens in lengths:
        requests = holes(count, max_tokens=tokens, seed=SEED)
        with terminal.progress() as bar:
            runs_by_way = measure(engine, requests, repeats, bar.step)
        chosen = ways(bool(engine.draft))
        figures_by_way = {
            name: figures_of(chosen[name], runs, runs_by_way["plain"]) for name, runs in runs_by_way.items()
        }
        identical = all(way["identical_runs"] == way["runs"] for way in figures_by_way.values())
        same_everywhere = same_everywhere and identical
        by_length[str(tokens)] = {
            "max_tokens": tokens,
            "identical": identical,
            "ways": figures_by_way,
            "best": best(figures_by_way),
        }
        verdict = "every text identical" if identical else "TEXTS DIFFER: this is a bug, please report it"
        print(f"{engine.model}, {tokens} tokens, {count} holes, prompt cold, medians in ms; {verdict}\n{COLUMNS}")
        print("\n".join(row(name, way) for name, way in figures_by_way.items()), flush=True)
    figures = {
        **loaded.about(engine),
        "holes": count,
        "repeats": repeats,
        "seed": SEED,
        "prompt_cache": "cold",
        "identical": same_everywhere,
        "lengths": by_length,
    }
    print(f"wrote {results_file.write('completions', figures, f'completions-{engine.model}')}")
    return same_everywhere


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks completions`."""
    loaded.add_arguments(parser)
    parser.add_argument("--holes", metavar="N", type=int, default=12, help="places to complete (default: 12, most 23)")
    parser.add_argument(
        "--tokens", metavar="N", type=int, action="append", default=[], help="lengths of output (default: 12 and 48)"
    )
    parser.add_argument("--repeats", metavar="N", type=int, default=1, help="runs of each way at each hole")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when a way of decoding changed a text."""
    lengths = options.tokens or [12, 48]
    same_texts = [bench(setting, options.holes, lengths, options.repeats) for setting in loaded.settings(options)]
    return 0 if all(same_texts) else 1
