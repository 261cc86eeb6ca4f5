"""Command line on Windows, as far as a parameter shows it on any system: streams, hints and PowerShell.

tests/windows/test_command_line.py runs the same commands under Wine.
"""

from __future__ import annotations

import argparse
import errno
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command_streams import commands_of

from speclsp.cli import entry
from speclsp.cli.arguments import shell_completion
from speclsp.cli.arguments.command_tree import parser
from speclsp.cli.complete import positions
from speclsp.cli.terminal import streams
from speclsp.errors import InputError, variable_words

# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("number", "system", "variables", "encoding"),
    [
        (0, "win32", {}, "utf-8-sig"),
        (1, "win32", {}, "utf-8"),
        (2, "win32", {}, "utf-8"),
        (1, "win32", {"PYTHONIOENCODING": "cp437"}, "cp1252"),
        (1, "linux", {}, "cp1252"),
    ],
)
def test_a_pipe_has_utf_8_on_windows_unless_a_variable_names_another(
    number: int, system: str, variables: dict[str, str], encoding: str
):
    assert streams.encoding_of(number, "cp1252", system, variables) == encoding


def test_a_stream_whose_encoding_changes_still_fails_at_no_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    buffer = io.BufferedWriter(io.FileIO(tmp_path / "err", "w"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(buffer, "cp1252", "strict"))
    monkeypatch.setattr(streams, "encoding_of", lambda number, encoding: "utf-8")
    streams.prepare_streams()
    assert (sys.stderr.encoding, sys.stderr.errors) == ("utf-8", "backslashreplace")
    sys.stderr.write("日本 \udcff")
    sys.stderr.flush()
    assert (tmp_path / "err").read_bytes() == "日本 \\udcff".encode()


def test_windows_reports_a_reader_that_has_gone_as_an_invalid_argument():
    gone, full = OSError(errno.EINVAL, "Invalid argument"), OSError(errno.ENOSPC, "No space left")
    assert streams.is_closed_pipe(gone, "win32") and streams.is_closed_pipe(BrokenPipeError(), "linux")
    assert not streams.is_closed_pipe(gone, "linux") and not streams.is_closed_pipe(full, "win32")


# ── hints ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_variable_is_written_as_the_users_shell_takes_it():
    assert variable_words("SPECLSP_TRACEBACK", "1", "win32") == '`$env:SPECLSP_TRACEBACK = "1"`'
    assert variable_words("SPECLSP_TRACEBACK", "1", "linux") == "SPECLSP_TRACEBACK=1"


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_drive_letter_is_no_part_of_the_position():
    with pytest.raises(InputError, match=r"^C:\\x\\a\.py: no such file\.$"):
        positions.at_position(r"C:\x\a.py:2:12", 1000)


def test_another_name_of_a_file_with_secrets_is_refused(tmp_path: Path):
    (tmp_path / ".env").write_text("KEY=1\n")
    (tmp_path / "notes.py").symlink_to(tmp_path / ".env")
    with pytest.raises(InputError, match="holds secrets"):
        positions.at_position(f"{tmp_path / 'notes.py'}:1:1", 1000)


# ── PowerShell ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def script() -> str:
    """What `speclsp completion powershell` prints."""
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lines.append)
        assert entry.main(["completion", "powershell"]) == 0
    return "\n".join(lines)


def leaves(command: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """(its key in the script, parser) of a command and of all below it."""
    yield name, command
    for word, below in commands_of(command).items():
        yield from leaves(below, f"{name}_{word}")


def table(script: str, name: str) -> dict[str, list[str]]:
    """A table of the script: {key: its words}."""
    body = script.partition(f"$_shtab_speclsp_{name} = @{{\n")[2].partition("\n}")[0]
    rows = re.findall(r"^ +'([^']+)' = @\((.*)\)$", body, re.MULTILINE)
    return {key: re.findall(r"'([^']*)'", words) for key, words in rows}


def test_the_powershell_script_has_every_command_option_and_choice_of_the_parser(script: str):
    options, subcommands, choices = (table(script, name) for name in ("option_strings", "subparsers", "choices"))
    for key, command in leaves(parser(), "_shtab_speclsp"):
        visible = [action for action in command._actions if action.help != argparse.SUPPRESS]
        expected = [word for action in visible for word in action.option_strings]
        assert options[key] == expected, key
        assert subcommands.get(key, []) == list(commands_of(command)), key
    assert choices["_shtab_speclsp_completion_pos_0"] == list(shell_completion.SHELLS)
    assert choices["_shtab_speclsp_config_get_pos_0"] == shell_completion.settings()
    assert "completion.eagerness=low" in choices["_shtab_speclsp_doctor___set"]
    assert {"auto", "qwen2.5-coder-0.5b-instruct"} <= set(choices["_shtab_speclsp_complete___model"])


def test_the_powershell_script_is_registered_for_the_program_and_is_ascii(script: str):
    assert script.isascii(), "Windows PowerShell 5.1 reads a file without a byte order mark by the code page"
    assert "Register-ArgumentCompleter -Native -CommandName speclsp -ScriptBlock {" in script
    assert script.count("{") == script.count("}") and script.count("'") % 2 == 0
