"""Tables of docs/gpu.md, from the newest result of benchmarks/speed/gpu. Absent figures read "not measured"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report.result_files import Figures, Results, newest_gpu

NOT_MEASURED = "not measured"
MODELS = {"0.5b": "0.5B", "1.5b": "1.5B", "7b": "7B"}
FORMATS = ("bf16", "nf4")
PASS_ROWS = ("1", "2", "4", "8", "16")
TARGETS = {"0.5b-1.5b": "1.5B", "0.5b-7b": "7B"}  # model -> its target
PAIRS = {
    f"{model}, {draft} draft": f"0.5B {draft} → {name}" for model, name in TARGETS.items() for draft in ("nf4", "bf16")
}
GAMMAS = ("1", "2", "4", "8")
PRODUCTS = {"qkv": "query, key, value", "out": "attention output", "up": "gate and up", "down": "down", "head": "head"}
OPERATIONS = {
    "add_norm": "sum and norm",
    "rope_write": "RoPE and cache write",
    "attend": "attention",
    "silu_mul": "SiLU",
}
TAIL = {"torch": "torch", "ours": "ours"}
OLD_TAIL = {"float": "logits to float32", "argmax": "argmax", "logsumexp": "logsumexp", "gather": "gather"}
PARTS = {
    "bandwidth": "bandwidth",
    "passes": "passes",
    "kernels": "kernels",
    "rounds": "rounds",
    "agreement": "equal tokens",
    "tests": "tests of the decoder",
    "cancel": "cancellation",
    "memory": "memory",
    "transformers": "transformers",
    "real": "real 0.5B",
    "compiled": "transformers, compiled",
}
WAYS = {
    "plain": "plain",
    "n-grams, 7": "n-grams, at most 7 tokens",
    "n-grams, 15": "n-grams, at most 15 tokens",
    "reuse, 7": "earlier suggestion, at most 7 tokens",
    "policy": "default",
}
PREFILLS = ("64", "256", "1024")


def markdown(results: Results) -> dict[str, str]:
    """{name: Markdown} of every table of the page."""
    data = newest_gpu(results) or {}
    figures = {name: entry.get("figures", {}) for name, entry in data.get("parts", {}).items()}
    return {
        "gpu-machine": machine(data, figures.get("bandwidth", {})),
        "gpu-parts": table(("part", "state", "seconds", "not measured"), parts(data.get("parts", {}))),
        "gpu-passes": table(
            ("model", *(f"{rows} token{'s' * (rows != '1')}" for rows in PASS_ROWS)), passes(figures.get("passes", {}))
        ),
        "gpu-kernels": table(
            ("kernel", *(f"{name}, {by}" for name in MODELS.values() for by in ("library", "ours"))),
            kernels(figures.get("kernels", {})),
        ),
        "gpu-rounds": table(
            ("draft and target", "verify", "draft step", "fixed", *(f"round of {gamma}" for gamma in GAMMAS)),
            rounds(figures.get("rounds", {})),
        ),
        "gpu-completions": table(
            ("draft and target", "plain", "speculative", "transformers", "static cache", "compiled", "assisted"),
            completions(figures.get("rounds", {}), figures.get("transformers", {}), figures.get("compiled", {})),
        ),
        "gpu-prefill": table(
            ("model", *(f"{int(tokens):,} tokens" for tokens in PREFILLS)), prefill(figures.get("rounds", {}))
        ),
        "gpu-checks": table(("check", "result"), checks(figures)),
        "gpu-memory": table(("in memory", "MiB"), memory(figures.get("memory", {}))),
        "gpu-memory-models": table(("model", *FORMATS), memory_of_models(figures.get("memory", {}))),
        "gpu-real": table(
            ("decoding", "first token", "decode", "whole", "decode, against plain", "identical texts"),
            real(figures.get("real", {})),
        ),
    }


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A Markdown table."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def at(figures: Any, *path: str) -> Any:
    """A nested figure; None if it is absent."""
    for key in path:
        figures = figures.get(key) if isinstance(figures, Mapping) else None
    return figures


def number(value: Any, digits: int = 2) -> str:
    """A figure as text."""
    return NOT_MEASURED if value is None else f"{value:,.{digits}f}"


def share(row: Any, unit: float = 1.0, digits: int = 2) -> str:
    """A time with its share of the limit, or the reason why it is refused."""
    if not isinstance(row, Mapping):
        return NOT_MEASURED
    if "refused" in row:
        return f"refused: {row['refused']}"
    text = f"{row['ms'] * unit:.{digits}f}"
    return f"{text} ({row['percent_of_limit']:.0f} %)" if "percent_of_limit" in row else text


def machine(data: Figures, bandwidth: Mapping[str, Any]) -> str:
    """The device and the limit."""
    versions = data.get("versions", {})
    cells = (
        str(data.get("device_name", NOT_MEASURED)),
        str(data.get("made_utc", NOT_MEASURED))[:10],
        *(f"{versions.get(name, NOT_MEASURED)}" for name in ("torch", "triton", "transformers", "bitsandbytes")),
        *(number(bandwidth.get(f"{name}_gb_per_s"), 0) for name in ("copy", "read", "limit")),
    )
    head = ("GPU", "date", "torch", "Triton", "transformers", "bitsandbytes", "copy, GB/s", "read, GB/s", "limit, GB/s")
    return table(head, iter([cells]))


def parts(entries: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """The state of each part of the run."""
    for name, label in PARTS.items():
        entry = entries.get(name, {"status": "not run", "why": "it was not requested"})
        reasons = [entry["why"]] if "why" in entry else []
        yield label, entry["status"], number(entry.get("wall_s"), 0), "; ".join([*reasons, *entry.get("skipped", [])])


def passes(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Milliseconds of a pass by its tokens."""
    for number_format in FORMATS:
        for model, name in MODELS.items():
            rows = at(figures, f"{model} {number_format}", "rows") or {}
            wide = [share(rows.get(count)) for count in PASS_ROWS]
            one_pass = number_format == "bf16" or PASS_ROWS[-1] in rows or not rows
            yield f"{name} {number_format}", *(wide if one_pass else [*wide[:-1], "two passes"])


