"""Markdown tables of docs/benchmarks.md, from the committed results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from benchmarks.report.result_files import CPU_KINDS, LARGE, SMALL, Results

NAMES = {
    "speclsp": "speclsp",
    "openvino": "OpenVINO GenAI",
    "vllm": "vLLM",
    "llama.cpp": "llama.cpp",
    "ik_llama.cpp": "ik_llama.cpp",
    "transformers": "transformers",
}
FORMATS = {  # (engine, mode) -> number format and kind of speculation
    ("speclsp", "plain"): "int8, no speculation",
    ("speclsp", "speculative"): "int8, speculative (default)",
    ("openvino", "plain"): "int8",
    ("openvino", "lookup"): "int8, prompt lookup",
    ("openvino", "draft"): "int8, draft model",
    ("openvino", "plain int4"): "int4",
    ("openvino", "lookup int4"): "int4, prompt lookup",
    ("vllm", "plain"): "bf16",
    ("vllm", "ngram"): "bf16, n-gram",
    ("vllm", "draft"): "bf16, draft model",
    ("llama.cpp", "plain"): "Q4_K_M",
    ("llama.cpp", "ngram"): "Q4_K_M, n-gram",
    ("llama.cpp", "ngram-mod"): "Q4_K_M, ngram-mod",
    ("llama.cpp", "draft"): "Q4_K_M, draft model",
    ("llama.cpp", "plain q4_0"): "Q4_0",
    ("llama.cpp", "ngram q4_0"): "Q4_0, n-gram",
    ("llama.cpp", "ngram-mod q4_0"): "Q4_0, ngram-mod",
    ("llama.cpp", "plain iq4"): "IQ4_XS",
    ("llama.cpp", "plain q8"): "Q8_0",
    ("llama.cpp", "ngram q8"): "Q8_0, n-gram",
    ("ik_llama.cpp", "plain"): "Q4_K_M",
    ("ik_llama.cpp", "plain q4_0"): "Q4_0",
    ("ik_llama.cpp", "plain iq4"): "IQ4_XS",
    ("ik_llama.cpp", "plain q8"): "Q8_0",
    ("transformers", "plain"): "bf16",
    ("transformers", "lookup"): "bf16, prompt lookup",
    ("transformers", "draft"): "bf16, draft model",
}
TIMES = (("cold", "total_ms"), ("cold", "first_ms"), ("warm", "total_ms"), ("warm", "first_ms"))
LANGUAGES = {
    "javascript": "JavaScript", "python": "Python", "typescript": "TypeScript", "typescriptreact": "TSX",
    "rust": "Rust", "go": "Go", "c": "C", "cpp": "C++", "java": "Java",
}  # fmt: skip
KEY_KINDS = ("line start", "new place", "after rest", "mid-line")
SUBSETS = ("all", "cross", "cross, name not in sight", "single")


def tables(results: Results) -> dict[str, str]:
    """{name: Markdown} of every table."""
    return {
        **{
            f"engines-{size}-{kind}": engines(results[f"peers-{model}-{kind}"])
            for kind in CPU_KINDS
            for model, size in ((SMALL, "0.5b"), (LARGE, "1.5b"), (f"{LARGE}-int4", "1.5b-int4"))
            if f"peers-{model}-{kind}" in results
        },
        "lines": lines(results[f"lines-{SMALL}"]),
        "speculation": speculation(results),
        "quality": quality(results[f"quality-full-{SMALL}"]),
        **({"judge": judge(results[name])} if (name := f"judge-{LARGE}") in results else {}),
        **{name: renames(results[name]) for name in ("renames", "renames-members") if name in results},
        **({"next-edits": next_edits(results)} if "next-edit" in results else {}),
    }


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A Markdown table."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def engines(data: Mapping[str, Any]) -> str:
    """Median times of our modes and of each engine's fastest ones, then the ratio to the fastest other engine."""
    head = ["engine", "mode", "cold: total, ms", "first token, ms", "next key: total, ms", "first token, ms"]
    formats = dict(FORMATS)
    if data.get("quantization") == "int4":
        formats |= {("speclsp", "plain"): "int4, no speculation", ("speclsp", "speculative"): "int4, speculative"}

    def rows() -> Iterator[Sequence[str]]:
        for way in fastest_ways(data["ways"].values()):
            times = [f"{way[state][metric]['p50']:.0f}" for state, metric in TIMES]
            name = NAMES[way["peer"]]
            name = f"**{name}**" if way["mode"] == "speculative" else name
            yield (name, formats[way["peer"], way["mode"]], *times)
        ratios = (data["against_the_best_peer"][f"{state}_{metric}"]["ratio"] for state, metric in TIMES)
        yield ("speclsp ÷ fastest other", "", *(f"**{ratio:.2f}**" for ratio in ratios))

    return table(head, rows())


