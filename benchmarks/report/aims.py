"""The aims the project set itself for speed and quality, each beside the figure that was measured, or beside nothing.

An aim reads its figure from the results of the benchmarks. A figure that is not there is "not measured"; it is never
guessed, and never taken from another machine's or another model's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SMALL, LARGE = "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"
NAMES = {SMALL: "0.5B", LARGE: "1.5B"}
CPU_KINDS = {  # kinds of CPU with results of `peers`, the most like a laptop's first
    "avx512-bf16": "an AMD EPYC (Zen 4, AVX-512)",
    "amx": "a Xeon with AMX",
    "avx512-vnni": "a Xeon without AMX (Cascade Lake, AVX-512)",
}
PASS, SHORT, NOT_MEASURED = "pass", "short", "not measured"

Figures = Mapping[str, Any]
Results = Mapping[str, Figures]
"""{file name without .json: what it holds}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """An aim, and the place of its figure in the results."""

    group: str
    what: str
    limit: float
    unit: str  # behind the number: " ms", " x", ""
    measured: Callable[[Results], float | None]
    at_least: bool = False  # else: at most

    def verdict(self, value: float | None) -> str:
        """PASS, SHORT or NOT_MEASURED."""
        if value is None:
            return NOT_MEASURED
        return PASS if (value >= self.limit if self.at_least else value <= self.limit) else SHORT

    @property
    def wanted(self) -> str:
        """ "<= 300 ms"."""
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}{self.unit}"


def number(value: float) -> str:
    """Three digits that count: 0.482, 5.21, 20, 300."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def dig(value: Any, *path: str) -> Any:
    """The value at a path of keys; None where a key is missing."""
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def at(file: str, *path: str) -> Callable[[Results], float | None]:
    """A figure at a path of a file."""

    def read(results: Results) -> float | None:
        value = dig(results.get(file), *path)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    return read


def against_peers(model: str, kind: str, what: str) -> Callable[[Results], float | None]:
    """Our middle over the best peer's, in the same run on one kind of CPU."""
    return at(f"peers-{model}-{kind}", "against_the_best_peer", what, "ratio")


def warm_extra(model: str, about_tokens: int = 512) -> Callable[[Results], float | None]:
    """Time of the first token minus one round, one character after a prompt of usual length was cached."""

    def read(results: Results) -> float | None:
        rows: Sequence[Figures] = dig(results.get(f"scale-{model}"), "prompt") or []
        near = min(rows, key=lambda row: abs(row["prompt_tokens"] - about_tokens), default=None)
        return None if near is None else float(near["warm_first_ms"] - near["step_ms"])

    return read


def every_text(model: str) -> Callable[[Results], float | None]:
    """The share of speculative completions that are token for token those of plain decoding."""

    def read(results: Results) -> float | None:
        lengths = dig(results.get(f"completions-{model}"), "lengths")
        if not isinstance(lengths, Mapping):
            return None
        ways = [way for of in lengths.values() for way in of["ways"].values()]
        same, of_all = (sum(int(way[key]) for way in ways) for key in ("identical_runs", "runs"))
        return same / max(of_all, 1)

    return read


def quality(*path: str) -> Callable[[Results], float | None]:
    """A figure of the larger task set that was measured; of one beside a peer, where that has a file of its own."""

    def read(results: Results) -> float | None:
        values = (at(f"quality-{name}-{SMALL}", *path)(results) for name in ("full", "peer", "quick"))
        return next((value for value in values if value is not None), None)

    return read


def in_percent(of: Callable[[Results], float | None]) -> Callable[[Results], float | None]:
    """A share of 1 as a percentage."""

    def read(results: Results) -> float | None:
        value = of(results)
        return None if value is None else value * 100

    return read


def newest_gpu(results: Results) -> Figures | None:
    """The newest result of benchmarks/speed/gpu/gpu.py on a GPU; each kind of GPU has a file of its own."""
    on_gpus = [data for data in results.values() if data["bench"] == "gpu" and data["device"] == "cuda"]
    return max(on_gpus, key=lambda data: str(data["made_utc"]), default=None)


def on_gpu(part: str, *path: str) -> Callable[[Results], float | None]:
    """A figure of a part of the newest result on a GPU."""

    def read(results: Results) -> float | None:
        return at("gpu", "parts", part, "figures", *path)({"gpu": newest_gpu(results) or {}})

    return read


def gpu_cancel(results: Results) -> float | None:
    """The slower of cancelling in a prefill and between rounds, 7B."""
    times = [on_gpu("cancel", "0.5b-7b", work, "p99")(results) for work in ("prefill", "rounds")]
    return None if None in times else max(value for value in times if value is not None)


def beside_assisted(results: Results) -> float | None:
    """transformers' assisted generation over ours, 7B, both with the replayed acceptance."""
    theirs = on_gpu("transformers", "0.5b-7b", "assisted_replayed", "ms")(results)
    ours = on_gpu("rounds", LARGE_PAIR, "completion", "replayed", "ms")(results)
    return theirs / ours if theirs and ours else None


LARGE_PAIR = "0.5b-7b, nf4 draft"
MODELLED = ("rounds", LARGE_PAIR, "completion", "modelled", "ms")

COLD, DECODE, FIRST, NEXT_KEY = "32 tokens, cold", "32 tokens, cold, decoding", "first token, cold", "next key, whole"
BESIDE_PEERS = (  # kind of CPU, model, metric, label, limit
    ("avx512-bf16", SMALL, "cold_total_ms", COLD, 0.6),
    ("avx512-bf16", SMALL, "cold_decode_ms", DECODE, 0.5),
    ("avx512-bf16", SMALL, "warm_total_ms", NEXT_KEY, 0.45),
    ("avx512-bf16", LARGE, "cold_total_ms", COLD, 0.6),
    ("avx512-bf16", LARGE, "warm_total_ms", NEXT_KEY, 0.5),
    ("amx", SMALL, "cold_total_ms", COLD, 0.5),
    ("amx", SMALL, "cold_decode_ms", DECODE, 0.45),
    ("amx", SMALL, "cold_first_ms", FIRST, 1),
    ("amx", LARGE, "cold_total_ms", COLD, 0.55),
    ("amx", LARGE, "cold_first_ms", FIRST, 1),
)

