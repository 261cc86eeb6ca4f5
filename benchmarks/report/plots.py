"""The plots of the report: figures of a benchmark in, a PNG for a light and one for a dark page out.

Every plot names its units on its axes; the page's caption names the machine and the state of the caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.report.html_page import COLOURS, in_thousands, lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, THEIRS = "#009e73", "#6ba3cf"
BESIDE_TITLE: dict[str, Any] = {
    "fontsize": 9, "loc": "lower right", "bbox_to_anchor": (1.02, 0.985), "ncols": 2, "columnspacing": 1.0,
    "handlelength": 1.2, "borderpad": 0.2,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar, and how far its whisker reaches."""

    label: str
    value: float
    whisker: float = 0.0  # the p95 above a p50
    ours: bool = False


def ranked(axes: Axes, bars: Sequence[Bar], unit: str, title: str) -> None:
    """Horizontal bars from the shortest down, each with its number, whiskers where there is a second one."""
    axes.grid(visible=False, axis="y")
    ordered = sorted(bars, key=lambda bar: -bar.value)
    reach = max((max(bar.value, bar.whisker) for bar in ordered), default=1.0)
    for row, bar in enumerate(ordered):
        axes.barh(row, bar.value, height=0.7, color=OURS if bar.ours else THEIRS)
        if bar.whisker > bar.value:
            ink = axes.xaxis.label.get_color()
            axes.plot([bar.value, bar.whisker], [row, row], color=ink, linewidth=1)
            axes.plot([bar.whisker] * 2, [row - 0.2, row + 0.2], color=ink, linewidth=1)
        axes.text(max(bar.value, bar.whisker) + reach * 0.012, row, f"{bar.value:.0f}", va="center", fontsize=9)
    axes.set_yticks(range(len(ordered)), [bar.label for bar in ordered])
    axes.set_xlim(0, reach * 1.1)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(unit)
    axes.set_title(title)


# ── benchmarks/speed/floor.py ──────────────────────────────────────────────────────────────────────────────────────


def floor(figure: Figure, data: Mapping[str, Any]) -> None:
    """Round time by rows above the weight reads, with its parts, and prefill time by length."""
    rounds, parts, prefill = figure.subplots(1, 3, width_ratios=(1, 1.2, 1))
    ms = data["ms"]
    rows = {int(name.removeprefix("round_")): value for name, value in ms.items() if name.startswith("round_")}
    reads = {int(name.removeprefix("weights_")): value for name, value in ms.items() if name.startswith("weights_")}
    series = {name: (list(of), list(of.values())) for name, of in (("a round", rows), ("its weights alone", reads))}
    lines(rounds, series, ("rows of the round", "ms"), "A round")
    rounds.set_ylim(bottom=0)

    names = list(data["parts_ms"])
    bottom = [0.0] * len(names)
    for part in data["parts_ms"][names[0]]:
        values = [data["parts_ms"][name].get(part, 0.0) for name in names]
        parts.bar([name.removeprefix("round_") for name in names], values, bottom=bottom, label=part)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    parts.grid(visible=False, axis="x")
    parts.margins(y=0.35)
    parts.set_xlabel("rows of the round")
    parts.set_ylabel("ms, timed part by part")
    parts.set_title("What it is made of")
    parts.legend(fontsize=8, ncols=4, loc="upper left", handlelength=1.0, columnspacing=0.9)

    lengths = [int(tokens) for tokens in data["prefill_ms"]]
    lines(prefill, {"prefill": (lengths, list(data["prefill_ms"].values()))}, ("prompt, tokens", "ms"), "Prefill")
    prefill.set_ylim(bottom=0)


# ── bench completions ────────────────────────────────────────────────────────────────────────────────────────