def kernels(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Microseconds of each kernel by the library or by ours."""

    def cells(name: str, library: str, ours: str, number_format: str = "bf16") -> Iterator[str]:
        for model in MODELS:
            rows = figures.get(f"{model} {number_format}", {})
            for label in (library, ours):
                yield share(rows.get(f"{name}, {label}"), 1e3, 1) if label else ""

    for name, label in PRODUCTS.items():
        ours = "ours" if any(f"{name}, ours" in rows for rows in figures.values()) else "skinny"  # of an older run
        yield label, *cells(name, "library", ours)
    for name, label in PRODUCTS.items():
        if name != "head":
            measured = any(f"{name}, ours" in figures.get(f"{model} nf4", {}) for model in MODELS)
            yield f"{label}, nf4", *cells(name, "library", "ours" if measured else "", "nf4")
    for name, label in OPERATIONS.items():
        yield label, *cells(name, "torch", "ours")
    old = any("tail, float" in rows for rows in figures.values())
    for name, label in (OLD_TAIL if old else TAIL).items():
        yield f"round's end: {label}", *cells("tail", name, "")


def rounds(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Device milliseconds of whole rounds, and their parts."""
    for key, name in PAIRS.items():
        model = figures.get(key, {})
        fixed, worst = (at(model, "fixed_cost", f"{name}_ms") for name in ("fixed", "worst"))
        by_gamma = [share(at(model, "by_gamma", gamma)) for gamma in GAMMAS]
        fixed_text = number(fixed) if worst is None else f"{number(fixed)} ± {number(worst)}"
        yield name, share(model.get("verify")), share(model.get("draft_step")), fixed_text, *by_gamma


def completions(
    figures: Mapping[str, Any], peers: Mapping[str, Any], compiled: Mapping[str, Any]
) -> Iterator[Sequence[str]]:
    """Milliseconds for 32 tokens after the prompt."""
    for key, name in PAIRS.items():
        model = key.partition(",")[0]
        ours, theirs = at(figures, key, "completion"), {**peers.get(model, {}), **compiled.get(model, {})}
        gamma, ms = at(ours, "replayed", "gamma"), at(ours, "replayed", "ms")
        yield (
            name,
            number(at(ours, "plain_ms"), 1),
            NOT_MEASURED if ms is None else f"{ms:.1f} (rounds of {gamma})",
            *(number(theirs.get(f"{way}_ms"), 1) for way in ("plain", "static", "compiled")),
            number(at(theirs, "assisted_replayed", "ms"), 1),
        )


def prefill(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Milliseconds of a cold prompt by its tokens."""
    for model, name in TARGETS.items():
        yield name, *(number(at(figures, model, "prefill_ms_by_tokens", tokens), 1) for tokens in PREFILLS)


def checks(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    """Equal tokens, tests and cancellation."""
    agreement, tests = figures.get("agreement", {}), figures.get("tests", {})
    greedy = agreement.get("greedy")
    yield (
        "tokens of speculative decoding that differ from plain decoding",
        NOT_MEASURED if greedy is None else f"{greedy['divergences']} of {greedy['tokens']:,}",
    )
    labels = {
        "engine": "caches as in a completion",
        "boundary": "second-last token by a round's pass in both",
        "narrow": "whole prompt by a round's passes",
    }
    for name, label in labels.items():
        of = at(agreement, "draft_is_target", name)
        accepted = NOT_MEASURED if of is None else f"{of['accepted']} of {of['drafted']}"
        yield f"draft that is the target, accepted: {label}", accepted
    yield (
        "its first rejected token, best two logits of both",
        difference(at(agreement, "draft_is_target", "engine", "first_difference")),
    )
    passed = f"{tests.get('passed')} of {tests.get('tests')}" if tests else NOT_MEASURED
    yield "tests of `tests/engine/model/cuda/test_cuda.py` that pass", passed
    for model, name in TARGETS.items():
        for work in ("prefill", "rounds"):
            times = at(figures.get("cancel"), model, work)
            late = NOT_MEASURED if times is None else f"{times['p50']:.1f} ms, {times['p99']:.1f} ms"
            yield f"cancel to idle in {work}, {name}: p50, p99", late


def difference(first: Mapping[str, Any] | None) -> str:
    """The first rejected guess of a draft that is the target, in words."""
    if first is None:
        return NOT_MEASURED
    caches = first["caches"]
    where = (
        "the caches are equal"
        if caches is None
        else f"the caches differ first at position {caches['position']} in layer {caches['layer']}, "
        f"at most by {caches['largest']:.3g}"
    )
    draft, target = (
        ", ".join(f"token {token:.0f}: {logit:.4f}" for token, logit in first[f"{model}_top_two"])
        for model in ("draft", "target")
    )
    place = "depends" if first["row_depends_on_its_place"] else "does not depend"
    return (
        f"position {first['position']} after a prompt of {first['prompt_tokens']}; draft: {draft}; target: {target}; "
        f"{where}; a row's result {place} on its place in the pass"
    )


def memory(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Reserved memory of one target, step by step."""
    steps = {name: mib for name, mib in figures.items() if not is_model(name)}
    for name, mib in steps.items() or [("the 1.5B and its cache", None)]:
        yield name.replace("5b ", "5B "), number(mib, 0)


def memory_of_models(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Reserved memory of every model with one text's cache."""
    for model, name in MODELS.items():
        yield name, *(number(figures.get(f"{model} {number_format}, 1 text"), 0) for number_format in FORMATS)


def is_model(row: str) -> bool:
    """True for the memory of a model with one text's cache."""
    return any(row == f"{model} {number_format}, 1 text" for model in MODELS for number_format in FORMATS)


def real(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Medians in milliseconds of real completions."""
    for key, name in WAYS.items():
        way = at(figures, "ways", key)
        if way is None:
            yield name, *[NOT_MEASURED] * 5
            continue
        times = [number(way[f"{metric}_ms"]["p50"], 1) for metric in ("ttft", "decode", "total")]
        yield name, *times, f"{way['decode_speed_up']:.2f} x", f"{way['identical_runs']} of {way['runs']}"
