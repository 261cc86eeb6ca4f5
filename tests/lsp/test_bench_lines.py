"""`python -m benchmarks lines` against the real language server: its records match the server's own."""

from __future__ import annotations

from support.lsp.editor_client import echoed

from benchmarks.keystrokes.language_server import serving
from benchmarks.keystrokes.lines import lines
from benchmarks.keystrokes.lines.schedule import MID_LINE
from benchmarks.keystrokes.replay_editor import Editor, Key
from speclsp import config

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
