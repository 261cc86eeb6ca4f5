"""Sections of the report, in the order of the page: plots and tables of each benchmark's results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from benchmarks.keystrokes.economy import figures as economy_figures
from benchmarks.quality.calibration import calibration
from benchmarks.report import infilling_table, plots, quality_section
from benchmarks.report.aims import CPU_KINDS, LARGE, SMALL, Figures, Results, newest_gpu
from benchmarks.report.page import Plot, Section

PAIRS = (SMALL, LARGE)


def sections(results: Results) -> Iterator[Section]:
    """Everything below the aims, in the order of the page."""
    yield peers(results)
    yield floor(results)
    yield completions(results)
    yield keystrokes(results)
    yield scale(results)
    yield quality_section.section(results, PAIRS)
    yield infilling_table.section(results)
    yield formats(results)
    yield confidence(results)
    yield gpu(results)


def peers(results: Results) -> Section:
    """Us and the others."""
    plots_made, tables = [], []
    for model, kind in itertools.product(PAIRS, CPU_KINDS):
        data = results.get(f"peers-{model}-{kind}")
        if data is None:
            continue
        prompts = data["prompt_tokens"]
        plots_made.append(
            Plot(
                name=f"peers-{model}-{kind}",
                title=f"{model}, {data['new_tokens']} tokens, {CPU_KINDS[kind]}",
                caption=f"{len(prompts)} places, {min(prompts)} to {max(prompts)} prompt tokens, the same token ids "
                f"for all, greedy, {data['threads']} threads, taking turns, each peer at the best settings its own "
                "sweep found. Cold: nothing cached. Warm: the same prompt and one token more. Whiskers reach to p95.",
                made_from=data,
                make=lambda figure, data=data: plots.peers(figure, data),  # type: ignore[misc]
                size=(11, 2.4 + 0.5 * len(data["ways"])),
            )
        )
        head = [
            f"{model}, {kind}",
            *(f"{state} {metric}" for state in ("cold", "warm") for metric in ("whole", "first", "rest")),
        ]
        rows = [[name, *peer_cells(way), settings_in_words(way["settings"])] for name, way in data["ways"].items()]
        tables.append([[*head, "settings"], *rows])
        if data["not_measured"]:
            tables.append([["not measured", "why"], *([name, why] for name, why in data["not_measured"].items())])
    about = "The same weights, prompts, lengths and threads in one run. Milliseconds: p50, and p95 in brackets."
    return Section(title="Beside other engines", about=about, plots=plots_made, tables=tables)


def peer_cells(way: Figures) -> list[str]:
    """The six times of a peer's mode."""
    cells = [way[kind][metric] for kind in ("cold", "warm") for metric in ("total_ms", "first_ms", "decode_ms")]
    return [f"{cell['p50']:.0f} ({cell['p95']:.0f})" for cell in cells]


