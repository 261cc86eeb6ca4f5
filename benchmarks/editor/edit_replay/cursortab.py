"""The public scenarios of cursortab.nvim (MIT): our edit beside the recorded answers of its providers.

    history made in the text before it ─► the producer's first edit ─► deltaChrF against the expected text
    scenarios without an expected text ─► quiet where nothing is proposed

Scored as cursortab's own evaluation does: score = deltaChrF x the harmonic mean of shown and quiet. Figures of other
providers are its baseline.json. `first answer` is read here from the recordings of those whose format is known. The
scenarios are no part of this repository. Writes benchmarks/results/next-edit-cursortab.json.
"""

from __future__ import annotations

import base64
import json
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.editor.edit_replay.edit_scores import delta_chrf
from benchmarks.editor.edit_replay.replayed_file import EditProducer, ReplayedFile, replace
from speclsp.errors import InputError
from speclsp.lsp.next_edit.producer import PRODUCER

EVALUATION = Path("server/eval")
SECTION = re.compile(r"(?m)^-- (\S+) --\n")
ENTRY = re.compile(r"<\|old\|>\n(.*?)<\|new\|>\n(.*?)(?=<\|file\|>|<\|old\|>|\Z)", re.DOTALL)
SWEEP_WINDOW = re.compile(r"<\|file_sep\|>updated/[^\n]*:(\d+):(\d+)\n")
ZETA_WINDOW = re.compile(r"<<<<<<< CURRENT\n(.*)\n=======\n", re.DOTALL)
NO_EDITS, ZETA_CURSOR = "NO_EDITS", "<|user_cursor|>"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. `expected` is empty where nothing should be suggested. Lines count from 1, columns from 0."""

    name: str
    file: str
    language: str
    cursors: tuple[tuple[int, int], ...]
    lines: tuple[str, ...]
    history: tuple[tuple[str, str], ...]
    expected: tuple[str, ...]
    recordings: Path


def scenarios(directory: Path) -> list[Scenario]:
    """All scenarios of a checkout. Raises InputError where there is none."""
    found = [parsed(path) for path in sorted((directory / EVALUATION / "scenarios").glob("*.txtar"))]
    if not found:
        raise InputError(f"{directory} has no {EVALUATION}/scenarios: name a checkout of cursortab.nvim.")
    return found


def parsed(path: Path) -> Scenario:
    """One .txtar file."""
    head, *rest = SECTION.split(path.read_text(encoding="utf-8"))
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    fields = dict(re.findall(r"(?m)^([\w-]+): *(.*)$", head))
    more = re.findall(r"(\d+):(\d+)", fields.get("cursor-positions", ""))
    return Scenario(
        name=fields["id"],
        file=fields["file"],
        language=fields["language"],
        cursors=tuple((int(row), int(column)) for row, column in [(fields["row"], fields["col"]), *more]),
        lines=tuple(sections["buffer.txt"].removesuffix("\n").split("\n")),
        history=tuple((old.removesuffix("\n"), new.removesuffix("\n")) for old, new in entries(sections)),
        expected=tuple(sections["expected"].removesuffix("\n").split("\n")) if "expected" in sections else (),
        recordings=path.with_suffix(""),
    )


def entries(sections: Mapping[str, str]) -> list[tuple[str, str]]:
    """The (old, new) texts of the history, the oldest first."""
    return ENTRY.findall(sections.get("history", ""))


# ── our answer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def answer(scenario: Scenario, cursor: tuple[int, int], producer: EditProducer) -> tuple[list[str], float]:
    """The lines after the producer's edit, and its processor time. The lines as they are, where it has none."""
    file, text = replayed(scenario, producer)
    row, column = min(cursor[0], len(scenario.lines)), cursor[1]
    ms: list[float] = []
    proposal = file.propose(file.offset(row - 1, column), ms)
    after = text if proposal is None else "\n".join(file.with_edit(proposal))
    return after.removesuffix("\n").split("\n"), ms[0]


def replayed(scenario: Scenario, producer: EditProducer) -> tuple[ReplayedFile, str]:
    """The file with the scenario's history made in it, and its text. An entry that the text lacks is made elsewhere."""
    text = "\n".join((*scenario.lines, ""))
    steps: list[tuple[int | None, list[str], list[str]]] = []
    for old, new in reversed(scenario.history):
        at = text.find(new + "\n") if new else -1
        if at >= 0:
            text = text[:at] + (old + "\n" if old else "") + text[at + len(new) + 1 :]
        first = text.count("\n", 0, at) if at >= 0 else None
        steps.insert(0, (first, old.split("\n") if old else [], new.split("\n") if new else []))
    file = ReplayedFile(scenario.file, text, scenario.language, producer)
    for first, removed, added in steps:
        if first is None:
            file.edit_elsewhere(removed, added)
        else:
            replace(file.document, first, first + len(removed), added)
    return file, file.document.text


# ── recorded answers ──────────────────────────────────────────────────────────────────────────────────────────────────


def recorded(scenario: Scenario, provider: str) -> list[str] | None:
    """The lines after a provider's first answer; None without a recording, or in a format that is not read here."""
    path = scenario.recordings / f"{provider}.ndjson"
    if not path.exists():
        return None
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    bodies = {event["kind"]: event for event in reversed(events) if event["kind"] in ("request", "response")}
    if "response" not in bodies:
        return list(scenario.lines)
    reply = json.loads(base64.b64decode(bodies["response"]["body_b64"]) or b"[]")
    if provider == "copilot":
        return after_lsp_edit(scenario.lines, reply[0]) if reply else list(scenario.lines)
    prompt = json.loads(base64.b64decode(bodies["request"]["body_b64"]))["prompt"]
    text = reply["choices"][0]["text"] if reply.get("choices") else ""
    return (
        after_sweep(scenario.lines, prompt, text) if "sweep" in provider else after_zeta(scenario.lines, prompt, text)
    )


