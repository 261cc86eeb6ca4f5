"""`python -m benchmarks judge`: the same tasks for both models, paired differences, one sentence, one result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import judge, model_options
from benchmarks.__main__ import main
from benchmarks.judge import HIGHER, METRICS, REFERENCE, Measures
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.person import Keyboard
from benchmarks.keystrokes.economy.recording import Recording
from benchmarks.quality import quality
from benchmarks.quality.auto_closed import editor_pairs
from benchmarks.quality.auto_closed.places import Case
from benchmarks.quality.tasks.cross_file_names import SourceFile
from benchmarks.quality.tasks.packages import Archive, Package
from benchmarks.quality.tasks.tasks import Task
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.lsp.completion.confidence import lines, token_spans

TEXT = "const a = foo(bar(1));\n"
BODY = "\n    first(line)\n    second(line)"


# ── the judgement ────────────────────────────────────────────────────────────────────────────────────────────────

DECIDING = [(measure, key) for measure, metrics in METRICS.items() for key, metric in metrics.items() if metric.better]
COUNT = 40


def counts(best: bool | None = None) -> Measures:
    """Counts of each metric: all of the better value, all of the worse one, or (None) half and half."""
    rows: Measures = {}
    for measure, metrics in METRICS.items():
        rows[measure] = {}
        for key, metric in metrics.items():
            ones = [number % 2 for number in range(COUNT)] if best is None else [best == (metric.better == HIGHER)]
            rows[measure][key] = [float(one) for one in ones] * (COUNT // len(ones)), [1.0] * COUNT
    return rows


def judged(mine: Measures, reference: Measures) -> str:
    return judge.verdict("m", judge.compared(mine, reference))


def test_a_model_does_not_beat_itself():
    assert judged(counts(), counts()) == f"m does not beat {REFERENCE}: no difference is beyond chance."


def test_a_model_that_is_better_in_all_beats_the_reference_and_never_the_reverse():
    assert judged(counts(True), counts()).startswith(f"m beats {REFERENCE}: better in ")
    assert judged(counts(), counts(True)).startswith(f"m does not beat {REFERENCE}: worse in ")


@given(st.sampled_from(DECIDING))
def test_one_worse_metric_is_enough_to_lose(metric: tuple[str, str]):
    measure, key = metric
    mine = counts(True)
    mine[measure][key] = counts(False)[measure][key]
    sentence = judged(mine, counts())
    assert sentence.startswith("m does not beat ") and f"worse in {measure}: " in sentence


@given(st.sampled_from(DECIDING))
def test_where_none_is_worse_more_saved_keys_win_alone_and_no_other_metric_does(metric: tuple[str, str]):
    measure, key = metric
    mine = counts()
    mine[measure][key] = counts(True)[measure][key]
    assert judged(mine, counts()).startswith("m beats " if metric == judge.DECISIVE else "m does not beat ")


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────


def body(number: int) -> Body:
    return Body(
        id=f"b{number}", package=f"p{number}", root="/", path="a.py", language="python", group="python",
        above="def f():", text=BODY, below="\n", open_paths=(),
    )  # fmt: skip


def parts(folder: Path) -> judge.Parts:
    """One task, one place and two bodies."""
    folder.mkdir(exist_ok=True)
    (folder / "a.js").write_text(TEXT, encoding="utf-8")
    cursor = TEXT.index("bar")
    task = Task(
        id="0", package="p", root=folder, path="a.js", language="javascript", text=TEXT[:cursor] + "\n", cursor=cursor,
        truth="bar(1));", kind="argument", below="kept", crosses=(), seen=False, open_paths=(),
    )  # fmt: skip
    pairs = editor_pairs.pairs_of(TEXT, "javascript")
    assert pairs is not None
    place = editor_pairs.place_at(TEXT, pairs, cursor, with_mark=False, typed_around=False)
    assert place is not None
    archive = Archive(ecosystem="npm", name="p", version="1", file="p", bytes=1, sha256="")
    package = Package(
        archive=archive, released="2026-01-01", first_release="", licence="MIT", folders=(), cursors=(), skip=(),
        languages=("javascript",), before=None, root=folder, before_root=None,
    )  # fmt: skip
    return judge.Parts(
        quality=[task],
        places=[Case(package, SourceFile("a.js", "javascript", TEXT, frozenset()), place)],
        bodies=[body(0), body(1)],
        of={"quality": 671, "auto-closed": 240},
    )


def recording(of: Body) -> Recording:
    """Two right lines in turn with a wrong one, and with a right line before a wrong one."""
    rows = []
    for number, end in enumerate(Keyboard.of(of.text).ends):
        rest, logprob = of.text[end:], (-0.05, -3.0, -0.5)[number % 3]
        text = (rest, "§§§§", f"{rest.rpartition(chr(10))[0]}\n§§" if "\n" in rest.strip() else rest)[number % 3]
        text = text if rest.strip() else ""
        own = lines(text, token_spans([(1, logprob)] * len(text)))
        row = {"kind": "code", "line": "    ", "above": [], "opens": False, "typed": 0, "reason": "", "text": text}
        rows.append(row | {"lines": [[line.end, list(line.logprobs), line.end] for line in own]})
    return Recording(of, tuple(rows), 1.0)


@pytest.fixture(scope="module")
def tiny() -> CompletionEngine:
    return model_options.engine(Config(model="tiny", engine=EngineConfig(context_tokens=1024)))


@pytest.fixture
def command(tiny: CompletionEngine, tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command with small parts; the tiny model answers for both names. Returns its result file."""
    monkeypatch.setattr(model_options, "engine", lambda config: tiny)
    monkeypatch.setattr(quality, "quality_dir", lambda: tmp_path / "quality")
    monkeypatch.setattr(judge, "parts", lambda: parts(tmp_path / "p"))
    monkeypatch.setattr(judge, "record", lambda config, bodies, progress: [recording(one) for one in bodies])

    def run(*flags: str) -> dict[str, Any]:
        assert main(["judge", "tiny", *flags, "--results", str(results)]) == 0
        summary: dict[str, Any] = json.loads((results / "judge-tiny.json").read_text("utf-8"))
        return summary

    return run


@pytest.mark.slow
def test_the_command_prints_one_page_and_writes_one_file(command: Any, capsys: pytest.CaptureFixture[str]):
    summary = command("--set", "engine.threads=1")
    out = capsys.readouterr().out
    assert (summary["bench"], summary["pair"], summary["settings"]["engine.threads"]) == ("judge", "tiny", 1)
    for measure, metrics in METRICS.items():
        assert f"{measure}, {summary['sizes'][measure]}" in out
        for key, metric in metrics.items():
            assert metric.label in out
            assert set(summary["measures"][measure][key]) > {"model", "reference", "difference"}
    assert summary["sizes"]["quality"] == "1 of 671 tasks" and summary["sizes"]["economy"].startswith("2 bodies, ")
    assert '"tiny": Curve(' in out and summary["curve"]["bodies"] == 2
    assert out.rstrip().splitlines()[-2] == summary["verdict"], "the same answers from both"
    assert summary["verdict"].endswith("no difference is beyond chance.")


def test_the_reference_is_not_judged_beside_itself(capsys: pytest.CaptureFixture[str]):
    assert main(["judge", REFERENCE]) == 2
    assert "name another model" in capsys.readouterr().err
