"""No network traffic with an installed model: the main commands run where creating an IP socket kills the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from promises import Measured
from support.lsp.editor_client import Editor, Page
from support.lsp.lsp_client import ROOT

SEALED = [sys.executable, str(ROOT / "tests/support/faults/no_network.py")]
SOURCE = "def total(values):\n    result = 0\n    for value in values:\n        result += value\n    return \n"
CURSOR = len(SOURCE) - 1


def sealed(*words: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SEALED, *words], capture_output=True, text=True, timeout=timeout_s, cwd=ROOT)


@pytest.mark.promise(26, 27)
@pytest.mark.timeout(900)
def test_the_command_line_works_without_a_network(promise: Measured, soak: bool, tmp_path: Path):
    file = tmp_path / "total.py"
    file.write_text(SOURCE)
    place = f"{file}:5:12"
    commands = [
        ["complete", place, "--model", "tiny"],  # starts the shared engine
        ["models", "list"],
        ["models", "verify", "tiny"],
        ["doctor", "--model", "tiny"],
        ["stats"],
        ["engine", "status"],
    ]
    if soak:
        commands += [["complete", place, "--model", "tiny", "--json"], ["demo", "--model", "tiny"]]
    for words in commands:
        done = sealed(sys.executable, "-m", "speclsp", *words)
        assert done.returncode >= 0, f"{words}: killed by signal {-done.returncode}, which is how a socket ends"
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, (words, done.stdout, done.stderr)
    namespace = "in a network namespace without a network" if "no network" in done.stderr else "without a namespace"
    promise.measured(f"{len(commands)} commands {namespace}, where an IP socket is death: all work", holds=True)


@pytest.mark.promise(26, 27)
def test_an_editor_is_served_without_a_network(promise: Measured, soak: bool):
    command = [*SEALED, sys.executable, "-m", "speclsp"]
    with Editor(model="tiny" if soak else "echo", command=command) as editor:
        editor.begin()
        page, cursor, answered = Page(editor, SOURCE), CURSOR, 0
        for letter in "result * 2":
            cursor = page.type(cursor, letter)
            answered += len(editor.items(page.ask(cursor))) <= 1
        (engine,) = editor.engines()
        families = {connection.type.name for connection in engine.net_connections("inet")}
        assert families == set()
        assert editor.process.poll() is None and editor.popups() == []
    promise.measured(f"{answered} completions while typing: all answered", holds=answered == 10)


@pytest.mark.promise(26)
def test_offline_a_missing_model_is_one_sentence_without_a_connection_attempt(promise: Measured):
    """`engine.offline`: an attempt would kill the process."""
    done = sealed(
        *[sys.executable, "-m", "speclsp", "complete", f"{ROOT / 'tests/promises.py'}:1:1"],
        *["--model", "qwen2.5-coder-0.5b-instruct", "--set", "engine.offline=true"],
    )
    message = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "offline is set" in message, done.stderr
    promise.measured("engine.offline with no weights: a sentence, no attempt", holds=True)
