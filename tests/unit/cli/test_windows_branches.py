"""Command line on Windows, as far as a parameter shows it on any system: streams and positions.

tests/windows/test_command_line.py runs the same commands under Wine.
"""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path

import pytest

from speclsp.cli.complete import positions
from speclsp.cli.terminal import streams
from speclsp.errors import InputError

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


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_name_of_a_file_with_secrets_is_refused(tmp_path: Path):
    (tmp_path / ".env").write_text("KEY=1\n")
    (tmp_path / "notes.py").symlink_to(tmp_path / ".env")
    with pytest.raises(InputError, match="holds secrets"):
        positions.at_position(f"{tmp_path / 'notes.py'}:1:1", 1000)