def completions(figure: Figure, data: Mapping[str, Any]) -> None:
    """Milliseconds per token by way and length; tokens a round beside τ; acceptance by depth."""
    lengths = list(data["lengths"].values())
    names = list(lengths[-1]["ways"])
    time, rounds, depth = figure.subplots(1, 3, width_ratios=(1.35, 1, 1))
    height = 0.8 / len(lengths)
    for number, of_length in enumerate(lengths):
        values = [of_length["ways"][name]["ms_per_token"] for name in names]
        places = [row + (number - (len(lengths) - 1) / 2) * height for row in range(len(names))]
        time.barh(places, values, height=height * 0.92, label=f"{of_length['max_tokens']} tokens out")
        for place, value in zip(places, values, strict=True):
            time.text(value, place, f" {value:.0f}", va="center", fontsize=8)
    time.set_yticks(range(len(names)), names)
    time.invert_yaxis()
    time.grid(visible=False, axis="y")
    time.margins(x=0.1, y=0.02)
    time.set_xlabel("decoding, ms per token")
    time.set_title("Time")
    time.legend(**BESIDE_TITLE)

    longest = lengths[-1]["ways"]
    guessing = [name for name in names if longest[name]["judged"]]
    rows = range(len(guessing))
    measured = [longest[name]["tokens_per_guessing_round"] for name in guessing]
    predicted = [longest[name]["tau_per_guessing_round"] for name in guessing]
    rounds.barh(rows, measured, height=0.6, label="measured")
    rounds.plot(predicted, rows, "D", color=COLOURS[4], label="τ(α, γ)")
    rounds.set_yticks(rows, guessing)
    rounds.invert_yaxis()
    rounds.grid(visible=False, axis="y")
    rounds.margins(x=0.12)
    rounds.set_xlabel("tokens per round with guesses")
    rounds.set_title("Yield")
    rounds.legend(**BESIDE_TITLE)

    for name in guessing:
        pairs = [
            (deep + 1, accepted / tried)
            for deep, (tried, accepted) in enumerate(longest[name]["by_depth"])
            if tried >= 5
        ]
        if len(pairs) > 1:
            depth.plot([deep for deep, _ in pairs], [share for _, share in pairs], marker="o", label=name)
    depth.set_ylim(0, 1.03)
    depth.xaxis.get_major_locator().set_params(integer=True)
    depth.set_xlabel("place of the guess in its round")
    depth.set_ylabel("share accepted, of those looked at")
    depth.set_title("Acceptance by depth")
    if depth.lines:
        depth.legend(fontsize=8)


# ── bench scale ──────────────────────────────────────────────────────────────────────────────────────────────


def scale(figure: Figure, data: Mapping[str, Any]) -> None:
    """First token by prompt length; whole decoding by output length."""
    prompt, output = figure.subplots(1, 2)
    rows = data["prompt"]
    x = [row["prompt_tokens"] for row in rows]
    series = {
        "first token, nothing cached": (x, [row["cold_first_ms"] for row in rows]),
        "first token, one more character": (x, [row["warm_first_ms"] for row in rows]),
        "a plain step": (x, [row["step_ms"] for row in rows]),
    }
    lines(prompt, series, ("prompt, tokens", "ms"), "Prompt length", logarithmic=True)
    rows = data["output"]
    x = [row["tokens"] for row in rows]
    series = {"plain": (x, [row["plain_ms"] for row in rows]), "policy": (x, [row["speculative_ms"] for row in rows])}
    lines(output, series, ("output, tokens", "decoding, ms"), "Output length")


def document(figure: Figure, data: Mapping[str, Any]) -> None:
    """The language server by lines of the document, and its memory."""
    time, memory = figure.subplots(1, 2, width_ratios=(1.6, 1))
    rows = data["document"]
    x = [row["lines"] for row in rows]
    series = {
        "key to answer, p95": (x, [row["answer_p95_ms"] for row in rows]),
        "key to answer, p50": (x, [row["answer_p50_ms"] for row in rows]),
        "parse after a key": (x, [max(row["next_parse_ms"], 0.05) for row in rows]),
        "context after a key": (x, [max(row["next_context_ms"], 0.05) for row in rows]),
    }
    lines(time, series, ("document, lines", "ms"), "Editor wing, model-free pair", logarithmic=True)
    memory.bar([in_thousands(value) for value in x], [row["server_mib"] for row in rows], width=0.6)
    memory.grid(visible=False, axis="x")
    memory.set_xlabel("document, lines")
    memory.set_ylabel("language server, resident MiB")
    memory.set_title("Memory")


# ── bench peers ──────────────────────────────────────────────────────────────────────────────────────────────

PEER_METRICS = (
    ("cold", "total_ms", "Whole completion, cold"),
    ("warm", "total_ms", "Whole completion, warm"),
    ("cold", "first_ms", "First token, cold"),
    ("cold", "decode_ms", "All tokens after the first, cold"),
)


