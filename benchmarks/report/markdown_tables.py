"""Markdown tables of docs/benchmarks.md, from the committed results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
RENAMED_LANGUAGES = {
    "javascript": "JavaScript", "python": "Python", "typescript": "TypeScript", "typescriptreact": "TSX",
}  # fmt: skip
KEY_KINDS = ("line start", "new place", "after rest", "mid-line")
EDITORS = {
    "nvim-0.12": "Neovim 0.12, our plugin",
    "nvim-0.11": "Neovim 0.11, our plugin",
    "nvim-0.12-builtin": "Neovim 0.12, built-in client",
    "vscode": "VS Code, in a browser",
}
SUBSETS = ("all", "cross", "cross, name not in sight", "single")
ABLATIONS = {  # variant -> what changes; measured on subsets of the tasks
    "psm-line": "only the current line after the middle token",
    "psm-standard": "standard order: nothing after the middle token",
    "standard-no-heal": "standard order, no token healing",
    "spm": "suffix before prefix",
    "no-heal": "our order, no token healing",
    "bf16": "bf16 instead of int8",
}


def tables(results: Results) -> dict[str, str]:
    """{name: Markdown} of every table."""
    return {
        **{
            f"engines-{size}-{kind}": engines(results[f"peers-{model}-{kind}"])
            for kind in CPU_KINDS
            for model, size in (
                (SMALL, "0.5b"),
                (LARGE, "1.5b"),
                (f"{LARGE}-int4", "1.5b-int4"),
                (f"{LARGE}-ik", "1.5b-ik"),
                (f"{LARGE}-int4-ik", "1.5b-int4-ik"),
            )
            if f"peers-{model}-{kind}" in results
        },
        "lines": lines(results[f"lines-{SMALL}"]),
        "editors": editors(results[f"editors-{SMALL}"]),
        "speculation": speculation(results),
        "quality": quality(results),
        "sources": sources(results[f"quality-full-{SMALL}"]),
        "policies": policies(results[f"quality-peer-{SMALL}"]),
        "ablations": ablations(results[f"quality-full-{SMALL}"]),
        **({"judge": judge(results[name])} if (name := f"judge-{LARGE}") in results else {}),
        **({"renames": renames(results["renames"])} if "renames" in results else {}),
    }


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A Markdown table."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def engines(data: Mapping[str, Any]) -> str:
    """Median times of every engine and mode, then the ratio to the fastest other engine.

    Beside them, where it was measured, the share of bf16's tokens that the engine repeats.
    """
    head = ["engine", "mode", "cold: total, ms", "first token, ms", "next key: total, ms", "first token, ms"]
    kinds = ("cold", "warm") if all("agreement_bf16" in way for way in data["ways"].values()) else ()
    head += [f"bf16's tokens, {'cold' if kind == 'cold' else 'next key'}" for kind in kinds]
    formats = dict(FORMATS)
    if data.get("quantization") == "int4":
        formats |= {("speclsp", "plain"): "int4, no speculation", ("speclsp", "speculative"): "int4, speculative"}

    def rows() -> Iterator[Sequence[str]]:
        for way in data["ways"].values():
            times = [f"{way[state][metric]['p50']:.0f}" for state, metric in TIMES]
            name = NAMES[way["peer"]]
            shares = [percent(way["agreement_bf16"][kind]["share"], 0) for kind in kinds]
            name = f"**{name}**" if way["mode"] == "speculative" else name
            yield (name, formats[way["peer"], way["mode"]], *times, *shares)
        ratios = (data["against_the_best_peer"][f"{state}_{metric}"]["ratio"] for state, metric in TIMES)
        yield ("speclsp ÷ fastest other", "", *(f"**{ratio:.2f}**" for ratio in ratios), *("" for _ in kinds))

    return table(head, rows())


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


def editors(data: Mapping[str, Any]) -> str:
    """Time to ghost text in each editor, and its parts."""
    head = ("editor", "key to screen, ms", "of this: editor", "language server", "engine", "n", "typing through, ms")

    def rows() -> Iterator[Sequence[str]]:
        for key, name in EDITORS.items():
            row = data["editors"][key]
            parts = [spread(row[f"{part}_ms"]) for part in ("whole", "editor", "server", "engine")]
            yield name, *parts, str(row["new_suggestions"]), spread(row["typed_along_ms"])

    return table(head, rows())


def speculation(results: Results) -> str:
    """Speed-up of the default and of the fixed drafters, by output length."""
    drafters = {
        "adaptive (default)": "policy",
        "n-grams, 15 tokens": "n-grams, 15",
        "draft model, 3 tokens": "draft, 3",
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


def quality(results: Results) -> str:
    """Exact matches and characters saved, of the default and of its cases with less time."""
    full, in_time = results[f"quality-full-{SMALL}"], results[f"quality-in-time-{SMALL}"]
    rows = (
        ("current file only", full["variants"]["base"]),
        ("**default, with cross-file context**", full["variants"]["full"]),
        ("default within the 6 ms budget, document open for seconds", in_time["variants"]["in-time"]),
        ("default, first key in a document just opened", in_time["variants"]["in-time-cold"]),
    )
    counts = full["tasks"]
    head = (
        "prompt",
        f"all ({counts['all']})",
        f"needs a name from another file ({counts['cross']})",
        f"and the name is not yet in this file ({counts['cross, name not in sight']})",
        f"other tasks ({counts['single']})",
        "characters saved",
    )
    return table(head, ((name, *quality_cells(variant["of"])) for name, variant in rows))


def quality_cells(of: Mapping[str, Any]) -> Iterator[str]:
    """Exact matches of each subset, then the characters saved for each shown suggestion."""
    for subset in SUBSETS:
        yield interval(of[subset]["exact"]) if subset in of else "–"
    yield f"{of['all']['saved_per_shown']['value']:.1f}"


def sources(data: Mapping[str, Any]) -> str:
    """Exact matches by the sources of context."""
    names = {
        "base": "current file only",
        "only-similar": "**+ similar code (default)**",
    }
    head = ("prompt", "all", "needs another file", "other tasks", "characters saved", "prompt tokens, median")

    def rows() -> Iterator[Sequence[str]]:
        for key, name in names.items():
            variant = data["variants"][key]
            cells = [interval(variant["of"][subset]["exact"]) for subset in ("all", "cross", "single")]
            saved = variant["of"]["all"]["saved_per_shown"]["value"]
            yield name, *cells, f"{saved:.1f}", f"{variant['prompt_tokens']['p50']:.0f}"

    return table(head, rows())


def policies(data: Mapping[str, Any]) -> str:
    """Exact matches of two context policies on the same tasks, model and engine."""
    names = {"base": "current file only", "llama.vscode": "llama.vscode's policy", "full": "**speclsp (default)**"}

    def rows() -> Iterator[Sequence[str]]:
        for key, name in names.items():
            of = data["variants"][key]["of"]
            shown = [of["all"][measure]["value"] for measure in ("breaks_of_shown", "repeats_of_shown")]
            yield name, *quality_cells(of), *(percent(share, 0) for share in shown)

    counts = [data["tasks"][subset] for subset in SUBSETS]
    subsets = ("all", "needs another file", "name not yet in this file", "other tasks")
    columns = [f"{name} ({count})" for name, count in zip(subsets, counts, strict=True)]
    head = ("policy", *columns, "characters saved", "breaks the syntax", "repeats the text below")
    return table(head, rows())


def ablations(data: Mapping[str, Any]) -> str:
    """Exact matches of variants that ran on a part of the tasks, each with its own n."""

    def rows() -> Iterator[Sequence[str]]:
        for key, name in ABLATIONS.items():
            variant = data["variants"][key]
            exact = variant["of"]["all"]["exact"]
            default = exact["value"] + data["full_beside"][key]["all"]["exact"]["difference"]["value"]
            yield name, str(variant["asked"]), interval(exact), percent(default, 1)

    return table(("change to the default", "n", "exact", "default on the same tasks"), rows())


def judge(data: Mapping[str, Any]) -> str:
    """A model beside the reference, measure by measure."""
    sizes = data["sizes"]

    def cell(figure: Mapping[str, float], scale: float, sign: str = "") -> str:
        value, low, high = (f"{figure[name] * scale:{sign}.1f}" for name in ("value", "low", "high"))
        return f"{value} [{low}, {high}]"

    def rows() -> Iterator[Sequence[str]]:
        for measure, metrics in data["measures"].items():
            for number, row in enumerate(metrics.values()):
                values = [cell(row[what], row["scale"]) for what in ("model", "reference")]
                name = "" if number else f"{measure}, {sizes[measure]}"
                yield name, row["label"], *values, cell(row["difference"], row["scale"], "+")

    return table(("measure", "", data["model"], data["reference"], "difference"), rows())


def spread(times: Mapping[str, float]) -> str:
    """Median and 95th percentile in ms, halves rounded up."""
    return f"{times['p50'] + 1e-6:.0f} · {times['p95'] + 1e-6:.0f}"


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
        quiet, states = (sum(numbers) for numbers in zip(figures["quiet"], figures["same_name"], strict=True))
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
            yield row(RENAMED_LANGUAGES[name], figures)
        for name, figures in data["kinds"].items():
            yield row(name, figures)

    return table(head, rows())