def fastest_ways(ways: Collection[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Our own ways, and those of each other engine that complete soonest, from a cold prompt or after a key."""
    best = {
        id(min((way for way in ways if way["peer"] == peer), key=lambda way: float(way[state]["total_ms"]["p50"])))
        for peer in {way["peer"] for way in ways}
        for state in ("cold", "warm")
    }
    yield from (way for way in ways if way["peer"] == "speclsp" or id(way) in best)


def lines(data: Mapping[str, Any]) -> str:
    """Suggestions while functions are typed, by the kind of key and the load of the machine."""

    def rows() -> Iterator[Sequence[str]]:
        for condition, kind in product((name for name in ("idle", "loaded") if name in data), KEY_KINDS):
            row = data[condition]["kinds"][kind]
            times = ", ".join("–" if ms is None else f"{ms + 1e-6:.0f}" for ms in row["to_suggestion"].values())
            new = "–" if row["mostly_new"] is None else percent(row["mostly_new"], 0)
            yield kind, condition, times, percent(row["in_time"], 0), new, str(row["count"])

    head = ("key", "machine", "suggestion: p50, p90, p95, ms", "answered before the next key", "over half new", "n")
    return table(head, rows())


def speculation(results: Results) -> str:
    """Speed-up of the default and of the fixed drafters, by output length."""
    drafters = {
        "adaptive (default)": "policy",
        "n-grams, 15 tokens": "n-grams, 15",
        "earlier suggestion, 7 tokens": "reuse, 7",
    }
    head = ["drafter"]
    columns = []
    for model, size in ((SMALL, "0.5B"), (LARGE, "1.5B")):
        data = results[f"completions-{model}"]
        for length in data["lengths"].values():
            columns.append(length["ways"])
            head += [f"{size}, {length['max_tokens']} tokens: decoding", "whole answer"]

    def rows() -> Iterator[Sequence[str]]:
        for name, key in drafters.items():
            cells = []
            for ways in columns:
                way = ways.get(key)
                cells += [f"{way[metric]:.2f}" if way else "–" for metric in ("decode_speed_up", "total_speed_up")]
            yield name, *cells

    return table(head, rows())


def quality(data: Mapping[str, Any]) -> str:
    """Exact matches and characters saved, of the default and of its cases with less time."""
    variants, counts = data["variants"], data["tasks"]
    names = {
        "base": "current file only",
        "full": "**default, with similar code from other files**",
        "in-time": "default within its limit of time, document open for seconds",
        "in-time-cold": "default, first key in a document just opened",
    }
    head = (
        "prompt",
        f"all ({counts['all']})",
        f"needs a name from another file ({counts['cross']})",
        f"and the name is not yet in this file ({counts['cross, name not in sight']})",
        f"other tasks ({counts['single']})",
        "characters saved",
    )
    rows = ((name, *quality_cells(variants[key]["of"])) for key, name in names.items() if key in variants)
    return table(head, rows)


def quality_cells(of: Mapping[str, Any]) -> Iterator[str]:
    """Exact matches of each subset, then the characters saved for each shown suggestion."""
    for subset in SUBSETS:
        yield interval(of[subset]["exact"]) if subset in of else "–"
    yield f"{of['all']['saved_per_shown']['value']:.1f}"


def judge(data: Mapping[str, Any]) -> str:
    """A model beside the reference: exact lines and saved keys."""
    sizes = data["sizes"]

    def cell(figure: Mapping[str, float], scale: float, sign: str = "") -> str:
        value, low, high = (f"{figure[name] * scale:{sign}.1f}" for name in ("value", "low", "high"))
        return f"{value} [{low}, {high}]"

    def rows() -> Iterator[Sequence[str]]:
        for measure in ("quality", "economy"):
            for number, row in enumerate(data["measures"][measure].values()):
                values = [cell(row[what], row["scale"]) for what in ("model", "reference")]
                name = "" if number else f"{measure}, {sizes[measure]}"
                yield name, row["label"], *values, cell(row["difference"], row["scale"], "+")

    return table(("measure", "", data["model"], data["reference"], "difference"), rows())


def interval(figure: Mapping[str, float]) -> str:
    """A share with its 95 % interval: "33.8 % [30, 37]"."""
    return f"{figure['value'] * 100:.1f} % [{figure['low'] * 100:.0f}, {figure['high'] * 100:.0f}]"


def percent(share: float, digits: int) -> str:
    return f"{share * 100:.{digits}f} %"


def renames(data: Mapping[str, Any]) -> str:
    """Renames made by program: what is offered and right after the definition alone, and for the last use."""
    head = [
        "", "renames", "after the definition: uses offered", "edits, right", "last use: offered", "right",
        "nothing left: quiet", "ms: p50, p99",
    ]  # fmt: skip

    def row(label: str, figures: Mapping[str, Any]) -> Sequence[str]:
        first, last = figures["first"], figures["all_but_one"]
        quiet, states = figures["quiet"]
        return (
            label,
            str(figures["renames"]),
            f"{first['offered']:,} of {first['uses']:,}",
            f"{first['offers']:,}, {first['right']:,}",
            f"{last['offered']:,} of {last['states']:,}",
            f"{last['right']:,}",
            f"{quiet} of {states}",
            f"{figures['ms']['p50']:.1f}, {figures['ms']['p99']:.1f}",
        )

    def rows() -> Iterator[Sequence[str]]:
        yield row("**all**", data["all"])
        yield row("all, without the limit of time", data["without_budget"])
        for name, figures in data["languages"].items():
            yield row(LANGUAGES[name], figures)
        for name, figures in data["kinds"].items():
            yield row(name, figures)

    return table(head, rows())


def next_edits(results: Results) -> str:
    """Edits between releases: all held-out packages, their languages, and the blind packages."""
    held_out = results["next-edit"]["parts"]["held-out"]
    rows = {"**all, held out**": held_out}
    rows |= {LANGUAGES[name]: figures for name, figures in held_out["languages"].items()}
    rows["**blind**"] = results["next-edit-blind"]["parts"]["blind"]
    head = ("", "packages", "states", "shown, right", "precision", "quiet", "half-typed: states, shown, right")
    return table(
        head,
        (
            (
                label,
                str(figures["packages"]),
                f"{figures['states']:,}",
                f"{figures['shown']:,}, {figures['right']:,}",
                "–" if figures["precision"] is None else percent(figures["precision"], 0),
                f"{percent(figures['quiet_rate'], 0)} of {figures['quiet_states']:,}",
                ", ".join(f"{count:,}" for count in figures["half_typed"]),
            )
            for label, figures in rows.items()
        ),
    )