def after_lsp_edit(lines: Sequence[str], edit: Mapping[str, Any]) -> list[str]:
    """The lines after one edit of Copilot's. Its columns are taken as characters."""
    start, end = edit["range"]["start"], edit["range"]["end"]
    padded = [*lines, ""]
    head, tail = padded[start["line"]][: start["character"]], padded[end["line"]][end["character"] :]
    return [*lines[: start["line"]], *(head + edit["text"] + tail).split("\n"), *lines[end["line"] + 1 :]]


def after_sweep(lines: Sequence[str], prompt: str, text: str) -> list[str]:
    """The lines after an answer to Sweep's prompt, whose last header names the window; a prefill follows it."""
    window = list(SWEEP_WINDOW.finditer(prompt))[-1]
    new = (prompt[window.end() :] + text).removesuffix("\n").split("\n")
    return [*lines[: int(window[1]) - 1], *new, *lines[int(window[2]) :]]


def after_zeta(lines: Sequence[str], prompt: str, text: str) -> list[str]:
    """The lines after an answer to Zeta-2's prompt."""
    window = ZETA_WINDOW.search(prompt)
    if window is None or text.strip() in ("", NO_EDITS):
        return list(lines)
    old = window[1].replace(ZETA_CURSOR, "")
    return "\n".join(lines).replace(old, text.removesuffix("\n"), 1).split("\n")


FIRST_ANSWERS = ("copilot", "sweep-next-edit-0.5B", "sweep-next-edit-1.5B", "sweep-next-edit-7B", "zeta-2")

# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def ours(listed: Sequence[Scenario], new_producer: Callable[[], EditProducer]) -> dict[str, Any]:
    """The figures of our producer."""
    chrf, shown, exact, quiet, ms = list[float](), list[bool](), 0, list[bool](), list[float]()
    for scenario in listed:
        for cursor in scenario.cursors:
            after, spent_ms = answer(scenario, cursor, new_producer())
            ms.append(spent_ms)
            changed = after != list(scenario.lines)
            if scenario.expected:
                chrf.append(delta_chrf(scenario.lines, after, scenario.expected))
                shown.append(changed)
                exact += after == list(scenario.expected)
            else:
                quiet.append(not changed)
    show_rate, quiet_rate, mean = statistics.fmean(shown), statistics.fmean(quiet), statistics.fmean(chrf)
    gate = 2 * show_rate * quiet_rate / (show_rate + quiet_rate) if show_rate + quiet_rate else 0.0
    return {
        "score": round(mean * gate / 100, 3),
        "delta_chrf": round(mean, 1),
        "show_rate": round(show_rate, 2),
        "quiet_rate": round(quiet_rate, 2),
        "first_answer": [round(mean, 1), exact],
        "ms": round(statistics.median(ms), 2),
    }


def theirs(directory: Path, listed: Sequence[Scenario]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The published figures of each provider, and its first answers where they can be read."""
    baseline = json.loads((directory / EVALUATION / "baseline.json").read_text(encoding="utf-8"))
    for provider, figures in baseline.items():
        yield (
            provider,
            {
                "score": round(figures["score"], 3),
                "delta_chrf": round(figures["deltaChrF"], 1),
                "show_rate": round(figures["showRate"], 2),
                "quiet_rate": round(figures["quietRate"], 2),
                "first_answer": first_answers(listed, provider) if provider in FIRST_ANSWERS else None,
            },
        )


def first_answers(listed: Sequence[Scenario], provider: str) -> list[float] | None:
    """[mean deltaChrF, exact answers] of the recorded first answers."""
    pairs = [(scenario, recorded(scenario, provider)) for scenario in listed if scenario.expected]
    scores = [delta_chrf(one.lines, after, one.expected) for one, after in pairs if after is not None]
    exact = sum(after == list(scenario.expected) for scenario, after in pairs)
    return [round(statistics.fmean(scores), 1), exact] if scores else None


def run(directory: Path, name: str, new_producer: Callable[[], EditProducer]) -> int:
    """Replay, print the table, write the summary. Exit code 0."""
    listed = scenarios(directory)
    command = ["git", "-C", str(directory), "rev-parse", "HEAD"]
    revision = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    rows = {f"speclsp {name}": ours(listed, new_producer), **dict(theirs(directory, listed))}
    print(table(rows))
    figures = {
        "revision": revision,
        "quality_scenarios": sum(bool(scenario.expected) for scenario in listed),
        "quiet_states": sum(len(scenario.cursors) for scenario in listed if not scenario.expected),
        "providers": rows,
    }
    suffix = "" if name == PRODUCER else f"-{name}"
    print(f"wrote {results_file.write('next-edit-cursortab', figures, f'next-edit-cursortab{suffix}')}")
    return 0


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures as a Markdown table, the best score first."""
    lines = ["| | score | deltaChrF | shown | quiet | first answer: deltaChrF, exact |", "|---|---|---|---|---|---|"]
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["score"]):
        first = ", ".join(map(str, row["first_answer"])) if row["first_answer"] else "-"
        shown, quiet = (f"{100 * row[key]:.0f} %" for key in ("show_rate", "quiet_rate"))
        lines.append(f"| {name} | {row['score']:.2f} | {row['delta_chrf']} | {shown} | {quiet} | {first} |")
    return "\n".join(lines)
