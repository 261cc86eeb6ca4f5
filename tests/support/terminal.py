"""A terminal for tests: a stream in memory that commands take for one."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A stream that reports itself as a terminal; as stdin, the text that a person types."""

    def isatty(self) -> bool:
        return True
