"""Every command with a closed, full or narrow standard stream: a documented exit code and no traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import command_streams
from support.cli.command_streams import CONDITIONS, commands_of

from speclsp.cli.arguments.command_tree import parser
from speclsp.cli.terminal import streams

ECHO = ("--model", "echo")
WORDS = {  # {command: the words of a run that is short and needs no network}
    "setup": (*ECHO, "--yes"),
    "doctor": ECHO,
    "demo": (*ECHO, "--repeats", "1"),
    "models list": (),
    "models pull": ("tiny",),
    "models verify": ("tiny",),
    "models remove": ("qwen2.5-coder-0.5b", "--yes"),
    "config list": (),
    "config get": ("model",),
    "config set": ("completion.eagerness", "low"),
    "config unset": ("completion.eagerness",),
    "config path": (),
    "complete": ("FILE:2:6", *ECHO),
    "stats": (),
    "lsp": ECHO,
    "engine": ("status",),
    "key set": ("http://127.0.0.1:9",),
    "key forget": ("http://127.0.0.1:9",),
}
EXTRA = (  # further forms of these commands
    ("--help",),
    ("--version",),
    ("complete", "--help"),
    ("no-such-command",),
    ("config", "list", "--advanced", "--json"),
    ("complete", "FILE:2:6", *ECHO),
    ("engine", "stop"),
)
LONG = ("setup", "doctor", "demo")  # seconds each: in `make test` with a full stdout only
ALWAYS = [["config", "list"], ["--help"]]
DOCUMENTED = {0, 1, 2}  # of docs/cli.md; 70 is a bug, 120 the interpreter's own


def leaves() -> Iterator[str]:
    """The names of all commands and actions."""
    for name, command in commands_of(parser()).items():
        yield from [f"{name} {action}" for action in commands_of(command)] or [name]


def test_every_command_is_in_the_table():
    assert set(leaves()) == set(WORDS)


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS)
def test_no_stream_ends_a_command_with_a_traceback_or_as_a_bug(condition: str, tmp_path: Path, soak: bool):
    file = tmp_path / "wide.txt"
    file.write_text("# 日本語 –\nx = \n", encoding="utf-8")
    commands = [[*name.split(), *words] for name, words in WORDS.items()] + [list(words) for words in EXTRA]
    if not (soak or condition == "stdout full"):  # each command meets one of the other conditions
        short = [words for words in commands if words[0] not in LONG and words not in ALWAYS]
        others = [name for name in CONDITIONS if name != "stdout full"]
        commands = ALWAYS + short[others.index(condition) :: len(others)]
    commands = [[word.replace("FILE", str(file)) for word in words] for words in commands]
    program = [sys.executable, command_streams.__file__, str(tmp_path), condition]
    subprocess.run(program, input=json.dumps(commands), text=True, timeout=600, check=True, cwd=tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    for words, (code, out, err) in zip(commands, results, strict=True):
        assert code in DOCUMENTED, (words, code, out, err)
        assert not any(text in err for text in ("Traceback", "Exception ignored", "bug in speclsp")), (words, err)
        if condition == "stdout full" and code != 1 and words[0] not in ("lsp", "no-such-command"):
            assert code == 2 and err, (words, "its output is lost, and it does not say so")
            assert err.count("\n") == 1 or err.splitlines()[-1] == FULL, (words, err)
    codes = dict(zip(map(tuple, commands), (code for code, _, _ in results), strict=True))
    if condition == "stdout full":
        assert results[commands.index(["config", "list"])][2] == FULL + "\n"
    assert codes["config", "list"] == codes["--help",] == (2 if CONDITIONS[condition][1] == "/dev/full" else 0)


FULL = "speclsp: stdout cannot be written: the disk is full. Free some space, or use a directory on a larger disk."


def test_a_stdin_that_was_read_already_is_kept(monkeypatch: pytest.MonkeyPatch):
    stream = io.TextIOWrapper(io.BytesIO(b"first\nsecond\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stream)
    assert next(stream) == "first\n"
    streams.prepare_streams()
    assert sys.stdin is stream and stream.readline() == "second\n"
