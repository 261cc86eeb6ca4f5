"""Memory that is taken when it is used: zeros, and an embedding whose rows are read from the model's file.

A vocabulary has 150,000 tokens, and the code of one person has a few thousand of them. The other rows take no memory,
as the end of a KV cache slot behind its text.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from speclsp.errors import WeightsError

VALUE_BYTES = 2  # of a bfloat16


def zero_pages(size: int) -> mmap.mmap:
    """At least `size` zeros whose pages take memory from the first write on."""
    size = max(size, 1)
    if sys.platform == "win32":
        return mmap.mmap(-1, size)  # it counts as committed at once, and takes memory as it is used
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)  # a first write would take 2 MiB
    return pages


class StoredEmbedding:
    """[vocab, hidden] bfloat16 at `address`. A row is valid after `load` of its token.

    The file stays open. A model that replaces it is another file, except on Windows: there it cannot be replaced or
    removed while the model is loaded, and speclsp.weights says so.

    Args:
        file: open for reading; `close` closes it.
        path: its path, for errors.
        start: the position of the first row in it.
    """

    def __init__(self, file: BinaryIO, path: Path, start: int, vocab: int, hidden: int) -> None:
        self.path, self.file, self.start, self.row_bytes = path, file, start, hidden * VALUE_BYTES
        self.version = self._version()
        self.loaded: set[int] = set()
        self.memory = zero_pages(vocab * self.row_bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def load(self, ids: Sequence[int]) -> None:
        """Read the rows of tokens that are not in memory yet.

        Raises:
            WeightsError: the file was altered since the model was loaded.
        """
        missing = set(ids) - self.loaded
        if not missing:
            return
        with memoryview(self.memory) as rows:
            for token in sorted(missing):
                at = token * self.row_bytes
                self.file.seek(self.start + at)
                if len(row := self.file.read(self.row_bytes)) != self.row_bytes:
                    raise self._altered()
                rows[at : at + self.row_bytes] = row
        if self._version() != self.version:
            raise self._altered()
        self.loaded |= missing

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _version(self) -> tuple[int, int]:
        """The file's size and the time of its last change."""
        status = os.fstat(self.file.fileno())
        return status.st_size, status.st_mtime_ns

    def _altered(self) -> WeightsError:
        return WeightsError(
            f"{self.path} was altered while its model was in use. Restart the engine (`speclsp engine stop`); "
            "if the model does not load then, download it again with `speclsp models pull`."
        )
