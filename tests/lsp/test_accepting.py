"""Acceptance counts over the wire: real servers, the edits of VS Code and Neovim, and the figures of `speclsp stats`.

The unit tests of acceptance.py check the rules. These check the path from the bytes of an answer to the figures.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from windows.harness.program import program

from speclsp import config
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.documents.document import CursorContext
from speclsp.lsp.server.app import compose

SOURCE = "def f():\n    # 🚀\n    return \n    return 1\n"
AT = SOURCE.index("return \n") + len("return ")
ECHO_CHARACTERS = 19
READ_S = 0.2  # a suggestion counts as shown after 0.1 s


def stats(*words: str) -> dict[str, Any]:
    """The JSON output of `speclsp stats`."""
    completed = subprocess.run(program("stats", "--json", *words), capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


class Screen(Page):
    """A document in an editor that shows suggestions and accepts them in its own way."""

    def __init__(self, editor: Editor, way: str, language: str = "python") -> None:
        super().__init__(editor, SOURCE, "utf-8" if way == "nvim" else "utf-16", f"file:///project/{language}/app.py")
        if language != "python":
            editor.open(self.uri, SOURCE, language=language)
        self.way, self.cursor, self.ghost = way, AT, ""

    def show(self) -> None:
        """Request at the cursor, show the suggestion, and wait until it counts as shown."""
        (item,) = self.editor.items(self.ask(self.cursor))
        self.range = item["range"]
        self.start = next(offset for offset in self.stops() if self.place(offset) == self.range["start"])
        self.ghost = item["insertText"]
        time.sleep(READ_S)

    def accept(self) -> str:
        """Accept all of the suggestion. VS Code replaces the item's range; Neovim sends the lines that differ."""
        text = self.ghost
        if self.way == "nvim":
            self.differ(self.text[: self.start] + text + self.text[self.cursor :])
        else:
            self.edit(self.start, self.cursor, text)
        self.cursor = self.start + len(text)
        return text

    def take(self, characters: int) -> None:
        """Accept the next characters of the suggestion in one edit."""
        text = self.ghost[self.cursor - self.start :][:characters]
        self.put(text)

    def put(self, text: str) -> None:
        if self.way == "nvim":
            self.differ(self.text[: self.cursor] + text + self.text[self.cursor :])
            self.cursor += len(text)
        else:
            self.cursor = self.type(self.cursor, text)

    def remove(self, characters: int) -> None:
        """Undo: delete the characters before the cursor."""
        if self.way == "nvim":
            self.differ(self.text[: self.cursor - characters] + self.text[self.cursor :])
        else:
            self.edit(self.cursor - characters, self.cursor, "")
        self.cursor -= characters

    def differ(self, new: str) -> None:
        """Send Neovim's edit between two texts: all but the longest common head, then the longest common tail."""
        old, head, tail = self.text, 0, 0
        while head < min(len(old), len(new)) and old[head] == new[head]:
            head += 1
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        self.edit(head, len(old) - tail, new[head : len(new) - tail])


def capabilities(way: str) -> dict[str, Any]:
    encodings = ["utf-8", "utf-16", "utf-32"] if way == "nvim" else ["utf-16"]
    return {**CAPABILITIES, "general": {"positionEncodings": encodings}}


def accept_all(screen: Screen) -> None:
    screen.accept()


def take_a_word_and_go_on_otherwise(screen: Screen) -> None:
    screen.take(10)
    screen.show()
    screen.put("#")


def type_along_to_the_end(screen: Screen) -> None:
    for key in range(ECHO_CHARACTERS):
        screen.take(1)
        if key == 5:
            screen.show()


def type_against_it(screen: Screen) -> None:
    screen.put("x")


def accept_and_undo(screen: Screen) -> None:
    screen.remove(len(screen.accept()))


CASES: list[tuple[Callable[[Screen], None], str, int, int]] = [
    (accept_all, "accepted", 19, 0),
    (take_a_word_and_go_on_otherwise, "partly", 10, 0),
    (type_along_to_the_end, "typed", 0, 19),
    (type_against_it, "ignored", 0, 0),
    (accept_and_undo, "undone", 0, 0),
]


