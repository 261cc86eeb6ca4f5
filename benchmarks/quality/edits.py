"""Differences between two successive releases of a package, as hunks: what the benchmarks of next edits replay."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.quality.tasks import tasks as cursors

LIST = Path(__file__).parent / "tasks" / "edits.toml"  # as packages.toml; `before` is the release before
SEED = 7

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines `start` to before `end` of the older text, and the lines that replace them."""

    start: int
    end: int
    lines: tuple[str, ...]


def hunks(before: str, after: str) -> list[Hunk]:
    """The differences, from top to bottom."""
    old, new = before.split("\n"), after.split("\n")
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [Hunk(i, j, tuple(new[k:m])) for kind, i, j, k, m in codes if kind != "equal"]


def made_of(old: str, done: Iterable[Hunk]) -> str:
    """A text with some of its hunks made."""
    lines = old.split("\n")
    for hunk in sorted(done, key=lambda hunk: -hunk.start):
        lines[hunk.start : hunk.end] = hunk.lines
    return "\n".join(lines)


def sources(root: Path | None, folders: Sequence[str]) -> dict[str, str]:
    """The source files of a release, in their order; version files aside, which say the release's name."""
    assert root is not None
    texts = {}
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        wanted = not folders or path.startswith(tuple(folder + "/" for folder in folders))
        if wanted and file.suffix in cursors.LANGUAGES and "version" not in file.name and file.is_file():
            texts[path] = file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    return texts


def drawn(listed: Sequence[Item], *where: object, key: Callable[[Item], object] = repr) -> list[Item]:
    """The same order on any machine, and no order of theirs."""
    return sorted(listed, key=lambda item: hashlib.sha256(f"{SEED} {where} {key(item)}".encode()).hexdigest())
