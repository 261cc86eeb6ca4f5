"""Recorded typing: a text and the keys pressed in it, each with its time. benchmarks/keystrokes/ holds such files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FASTEST_MS, SLOWEST_MS = 67, 500  # between two keys of a burst: 15 and 2 keys/s
MAX_PAUSE_MS = 8000


@dataclass(frozen=True, slots=True)
class Key:
    """After `wait_ms`, `text` takes the place of `[start, end)`, in code points, and the cursor is at `cursor`."""

    wait_ms: int
    kind: str  # "char" "typo" "backspace" "enter" "indent" "overtype" "pick" "paste" "cut" "jump"
    start: int
    end: int
    text: str
    cursor: int

    def on(self, text: str) -> str:
        """`text` after this key."""
        return f"{text[: self.start]}{self.text}{text[self.end :]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One typist at work in one file."""

    language: str  # as LSP names it
    path: str  # of the source within its package
    origin: str  # the package and its version
    licence: str
    seed: int
    minutes: float  # requested
    start: str  # the text before the first key
    keys: tuple[Key, ...]

    @property
    def duration_ms(self) -> int:
        return sum(key.wait_ms for key in self.keys)

    def source(self) -> str:
        """The text after the last key."""
        text = self.start
        for key in self.keys:
            text = key.on(text)
        return text

    def write(self, file: Path) -> None:
        """One JSON object about the file, then each key as a JSON list on a line of its own."""
        about = {name: getattr(self, name) for name in ("language", "path", "origin", "licence", "seed", "minutes")}
        rows: list[object] = [about | {"start": self.start}]
        rows += [[key.wait_ms, key.kind, key.start, key.end, key.text, key.cursor] for key in self.keys]
        lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Recording:
        """The recording in a file that `write` made."""
        about, *rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        return cls(**about, keys=tuple(Key(*row) for row in rows))


def rates(keys: Sequence[Key]) -> Iterator[float]:
    """Keys per second of each burst: keys with no pause between them."""
    burst: list[int] = []
    for key in [*keys, Key(MAX_PAUSE_MS, "jump", 0, 0, "", 0)]:
        if key.wait_ms <= SLOWEST_MS:
            burst.append(key.wait_ms)
        elif burst:
            yield 1000 * len(burst) / sum(burst)
            burst = []
