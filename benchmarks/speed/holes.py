"""Real holes: places in the standard library of the interpreter at hand where a line is cut off, chosen by a seed.

The code is on every machine without a download, and people wrote it. The models have seen it in training, so it shows
speed and equality of texts, but not quality (`bench quality` measures that, on newer code).
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from speclsp.engine.api import Request

MODULES = (
    "argparse", "asyncio/queues", "bisect", "calendar", "configparser", "csv", "dataclasses", "difflib", "fractions",
    "ftplib", "gettext", "heapq", "json/decoder", "logging/__init__", "mailbox", "shlex", "statistics", "string",
    "tarfile", "textwrap", "threading", "traceback", "urllib/parse", "zipfile",
)  # fmt: skip
CONTEXT_LINES = 24  # before the cursor's line, and half as many after it


def holes(count: int, max_tokens: int = 24, seed: int = 20, context_lines: int = CONTEXT_LINES) -> list[Request]:
    """One hole in each of `count` modules: the line from a random place on is missing."""
    return [request for request, _ in holes_and_rests(count, max_tokens, seed, context_lines)]


def holes_and_rests(
    count: int,
    max_tokens: int = 24,
    seed: int = 20,
    context_lines: int = CONTEXT_LINES,
    modules: Sequence[str] = MODULES,
) -> Iterator[tuple[Request, str]]:
    """The same holes, in the first `count` modules, each with the true rest of its line, including the line end."""
    dice = random.Random(seed)
    for module in modules[:count]:
        lines = source(module).splitlines(keepends=True)
        numbers = [n for n, line in enumerate(lines) if len(line.strip()) > 20 and "#" not in line and '"' not in line]
        n = dice.choice(numbers[len(numbers) // 4 :])
        at = dice.randrange(len(lines[n]) - len(lines[n].lstrip()), len(lines[n]) - 4)
        request = Request(
            prefix="".join(lines[max(0, n - context_lines) : n]),
            line_prefix=lines[n][:at],
            suffix="".join(lines[n + 1 : n + 1 + context_lines // 2]),
            filename=f"{module}.py",
            max_tokens=max_tokens,
        )
        yield request, lines[n][at:]


def source(module: str) -> str:
    """The text of a standard library module; zipfile became a package in Python 3.12."""
    root = Path(sysconfig.get_path("stdlib"))
    file = root / f"{module}.py"
    return (file if file.is_file() else root / module / "__init__.py").read_text(encoding="utf-8")
