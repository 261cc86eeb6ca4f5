"""A run of the command in this process, and text streams that are a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from speclsp.cli import entry

Run = Callable[..., tuple[int, str, str]]


class Terminal(io.StringIO):
    """A stream that reports itself as a terminal; as stdin, the text that a person types."""

    def isatty(self) -> bool:
        return True


def runner(capsys: pytest.CaptureFixture[str], *first: object) -> Run:
    """Runs the command with `first` and further words: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        try:
            code = entry.main([str(word) for word in (*first, *words)])
        except SystemExit as leaving:  # raised by argparse
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
