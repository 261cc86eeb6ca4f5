"""The table that `python -m benchmarks keystrokes` prints, and the rows that the report takes from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AIM_SUGGESTION_MS, AIM_STALE_ROUNDS, AIM_ALONG_MS = 300, 1.0, 20  # the 0.5B target on 2 CPU cores


def print_table(model: str, figures: Mapping[str, Any]) -> None:
    """All languages together and each by itself, the aims beside."""
    columns = {"all": figures, **figures["languages"]}
    print(f"{model}: {figures['keys']} keys, {figures['recorded_minutes']} min of synthetic typing, in real time")
    print(f"{'':36}" + "".join(f"{name[:10]:>11}" for name in columns) + "   aim (0.5B, CPU)")
    for label, path, form, aim in ROWS:
        cells = "".join(f"{cell(of, path, form):>11}" for of in columns.values())
        print(f"{label:36}{cells}{'   ' + aim if aim else ''}")
    where, engine = figures["server"]["mean_ms_of_shown_from_model"], figures["engine"]["mean_ms"]
    parts = ", ".join(f"{name.replace('_', ' ')} {ms:g}" for name, ms in where.items())
    print(f"a suggestion the model made, mean ms: {parts}")
    print("in the engine, mean ms: " + ", ".join(f"{name.removesuffix('_ms')} {ms:g}" for name, ms in engine.items()))
    print("how requests ended: " + ", ".join(f"{name} {n}" for name, n in figures["server"]["outcomes"].items()))


ROWS = (
    ("key to suggestion, p50", "suggestion.p50_ms", "ms", f"<= {AIM_SUGGESTION_MS} ms"),
    ("                   p95", "suggestion.p95_ms", "ms", ""),
    ("  of these from the model, p50", "suggestion_from_model.p50_ms", "ms", f"<= {AIM_SUGGESTION_MS} ms"),
    ("                           p95", "suggestion_from_model.p95_ms", "ms", ""),
    ("answer in a pause of 1 s, p50", "answer_in_long_pause.p50_ms", "ms", ""),
    ("                          p95", "answer_in_long_pause.p95_ms", "ms", ""),
    ("pauses >= 250 ms", "pauses.count", "n", ""),
    ("  that end with a suggestion", "pauses.with_suggestion", "%", ""),
    ("  that end with an answer", "pauses.answered", "%", ""),
    ("typing through, answers", "typing_through.count", "n", ""),
    ("                p95", "typing_through.p95_ms", "ms", f"<= {AIM_ALONG_MS} ms"),
    ("answered without the model", "server.without_model", "%", ""),
    ("from an older request's stream", "server.adopted", "%", ""),
    ("stale work a key", "engine.stale_work_ms_per_key", "ms", ""),
    ("                in rounds", "engine.stale_rounds_per_key", "x", f"<= {AIM_STALE_ROUNDS:g} round"),
    ("cancel to stop, p99 below", "engine.cancel_to_stop_p99_ms", "ms", ""),
    ("prompt tokens a typed character, p50", "prefilled_by_a_character.p50", "n", "<= 3"),
    ("prompt tokens prefilled a key", "engine.prefilled_tokens_per_key", "x", ""),
    ("prompt tokens found in the cache", "engine.cached_share", "%", ""),
    ("mean round", "engine.round_ms", "ms", ""),
    ("suggestions accepted", "accepted", "n", ""),
    ("answers that did not fit", "misfits", "n", "0"),
)


def cell(figures: Any, path: str, form: str) -> str:
    """One figure as the table shows it."""
    within = figures
    for name in path.split("."):
        within, figures = figures, figures[name]
    if figures is None:
        return "never" if path.endswith("_ms") and within.get("count") else "-"
    ms = f"{figures:.{1 if figures >= 10 else 2}f} ms"
    return {"ms": ms, "%": f"{figures:.0%}", "n": f"{figures}", "x": f"{figures:.2f}"}[form]
