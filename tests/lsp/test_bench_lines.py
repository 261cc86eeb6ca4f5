"""`python -m benchmarks lines` against the real language server: its records match the server's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lsp.editor_client import echoed

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.language_server import serving
from benchmarks.keystrokes.lines import lines
from benchmarks.keystrokes.lines.schedule import AFTER_REST, LINE_START, MID_LINE, NEW_PLACE, keys_of
from benchmarks.keystrokes.replay_editor import Editor, Key
from speclsp import config
from speclsp.cli import terminal

SOURCE = 'def add(a, b):\n    """The sum."""\n\n    return a + b\n\n\ndef sub(a, b):\n    c = "π"\n    return a - b\n'


def test_every_answer_counted_as_fresh_is_for_the_text_on_screen():
    keys = [Key(120, MID_LINE, at, at, character, at + 1) for at, character in enumerate(SOURCE[:40])]
    with serving(config.load({"model": "echo"})) as server:
        server.begin(lines.ROOT)
        presses = lines.type_keys(Editor(server, f"{lines.ROOT}/sums.py", "python", ""), keys)
        answers = dict(server.answers)
    fresh = [(at, press) for at, press in enumerate(presses, 1) if press.fresh]
    for at, press in fresh:
        (item,) = answers[press.number][1]["result"]["items"]
        assert item["insertText"] == echoed(SOURCE[:at], "")
        assert press.fits
    assert len(presses) == len(keys) - 1 and fresh


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