@pytest.mark.parametrize("way", ["vscode", "nvim"])
def test_the_stats_count_the_users_actions(way: str):
    with Editor() as editor:
        editor.begin(capabilities(way))
        for act, _, _, _ in CASES:  # one language per case: the stats keep the cases apart by language
            screen = Screen(editor, way, language=act.__name__)
            screen.show()
            act(screen)
            editor.notify("textDocument/didClose", {"textDocument": {"uri": screen.uri}})
    languages = stats()["languages"]
    for act, outcome, accepted, typed in CASES:
        counts, case = languages[act.__name__], f"{act.__name__} in {way}"
        ends = {name: counts[name] for name in ("accepted", "partly", "typed", "ignored", "undone") if counts[name]}
        assert ends.get(outcome) == 1, case
        assert counts["shown"] == sum(ends.values()), case
        assert (counts["accepted_characters"], counts["typed_characters"]) == (accepted, typed), case
        assert counts["requests"]["by_outcome"]["shown"] >= 1, case


def test_two_servers_at_once_count_into_the_same_weeks():
    with Editor() as vscode, Editor() as nvim:
        screens = [Screen(editor.begin(capabilities(way)), way) for editor, way in ((vscode, "vscode"), (nvim, "nvim"))]
        for _ in range(3):
            for screen in screens:
                screen.show()
                screen.accept()
                screen.put("\n")
    figures = stats()
    assert (figures["all"]["accepted"], figures["all"]["accepted_characters"]) == (6, 6 * ECHO_CHARACTERS)
    (week,) = figures["weeks"].values()
    assert week["languages"]["python"]["accepted"] == 6
    assert figures["pairs"]["echo"]["latency_ms"]["p50"] > 0


def test_counts_are_written_while_the_server_runs():
    with Editor() as editor:
        screen = Screen(editor.begin(), "vscode")
        screen.show()
        screen.accept()
        deadline = time.monotonic() + 30
        while not stats()["all"]["accepted"]:
            assert time.monotonic() < deadline, "nothing was written"
            time.sleep(0.2)


def test_the_stats_file_holds_no_text_no_path_and_no_time():
    with Editor() as editor:
        screen = Screen(editor.begin(), "vscode")
        screen.show()
        ghost = screen.accept()
    path = config.stats_path()
    assert path.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT * FROM counts").fetchall()
    words = {str(word) for row in rows for word in row[:4]}
    assert {row[1:3] for row in rows} == {("python", "echo")}
    assert not [word for word in words if ghost in word or "app.py" in word or "/" in word or "return" in word]


def test_nothing_is_counted_when_stats_are_disabled():
    with Editor("--set", "stats.enabled=false") as editor:
        screen = Screen(editor.begin(), "vscode")
        screen.show()
        screen.accept()
        editor.items(screen.ask(0))
    assert not config.stats_path().exists()


def test_a_damaged_stats_file_is_replaced_with_one_line_in_the_log():
    path = config.stats_path()
    path.parent.mkdir(mode=0o700, parents=True)
    path.write_bytes(b"no database at all, and longer than one hundred bytes " * 10)
    with Editor() as editor:
        screen = Screen(editor.begin(), "vscode")
        screen.show()
        screen.accept()
        assert editor.popups() == []
    assert stats()["all"]["accepted"] == 1
    log = (editor.logs / "lsp.log").read_text()
    assert log.count("was damaged") == 1
    assert path.with_name("stats.db.damaged").exists()


def test_a_bug_in_counting_costs_no_answer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    def fail(*_: object) -> None:
        raise ValueError("quotes the document: secret")

    app = compose(config.Config(), [])
    monkeypatch.setattr(logging.getLogger("speclsp"), "propagate", True)
    for name in ("_tally", "_acceptance"):
        monkeypatch.setattr(app.usage, name, None)
    monkeypatch.setattr("speclsp.lsp.server.usage_stats.to_sent_items", fail)
    document = app.server.documents.open("file:///a.py", "python", 1, SOURCE)
    snapshot = document.snapshot_at(document.offset({"line": 0, "character": 0}, "utf-16"))
    app.usage.answered(CursorContext(document, snapshot, 0, 0), [{}], "utf-16")
    app.usage.request_ended(Trace("", "python", 1, 0, 1, outcome="shown"))
    app.usage.closed("file:///a.py")
    app.usage.end()
    assert caplog.text.count("an event is not counted") == 4
    assert "secret" not in caplog.text