AIMS: tuple[Aim, ...] = (
    *(
        Aim(group="Lossless", what=f"texts identical to plain decoding, {name}", limit=1, unit="", at_least=True,
            measured=every_text(model))
        for model, name in NAMES.items()
    ),
    *(
        aim
        for model, name in NAMES.items()
        for aim in (
            Aim(group="CPU", what=f"round of 16 rows ÷ the reads of its weights, AMX, {name}", limit=1.35, unit=" x",
                measured=at(f"floor-{model}-amx", "ratios", "round_16_to_weights")),
            Aim(group="CPU", what=f"round of 16 rows ÷ round of 1, AMX, {name}", limit=1.15, unit=" x",
                measured=at(f"floor-{model}-amx", "ratios", "round_16_to_round_1")),
            Aim(group="CPU", what=f"cancel to stop inside a prefill, p99, AMX, {name}", limit=10, unit=" ms",
                measured=at(f"floor-{model}-amx", "ratios", "cancel_p99_ms")),
        )
    ),
    *(
        Aim(group="CPU", what=f"round of 16 rows ÷ round of 1, {path}, 0.5B", limit=limit, unit=" x",
            measured=at(f"floor-{SMALL}-{path}", "ratios", "round_16_to_round_1"))
        for path, limit in (("avx512-bf16", 1.6), ("avx512-vnni", 1.6), ("avx-vnni", 2.0))
    ),
    *(
        Aim(group="CPU beside peers", what=f"{label} ÷ the best peer's, {kind}, {NAMES[model]}", limit=limit, unit=" x",
            measured=against_peers(model, kind, metric))
        for kind, model, metric, label, limit in BESIDE_PEERS
    ),
    Aim(group="Keystrokes", what="first token above one round, prompt cached but for one character, 0.5B", limit=15,
        unit=" ms", measured=warm_extra(SMALL)),
    Aim(group="Keystrokes", what="key to suggestion, p50, 0.5B", limit=300, unit=" ms",
        measured=at(f"keystrokes-{SMALL}", "suggestion", "p50_ms")),
    Aim(group="Keystrokes", what="typing through a suggestion, p95, 0.5B", limit=20, unit=" ms",
        measured=at(f"keystrokes-{SMALL}", "typing_through", "p95_ms")),
    Aim(group="Keystrokes", what="stale work per keystroke, 0.5B", limit=1, unit=" rounds",
        measured=at(f"keystrokes-{SMALL}", "engine", "stale_rounds_per_key")),
    Aim(group="Keystrokes", what="new prompt tokens of a typed character, median, 0.5B", limit=3, unit="",
        measured=at(f"keystrokes-{SMALL}", "prefilled_by_a_character", "p50")),
    Aim(group="Quality", what="exact lines, full context ÷ none, tasks across files, 0.5B", limit=1.35, unit=" x",
        at_least=True, measured=quality("variants", "full", "of", "cross", "beside_base", "exact", "ratio", "value")),
    Aim(group="Quality", what="the same, tasks in one file", limit=1, unit=" x", at_least=True,
        measured=quality("variants", "full", "of", "single", "beside_base", "exact", "ratio", "value")),
    Aim(group="Quality", what="exact lines ÷ llama.vscode's policy, same model and engine", limit=1.15, unit=" x",
        at_least=True, measured=quality("full_beside", "llama.vscode", "all", "exact", "ratio", "value")),
    Aim(group="Quality", what="suggestions that break the parse", limit=0.5, unit=" %",
        measured=in_percent(quality("variants", "full", "of", "all", "breaks_of_shown", "value"))),
    Aim(group="Quality", what="suggestions that end with what stands there", limit=0, unit=" %",
        measured=in_percent(quality("variants", "full", "of", "all", "repeats_of_shown", "value"))),
    Aim(group="GPU", what="32 tokens, 0.5B nf4 → 7B bf16, acceptance 0.7 modelled", limit=84, unit=" ms",
        measured=on_gpu(*MODELLED)),
    Aim(group="GPU", what="the same, the second aim", limit=60, unit=" ms", measured=on_gpu(*MODELLED)),
    Aim(group="GPU", what="plain 7B step, share of the memory's bandwidth", limit=80, unit=" %", at_least=True,
        measured=on_gpu("passes", "7b bf16", "rows", "16", "percent_of_limit")),
    Aim(group="GPU", what="plain 1.5B step", limit=1.3, unit=" ms",
        measured=on_gpu("passes", "1.5b bf16", "rows", "16", "ms")),
    Aim(group="GPU", what="cancel to stop, p99, 7B", limit=10, unit=" ms", measured=gpu_cancel),
    Aim(group="GPU", what="transformers' assisted generation ÷ ours, 7B, acceptance replayed", limit=4, unit=" x",
        at_least=True, measured=beside_assisted),
    Aim(group="Benchmarks", what="make bench", limit=30, unit=" min", measured=at("run-bench", "minutes")),
    Aim(group="Benchmarks", what="make bench-quick", limit=5, unit=" min", measured=at("run-bench-quick", "minutes")),
    Aim(group="Benchmarks", what="make bench-quality", limit=15, unit=" min",
        measured=at("run-bench-quality", "minutes")),
)  # fmt: skip
