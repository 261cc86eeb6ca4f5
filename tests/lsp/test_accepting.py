"""Acceptance over the wire: the command of an item that was accepted, and the figures of `speclsp stats`."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from typing import Any

import pytest
from support.lsp.editor_client import Editor, Page
from support.lsp.scripted_session import until
from windows.harness.program import program

from speclsp import config
from speclsp.lsp.server import usage_stats
from speclsp.observability import usage_db

SOURCE = "def f():\n    # 🚀\n    return \n    return 1\n"
CURSOR = SOURCE.index("return \n") + len("return ")
ECHO_CHARACTERS = 19


def stats() -> dict[str, int]:
    """The numbers of the only row of `speclsp stats`."""
    completed = subprocess.run(program("stats", "--json"), capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    (row,) = json.loads(completed.stdout)["rows"]
    assert row["model"] == "echo" and row["week"]
    return {name: row[name] for name in ("shown", "accepted", "partly", "characters")}


def execute(editor: Editor, command: dict[str, Any], *more: object) -> None:
    """Run an item's command, as editors do after acceptance."""
    params = {"command": command["command"], "arguments": [*command["arguments"], *more]}
    assert editor.call("workspace/executeCommand", params) is None


def test_reported_acceptances_are_counted_and_typing_through_shows_nothing_new():
    with Editor() as editor:
        page = Page(editor.begin(), SOURCE)
        (item,) = editor.items(page.ask(CURSOR))
        cursor = page.type(CURSOR, item["insertText"][:3])
        execute(editor, item["command"], 3)
        (rest,) = editor.items(page.ask(cursor))
        execute(editor, rest["command"])
        for wrong in ((), ("x",), (True,), (-1,), (10**9,), (1, 2, 3), ({},)):
            command = {"command": item["command"]["command"], "arguments": list(wrong)}
            assert editor.call("workspace/executeCommand", command) is None
    assert stats() == {"shown": 1, "accepted": 1, "partly": 1, "characters": ECHO_CHARACTERS}


def test_an_editor_without_commands_has_shown_suggestions_and_unknown_acceptance():
    with Editor() as editor:
        page = Page(editor.begin(), SOURCE)
        cursor = page.type(CURSOR, editor.text(page.ask(CURSOR)))
        assert editor.items(page.ask(cursor))
    assert stats() == {"shown": 2, "accepted": 0, "partly": 0, "characters": 0}


def test_the_stats_file_is_private_and_holds_no_text_no_path_and_no_time():
    with Editor() as editor:
        page = Page(editor.begin(), SOURCE)
        assert editor.items(page.ask(CURSOR))
    path = config.stats_path()
    assert path.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(path) as database:
        ((week, model, *numbers),) = database.execute("SELECT * FROM outcomes").fetchall()
    database.close()
    assert len(week) == len("2026-W48") and model == "echo" and numbers == [1, 0, 0, 0]


def test_nothing_is_counted_when_stats_are_disabled():
    with Editor("--set", "stats.enabled=false") as editor:
        page = Page(editor.begin(), SOURCE)
        (item,) = editor.items(page.ask(CURSOR))
        execute(editor, item["command"])
    assert not config.stats_path().exists()


def test_a_damaged_stats_file_costs_the_counts_and_one_line_in_the_log():
    path = config.stats_path()
    path.parent.mkdir(mode=0o700, parents=True)
    path.write_bytes(b"no database at all, and longer than one hundred bytes " * 10)
    with Editor() as editor:
        page = Page(editor.begin(), SOURCE)
        assert editor.items(page.ask(CURSOR)) and editor.items(page.ask(CURSOR - 1))
        assert editor.popups() == []
    assert (editor.logs / "lsp.log").read_text().count("speclsp stats --forget") == 1


async def test_counts_are_written_while_the_server_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage_stats, "WRITE_EVERY_S", 0.01)
    usage_stats.UsageStats(model=lambda: "echo", enabled=lambda: True).next_edit("shown")
    await until(lambda: usage_db.read(config.stats_path()))
