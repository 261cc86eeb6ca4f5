"""A run of the command in this process, and text streams that are a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO

import pytest

from speclsp.cli import entry
from speclsp.cli.terminal import streams

Run = Callable[..., tuple[int, str, str]]


class Terminal(io.StringIO):
    """A stream that reports itself as a terminal; as stdin, the text that a person types."""

    def isatty(self) -> bool:
        return True


def add_console(patch: pytest.MonkeyPatch) -> None:
    """Let Windows' console answer for a `Terminal` too, which has no handle to ask it about."""
    ask = streams.console_mode

    def console_mode(stream: TextIO, more: int = 0) -> int | None:
        return more if isinstance(stream, Terminal) else ask(stream, more)

    patch.setattr(streams, "console_mode", console_mode)


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
