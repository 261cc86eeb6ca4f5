"""`python -m benchmarks keystrokes` against the real language server: its records match the server's own."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import pytest
from support.lsp.editor_client import echoed
from support.lsp.lsp_client import ROOT as CHECKOUT

from benchmarks import results_file
from benchmarks.keystrokes import keystrokes
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.figures import BROKEN, ROWS, Typed, by_request, side_by_side
from benchmarks.keystrokes.keystrokes import ROOT, uri_of
from benchmarks.keystrokes.language_server import serving
from benchmarks.keystrokes.lines import lines
from benchmarks.keystrokes.lines.schedule import AFTER_REST, LINE_START, MID_LINE, NEW_PLACE, keys_of
from benchmarks.keystrokes.recording import Recording
from benchmarks.keystrokes.replay_editor import replay
from benchmarks.keystrokes.typist import record
from speclsp import config
from speclsp.cli import terminal

SOURCE = 'def add(a, b):\n    """The sum."""\n\n    return a + b\n\n\ndef sub(a, b):\n    c = "π"\n    return a - b\n'


def hurried(made: Recording, keys: int) -> Recording:
    """The first keys of a recording, without its long pauses: a test need not wait."""
    return replace(made, keys=tuple(replace(key, wait_ms=min(key.wait_ms, 120)) for key in made.keys[:keys]))


def test_every_answer_counted_as_fresh_is_for_the_text_on_screen():
    recording = hurried(record(SOURCE, language="python", seed=3, minutes=1, path="sums.py"), keys=40)
    with serving(config.load({"model": "echo"})) as server:
        server.begin(ROOT)
        presses = replay(server, recording, uri_of(recording), 1e9)
        answers = dict(server.answers)
        assert server.stray == 0 and server.messages == []
    assert len(presses) == len(recording.keys) - 1
    text, fresh = recording.start, 0
    for key, press in zip(recording.keys, presses, strict=False):
        text = key.on(text)
        if press.fresh:
            fresh += 1
            (item,) = answers[press.number][1]["result"]["items"]
            assert item["insertText"] == echoed(text[: key.cursor], text[key.cursor :])
            assert press.fits
    assert fresh > 0


@pytest.mark.soak
def test_each_key_has_its_trace_and_the_engine_counts_its_requests():
    recording = hurried(Recording.read(CHECKOUT / "benchmarks/keystrokes/recordings/python-listing.jsonl"), keys=60)
    with serving(config.load({"model": "tiny"})) as server:
        server.begin(ROOT)
        before = server.metrics()
        presses = replay(server, recording, uri_of(recording), 1e9)
        counts = {name: value - before.get(name, 0.0) for name, value in server.metrics().items()}
        server.end()
        traces = server.traces()
    traced = by_request(presses, traces)
    assert set(traced) == {press.number for press in presses}
    for press in presses:
        if press.shown:
            assert traced[press.number]["outcome"] == "shown"
    figures = side_by_side([Typed("python", presses, counts)], traces)
    assert (figures["keys"], figures["unanswered"], figures["misfits"], figures["errors"]) == (len(presses), 0, 0, {})
    assert sum(figures["server"]["outcomes"].values()) == len(presses)
    assert not set(BROKEN) & set(figures["server"]["outcomes"])
    assert figures["engine"]["requests"] > 0
    tokens_per_round = figures["engine"]["tokens_per_round"]
    assert tokens_per_round is None or tokens_per_round >= 1, "None: every request was cancelled before its first round"
    assert figures["engine"]["cancelled"] == 0 or figures["engine"]["cancel_to_stop_p99_ms"] > 0


@pytest.mark.soak
def test_a_next_edit_is_requested_once_the_text_has_settled():
    recording = record(SOURCE, language="python", seed=3, minutes=1, path="sums.py")
    keys = tuple(replace(key, wait_ms=400 if at % 5 == 0 else 30) for at, key in enumerate(recording.keys[:30]))
    edit_requests: list[tuple[int, float]] = []
    with serving(config.load({"model": "echo"})) as server:
        server.begin(ROOT)
        presses = replay(server, replace(recording, keys=keys), uri_of(recording), 1e9, edit_requests)
        figures = keystrokes.edits_of([Typed("python", presses, {}, edit_requests)], server.answers)
    settled = [press for press in presses if press.next_ms > 390 and press.kind != "move"]
    assert 0 < len(edit_requests) == figures["requests"] == figures["ms"]["count"] <= len(settled)
    assert not any("error" in server.answers[number][1] for number, _ in edit_requests)


def test_the_command_prints_a_table_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(results_file, "RESULTS", tmp_path)
    parser = ArgumentParser()
    keystrokes.add_arguments(parser)
    assert keystrokes.main(parser.parse_args(["--model", "echo", "--minutes", "0.15"])) == 0
    output = capsys.readouterr().out
    report = json.loads((tmp_path / "keystrokes-echo.json").read_text())
    assert report["bench"] == "keystrokes" and report["pair"] == "echo" and report["machine"]
    assert list(report["languages"]) == ["c", "go", "lua", "python", "rust", "typescript"]
    assert sum(row["keys"] for row in report["languages"].values()) == report["keys"] > 0
    for label, *_ in ROWS:
        assert label in output
    assert "<= 300 ms" in output and "how requests ended: shown" in output


@pytest.mark.soak
def test_a_typed_line_has_its_trace_and_the_cause_of_its_prompt(tmp_path: Path):
    (tmp_path / "sums.py").write_text(SOURCE)
    header, rest = SOURCE[: SOURCE.index("\n")], "\n    c = a\n    return c"
    body = Body(
        id="sums",
        package="sums",
        root=str(tmp_path),
        path="new.py",
        language="python",
        group="python",
        above=header,
        text=rest,
        below="\n",
        open_paths=("sums.py",),
    )
    with terminal.progress() as bar:
        figures, rows = lines.measure(config.load({"model": "tiny"}), [body], bar)
    assert len(rows) == len(keys_of(body)) - 1 == figures["keys"]
    assert rows[0].kind == NEW_PLACE and {row.kind for row in rows[1:]} <= {MID_LINE, LINE_START, AFTER_REST}
    assert all(row.outcome for row in rows)
    assert all(row.cause for row in rows if row.prompt_tokens and not row.adopted)
    assert figures["processor_s_per_minute"] > 0
