"""A file of this repository with the cursor in its middle, where the rest of a line is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CursorFile:
    """A file with its second half's first line cut off: `text` ends the line at `line` and `character`."""

    path: Path
    text: str
    line: int
    character: int

    @property
    def uri(self) -> str:
        return self.path.as_uri()

    @property
    def position(self) -> dict[str, int]:
        return {"line": self.line, "character": self.character}


def cursor_file(path: Path) -> CursorFile:
    """The file at `path` with the cursor after the first word of a line in its middle; the line's rest is missing."""
    lines = path.read_text(encoding="utf-8").split("\n")
    number = next(n for n in range(len(lines) // 2, len(lines)) if len(lines[n].split()) > 2)
    line = lines[number]
    kept = line[: len(line) - len(line.lstrip())] + line.split()[0] + " "
    return CursorFile(path, "\n".join([*lines[:number], kept, *lines[number + 1 :]]), number, len(kept))