def settings_in_words(settings: Figures) -> str:
    """ "num_assistant_tokens 5, max_ngram_size 3"."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def keystrokes(results: Results) -> Section:
    """Replayed typing: latency and share of pauses with a suggestion."""
    from benchmarks.keystrokes.figures import ROWS, cell

    plots_made, tables = [], []
    for model in PAIRS:
        data = results.get(f"keystrokes-{model}")
        if data is None:
            continue
        plots_made.append(
            Plot(
                name=f"keystrokes-{model}",
                title=model,
                caption=f"{data['keys']} keys in {data['recorded_minutes']:g} minutes of synthetic typing, in real "
                "time, against the real language server and engine; whatever the typing before a key left cached.",
                made_from=data,
                make=lambda figure, data=data: plots.keystrokes(figure, data),  # type: ignore[misc]
            )
        )
        columns = {"all": data, **data["languages"]}
        rows = [[label, *(cell(of, path, form) for of in columns.values())] for label, path, form, _ in ROWS]
        tables.append([[model, *columns], *rows])
    about = "Synthetic typing traces, with bursts, pauses, typos, pastes and jumps, replayed key by key in real time."
    return Section(title="At the keys", about=about, plots=plots_made, tables=tables)


def floor(results: Results) -> Section:
    """The CPU engine beside the time of its weight reads."""
    plots_made = [
        Plot(
            name=name,
            title=data["target"],
            caption=f"Rounds over a cache of {data['context_tokens']} tokens; the matrix products alone with the same "
            "kernels, timed in turn with them. Prefill: nothing cached.",
            made_from=data,
            make=lambda figure, data=data: plots.floor(figure, data),  # type: ignore[misc]
        )
        for name, data in sorted(results.items())
        if name.startswith("floor-")
    ]
    about = "A pass cannot be quicker than reading the weights once: a round beside its own weight reads, by rows."
    return Section(title="The CPU engine and its floor", about=about, plots=plots_made)


def completions(results: Results) -> Section:
    """Does speculation pay?"""
    plots_made, tables = [], []
    for model in PAIRS:
        data = results.get(f"completions-{model}")
        if data is None or "lengths" not in data:
            continue
        plots_made.append(
            Plot(
                name=f"completions-{model}",
                title=data["target"],
                caption=f"{data['holes']} places in the standard library, the prompt computed anew each time (nothing "
                f"cached), ways in turn. Draft model: {data['draft'] or 'none'}.",
                made_from=data,
                make=lambda figure, data=data: plots.completions(figure, data),  # type: ignore[misc]
                size=(11, 4.2),
            )
        )
        for of_length in data["lengths"].values():
            head = [f"{model}, {of_length['max_tokens']} tokens", "first token, ms", "total, ms", "p95", "accepted",
                    "rejected", "α", "tokens/round", "τ", "decoding", "total", "identical"]  # fmt: skip
            tables.append([head, *(completion_row(name, way) for name, way in of_length["ways"].items())])
    about = "The same prompts and lengths decoded plainly, with each drafter by itself and by the policy, in turn."
    return Section(title="Does speculation pay?", about=about, plots=plots_made, tables=tables)


def completion_row(name: str, way: Figures) -> list[str]:
    """A way of decoding as cells."""
    guessed = way["judged"] > 0
    return [
        name,
        f"{way['ttft_ms']['p50']:.0f}",
        f"{way['total_ms']['p50']:.0f}",
        f"{way['total_ms']['p95']:.0f}",
        str(way["accepted"]),
        str(way["rejected"]),
        f"{way['alpha']:.2f}" if guessed else "",
        f"{way['tokens_per_guessing_round']:.2f}" if guessed else f"{way['tokens_per_round']:.2f}",
        f"{way['tau_per_guessing_round']:.2f}" if guessed else "",
        f"{way['decode_speed_up']:.2f} x",
        f"{way['total_speed_up']:.2f} x",
        f"{way['identical_runs']} of {way['runs']}",
    ]


def scale(results: Results) -> Section:
    """Time and memory by length of prompt, output and document."""
    plots_made, memory = [], [["resident memory, MiB", "before loading", "loaded", "after the longest prompt"]]
    for model in PAIRS:
        data = results.get(f"scale-{model}")
        if data is None:
            continue
        plots_made.append(
            Plot(
                name=f"scale-{model}",
                title=data["target"],
                caption="Left: raw text of each length, nothing cached; then the same and one more character. Right: "
                "long completions of standard library code, the mean of a few.",
                made_from=data,
                make=lambda figure, data=data: plots.scale(figure, data),  # type: ignore[misc]
            )
        )
        sizes = data["memory_mib"]
        memory.append([model, *(f"{sizes[name]:.0f}" for name in ("before_loading", "loaded", "after"))])
    if (data := results.get("scale-editor")) is not None:
        plots_made.append(
            Plot(
                name="scale-editor",
                title="The editor's side, by length of the document",
                caption="Typing into the middle of a Python file; the real language server process with the model-free "
                "pair, so all of this time is ours and none the model's. Parse and context: by themselves, all of "
                "the file; in the server a parse is cut off at context.parse_budget_ms.",
                made_from=data,
                make=lambda figure, data=data: plots.document(figure, data),  # type: ignore[misc]
            )
        )
    about = "Milliseconds against the length of the prompt, the output and the document, and the memory they take."
    return Section(title="Scale", about=about, plots=plots_made, tables=[memory] if len(memory) > 1 else [])


def formats(results: Results) -> Section:
    """Agreement of int8 with bf16."""
    head = ["model", "tokens chosen alike, the same text before them", "first lines right, bf16", "int8",
            "first lines alike", "completions alike"]  # fmt: skip
    rows = []
    for model in PAIRS:
        data = results.get(f"quality-int8-{model}")
        if data is not None:
            rows.append(
                [
                    data["model"],
                    f"{data['agreement']:.1%} of {data['tokens_compared']}",
                    *(f"{data['exact_first_lines'][name]} of {data['tasks']}" for name in ("bf16", "int8")),
                    f"{data['identical_first_lines']} of {data['tasks']}",
                    f"{data['identical_completions']} of {data['tasks']}",
                ]
            )
    about = (
        "On a CPU the target runs in int8: a documented variant of the model. Speculation is lossless against it; "
        "this is how it differs from the bf16 weights."
    )
    return Section(title="The int8 target beside bf16", about=about, tables=[[head, *rows]] if rows else [])


def confidence(results: Results) -> Section:
    """Calibration of confidence, and the economy of showing."""
    economies = [
        Plot(
            name=f"economy-{model}",
            title=data["pair"],
            caption=f"{data['bodies']} functions of {data['packages']} packages are typed again, {data['keys']} keys. "
            "Left and up is better; each point is a threshold or a cost.",
            made_from=data,
            make=lambda figure, data=data: economy_figures.draw(figure, data),  # type: ignore[misc]
        )
        for model in PAIRS
        if (data := results.get(f"economy-{model}")) is not None
    ]
    curves = [
        Plot(
            name=f"calibration-{model}",
            title=data["pair"],
            caption=f"{data['candidates']} candidates in {data['bodies']} functions; each is judged by weights from "
            "packages that are not its own. Right: the first line is the author's to the letter.",
            made_from=data,
            make=lambda figure, data=data: calibration.draw(figure, data),  # type: ignore[misc]
        )
        for model in PAIRS
        if (data := results.get(f"calibration-{model}")) is not None
    ]
    about = "Confidence comes from the probabilities that decoding computes anyway: docs/confidence.md."
    return Section(title="When a suggestion is shown", about=about, plots=[*economies, *curves])


def gpu(results: Results) -> Section:
    """The engine on a GPU."""
    data = newest_gpu(results)
    figures = {name: part["figures"] for name, part in (data or {}).get("parts", {}).items()}
    plots_made = [
        Plot(
            name=f"gpu-{model.replace(', ', '-').replace(' ', '-')}",
            title=f"{rounds['draft']} → {rounds['target']}",
            caption="Real shapes, random weights: times are true, texts are not. What speculation saves "
            "is modelled (α 0.7), or replayed from the agreement of a real pair, recorded on a CPU. "
            f"{rounds['context_tokens']} tokens cached.",
            made_from=data,
            make=lambda figure, model=model: plots.gpu(figure, figures, model),  # type: ignore[misc]
        )
        for model, rounds in figures.get("rounds", {}).items()
        if data is not None and "completion" in rounds
    ]
    about = "One CUDA graph per round: draft steps, verification and acceptance without waiting on the host."
    return Section(title="On a GPU", about=about, plots=plots_made)
