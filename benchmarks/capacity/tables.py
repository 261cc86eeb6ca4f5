"""Tables of the sizing figures, printed for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.capacity.roofline import MAX_BATCH


def print_tables(figures: Mapping[str, Any]) -> None:
    """Print every table of the figures."""
    for figure in figures["load"]:
        prompt = f"{figure['prompt_tokens']} prompt tokens ({figure['cached_share']:.0%} in a prefix cache)"
        print(
            f"answers {figure['slower_ms']:g} ms later: {figure['requests_per_second']} requests/s while typing "
            f"({figure['requests_per_key']} a key), {prompt}, {figure['output_tokens']} generated, "
            f"{figure['overtaken']:.0%} overtaken, open p50 {figure['open_p50_ms']:.0f} "
            f"p95 {figure['open_p95_ms']:.0f} ms"
        )
    for figure in figures["anchors"]:
        print(f"{figure['what']}: published {figure['measured_ms']:.2f} ms/token, modelled {figure['modelled_ms']:.2f}")
    print_crossover(figures["crossover"][figures["gpu"]], figures["gpu"], figures["prompt_tokens_per_output_token"])
    print(f"γ by batch for {figures['target']} on {figures['gpu']}: {figures['by_batch']}")
    print(f"developers on one GPU, p95 of the last token <= {figures['within_ms']:g} ms:")
    for row in figures["capacity"]:
        at, way = row["at"], f"{row['gpu']:10} {row['target']:>5} speculation {row['speculation']:9}"
        if at is None:
            print(f"  {way}   none")
            continue
        first, last = (f"p50 {at[f'{of}_p50_ms']} p95 {at[f'{of}_p95_ms']}" for of in ("first", "last"))
        print(
            f"  {way} {row['developers']:6}   first {first}, last {last} ms, batch {at['mean_batch']}, "
            f"shown {at['shown_before_next_key']:.0%}"
        )
    print(f"teams on {figures['gpu']}, {figures['target']}:")
    for row in figures["teams"]:
        warm, spread = row["affinity"], row["no_affinity"]
        print(
            f"  {row['developers']:6} developers, speculation {row['speculation']:9}: {row['replicas']:4} replicas, "
            f"{warm['requests_per_second']} requests/s, last p50 {warm['last_p50_ms']} p95 {warm['last_p95_ms']} ms, "
            f"batch {warm['mean_batch']}; without affinity p95 {spread['last_p95_ms']} ms"
        )
    for row in figures["sensitivity"]:
        print(f"  typing {row['typing_minutes']:g} minutes of the hour: {row['developers']} developers on one GPU")


def print_crossover(rows: Sequence[Mapping[str, Any]], gpu: str, reading: float) -> None:
    """A line for each target and α; a column for each γ: decoding alone / with the prompts."""
    of = {(row["target"], row["alpha"], row["gamma"]): row for row in rows}
    gammas = sorted({row["gamma"] for row in rows})
    print(f"largest batch at which speculation pays on {gpu}, decoding alone / with {reading:g} prompt tokens a token:")
    print("  target  alpha" + "".join(f"{f'γ = {gamma}':>16}" for gamma in gammas))
    for target, alpha in dict.fromkeys((row["target"], row["alpha"]) for row in rows):
        cells_of = [of[target, alpha, gamma] for gamma in gammas]
        cells = [f"{in_words(entry['alone'])} / {in_words(entry['with_prompts'])}" for entry in cells_of]
        print(f"  {target:>6}  {alpha:5}" + "".join(f"{cell:>16}" for cell in cells))


def in_words(batch: int) -> str:
    return "never" if batch == 0 else f">{batch - 1}" if batch == MAX_BATCH else str(batch)
