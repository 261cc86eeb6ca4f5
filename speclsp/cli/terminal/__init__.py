"""Terminal output: a progress line on stderr, and code with coloured parts. `streams` prepares the standard streams.

Progress is one line that redraws itself on a terminal, and a few plain lines in a pipe or a log. Colour is for
terminals alone, and NO_COLOR is honoured; stdout of a pipe gets the bare text.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from speclsp.cli.terminal.streams import is_terminal, write_stderr

GREEN, RED, YELLOW = "32", "31", "33"
DIM, NEW = "2", "1;97"  # of code: old, and of the model
REDRAW_MS = 100
LINES_BEFORE, LINES_AFTER = 12, 4  # of the file, around a suggestion
PLAIN_STEP, PLAIN_S = 0.1, 2.0  # without a terminal: a line per tenth, and not oftener than that
RATE_S = 0.3  # before this a rate is a guess


# ── colours and units ──


def paint(text: str, style: str, on: bool = True) -> str:
    """`text` in an ANSI style, line by line so that a pager or a cut line never leaks it."""
    if not on or not text:
        return text
    return "\n".join(f"\x1b[{style}m{line}\x1b[0m" if line else "" for line in text.split("\n"))


def in_size(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def in_time(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def aligned(lines: Sequence[Sequence[str]], right: Container[int]) -> str:
    """The lines in columns; those in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


class ProgressLine:
    """Progress of one long step, in fractions or bytes; redrawn no faster than it can be read."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.live = is_terminal(self.stream)
        self.what = ""
        self.begun = self.drawn = 0.0  # time.monotonic() seconds
        self.begun_at = self.shown = 0.0  # progress at the start (a resumed fetch), and at the last drawing
        self.width = 0
        self.stays = True

    def step(self, fraction: float, what: str) -> None:
        """`what` is `fraction` (0 to 1) done: drawn on a terminal only, and wiped when the work is over."""
        if self.live:
            self.show(what, fraction, f"{max(0.0, min(1.0, fraction)):4.0%}")
            self.stays = False

    def bytes(self, done: int, total: int, what: str) -> None:
        """`done` of `total` bytes of `what`; total 0 when it is not known. Shows size, rate and time left."""
        now = time.monotonic()
        if what != self.what:
            self.begin(what, done)
        seconds = now - self.begun
        rate = (done - self.begun_at) / seconds if seconds >= RATE_S else 0.0
        words = f"{in_size(done)} of {in_size(total)}" if total else in_size(done)
        if rate > 0:
            words += f", {in_size(rate)}/s"
        if total and rate > 0:
            words += f", {in_time((total - done) / rate)} left" if done < total else f", {in_time(seconds)}"
        self.show(what, done / total if total else 0.0, words)
        self.stays = True

    def begin(self, what: str, done: float = 0.0) -> None:
        """Close the line of the last step and start one for `what`."""
        self.close()
        self.what, self.begun, self.begun_at, self.shown, self.drawn = what, time.monotonic(), done, -1.0, -1.0

    def show(self, what: str, fraction: float, words: str) -> None:
        """Draw, unless it was drawn a moment ago."""
        if what != self.what:
            self.begin(what)
        now, ended = time.monotonic(), fraction >= 1.0
        if self.live:
            if ended or (now - self.drawn) * 1000 >= REDRAW_MS:
                columns = shutil.get_terminal_size().columns - 1
                cells = max(6, min(24, columns - len(what) - len(words) - 4))
                full = round(max(0.0, min(1.0, fraction)) * cells)
                line = f"{what} [{'#' * full}{'.' * (cells - full)}] {words}"[:columns]
                write_stderr("\r" + line.ljust(self.width), self.stream)
                self.width, self.drawn = len(line), now
        elif self.shown < 0 or (fraction - self.shown > PLAIN_STEP - 1e-6 and (ended or now - self.drawn >= PLAIN_S)):
            write_stderr(f"{what}: {words}\n" if words else f"{what}\n", self.stream)
            self.shown, self.drawn = fraction, now

    def close(self) -> None:
        """End or wipe the line, so that what is printed next starts on its own."""
        if self.live and self.width:
            write_stderr("\n" if self.stays else "\r" + " " * self.width + "\r", self.stream)
        self.what, self.width = "", 0


@contextmanager
def progress() -> Iterator[ProgressLine]:
    """A progress line on stderr, closed also after an error."""
    bar = ProgressLine()
    try:
        yield bar
    finally:
        bar.close()


def confirm(question: str, default: bool) -> bool:
    """The answer to a yes-or-no question on the terminal; the end of input counts as no."""
    sys.stdout.write(f"{question} {'[Y/n]' if default else '[y/N]'} ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    answer = line.strip().lower()
    return default if line and not answer else answer in ("y", "yes")


def code_at_cursor(before: str, text: str, after: str, colour: bool) -> str:
    """The lines around a suggestion: old text dim, new text bright. Without colour, a bar marks lines with new text."""
    above = "\n".join(before.replace("\r\n", "\n").split("\n")[-LINES_BEFORE:])
    below = "\n".join(after.replace("\r\n", "\n").split("\n")[: LINES_AFTER + 1])
    if not colour:
        text = text.replace("\r\n", "\n")
        first, last = above.count("\n"), (above + text).count("\n")
        lines = enumerate(f"{above}{text}{below}".split("\n"))
        return "\n".join(f"{'|' if first <= number <= last else ' '} {line}".rstrip() for number, line in lines)
    return f"{paint(above, DIM)}{paint(text, NEW)}{paint(below, DIM)}"
