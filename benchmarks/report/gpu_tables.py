"""Tables of docs/gpu.md, from the newest result of benchmarks/speed/gpu. Absent figures read "not measured"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report.markdown_tables import table
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
        "gpu-passes": table(
            ("model", *(f"{rows} token{'s' * (rows != '1')}" for rows in PASS_ROWS)), passes(figures.get("passes", {}))
        ),
        "gpu-rounds": table(
            ("draft and target", "verify", "draft step", "fixed", *(f"round of {gamma}" for gamma in GAMMAS)),
            rounds(figures.get("rounds", {})),
        ),
        "gpu-completions": table(("draft and target", "plain", "speculative"), completions(figures.get("rounds", {}))),
        "gpu-prefill": table(
            ("model", *(f"{int(tokens):,} tokens" for tokens in PREFILLS)), prefill(figures.get("rounds", {}))
        ),
        "gpu-checks": table(("check", "result"), checks(figures)),
        "gpu-real": table(
            ("decoding", "first token", "decode", "whole", "decode, against plain", "identical texts"),
            real(figures.get("real", {})),
        ),
    }


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
        *(f"{versions.get(name, NOT_MEASURED)}" for name in ("torch", "triton", "bitsandbytes")),
        *(number(bandwidth.get(f"{name}_gb_per_s"), 0) for name in ("copy", "read", "limit")),
    )
    head = ("GPU", "date", "torch", "Triton", "bitsandbytes", "copy, GB/s", "read, GB/s", "limit, GB/s")
    return table(head, iter([cells]))


def passes(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Milliseconds of a pass by its tokens."""
    for number_format in FORMATS:
        for model, name in MODELS.items():
            rows = at(figures, f"{model} {number_format}", "rows") or {}
            wide = [share(rows.get(count)) for count in PASS_ROWS]
            one_pass = number_format == "bf16" or PASS_ROWS[-1] in rows or not rows
            yield f"{name} {number_format}", *(wide if one_pass else [*wide[:-1], "two passes"])


def rounds(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Device milliseconds of whole rounds, and their parts."""
    for key, name in PAIRS.items():
        model = figures.get(key, {})
        fixed, worst = (at(model, "fixed_cost", f"{name}_ms") for name in ("fixed", "worst"))
        by_gamma = [share(at(model, "by_gamma", gamma)) for gamma in GAMMAS]
        fixed_text = number(fixed) if worst is None else f"{number(fixed)} ± {number(worst)}"
        yield name, share(model.get("verify")), share(model.get("draft_step")), fixed_text, *by_gamma


def completions(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Milliseconds for 32 tokens after the prompt."""
    for key, name in PAIRS.items():
        completion = at(figures, key, "completion")
        gamma, ms = at(completion, "replayed", "gamma"), at(completion, "replayed", "ms")
        replayed = NOT_MEASURED if ms is None else f"{ms:.1f} (rounds of {gamma})"
        yield name, number(at(completion, "plain_ms"), 1), replayed


def prefill(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Milliseconds of a cold prompt by its tokens."""
    for model, name in TARGETS.items():
        yield name, *(number(at(figures, model, "prefill_ms_by_tokens", tokens), 1) for tokens in PREFILLS)


def checks(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    """Equal tokens and tests."""
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
    passed = f"{tests.get('passed')} of {tests.get('tests')}" if tests else NOT_MEASURED
    yield "tests of `tests/engine/model/cuda/test_cuda.py` that pass", passed


def real(figures: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Medians in milliseconds of real completions."""
    for key, name in WAYS.items():
        way = at(figures, "ways", key)
        if way is None:
            yield name, *[NOT_MEASURED] * 5
            continue
        times = [number(way[f"{metric}_ms"]["p50"], 1) for metric in ("ttft", "decode", "total")]
        yield name, *times, f"{way['decode_speed_up']:.2f} x", f"{way['identical_runs']} of {way['runs']}"