def peers(figure: Figure, data: Mapping[str, Any]) -> None:
    """p50 of every peer in every mode, whiskers to p95; ours in another colour."""
    panels = figure.subplots(2, 2)
    for axes, (kind, metric, title) in zip(panels.flat, PEER_METRICS, strict=True):
        bars = [
            Bar(
                label=name,
                value=way[kind][metric]["p50"],
                whisker=way[kind][metric]["p95"],
                ours=way["peer"] == "speclsp",
            )
            for name, way in data["ways"].items()
        ]
        ranked(axes, bars, "ms, p50, whisker to p95", title)


# ── bench keystrokes ─────────────────────────────────────────────────────────────────────────────────────────


def keystrokes(figure: Figure, data: Mapping[str, Any]) -> None:
    """Time of a suggestion by language, and the share of pauses that end with one."""
    time, pauses = figure.subplots(1, 2, width_ratios=(1.5, 1))
    of = {"all": data, **data["languages"]}
    for row, (name, figures) in enumerate(of.items()):
        spread = figures["suggestion"]
        if spread["p50_ms"] is None:
            time.text(0, row, " no suggestion", va="center", fontsize=9)
            continue
        time.barh(row, spread["p50_ms"], height=0.65, color=OURS if name == "all" else COLOURS[0])
        worst = spread["p95_ms"] or spread["p50_ms"]
        time.plot([spread["p50_ms"], worst], [row, row], color=time.xaxis.label.get_color(), linewidth=1)
        time.text(worst, row, f" {spread['p50_ms']:.0f}, p95 {worst:.0f}", va="center", fontsize=9)
    time.set_yticks(range(len(of)), list(of))
    time.invert_yaxis()
    time.grid(visible=False, axis="y")
    time.margins(x=0.22)
    time.set_xlabel("key to suggestion on screen, ms, p50, whisker to p95")
    time.set_title("Suggestions")

    lengths = data["pauses_by_ms"]
    places = range(len(lengths))
    for number, (key, label) in enumerate((("with_suggestion", "a fresh suggestion"), ("answered", "an answer"))):
        shares = [(spread[key] or 0.0) * 100 for spread in lengths.values()]
        at = [place + (number - 0.5) * 0.38 for place in places]
        pauses.bar(at, shares, width=0.36, label=label)
        for place, share in zip(at, shares, strict=True):
            pauses.text(place, share + 1, f"{share:.0f}", ha="center", fontsize=9)
    names = [f"{name.replace('-inf', ' and more')}\n({spread['count']})" for name, spread in lengths.items()]
    pauses.set_xticks(places, names)
    pauses.grid(visible=False, axis="x")
    pauses.set_ylim(0, 112)
    pauses.set_xlabel("pause, ms (how many)")
    pauses.set_ylabel("share of pauses that end with it, %")
    pauses.set_title("Pauses")
    pauses.legend(**BESIDE_TITLE)


# ── benchmarks/speed/gpu/gpu.py ──────────────────────────────────────────────────────────────────────────────


def gpu(figure: Figure, figures: Mapping[str, Any], model: str) -> None:
    """A pass by rows, a whole round by γ, and 32 tokens beside transformers."""
    passes, whole, tokens = figure.subplots(1, 3, width_ratios=(1, 1, 1.3))
    by_model = {
        name: ([int(rows) for rows in of["rows"]], [row["ms"] for row in of["rows"].values()])
        for name, of in figures.get("passes", {}).items()
        if "rows" in of
    }
    lines(passes, by_model, ("tokens", "ms"), "A pass")
    rounds = figures["rounds"][model]
    gammas = {"round": ([int(key) for key in rounds["by_gamma"]], [row["ms"] for row in rounds["by_gamma"].values()])}
    lines(whole, gammas, ("γ, guesses of the draft", "ms"), "A whole round")
    for axes in (passes, whole):
        axes.set_ylim(bottom=0)
    completion, others = rounds["completion"], figures.get("transformers", {}).get(model.partition(",")[0], {})
    measured = {
        "speclsp plain": completion["plain_ms"],
        "speclsp, α 0.7 modelled": completion["modelled"]["ms"],
        "speclsp, replayed": completion.get("replayed", {}).get("ms"),
        "transformers": others.get("plain_ms"),
        "transformers, static cache": others.get("static_ms"),
        "transformers, compiled": others.get("compiled_ms"),
        "transformers, assisted, replayed": others.get("assisted_replayed", {}).get("ms"),
    }
    bars = [
        Bar(label=name, value=ms, ours=name.startswith("speclsp")) for name, ms in measured.items() if ms is not None
    ]
    ranked(tokens, bars, "ms", "32 tokens, prompt cached")
