"""Memory pages of the int8 decoder: zeros that take memory when they are used, and the numbers of a file.

A file's numbers are mapped, so the system may reclaim them and share them between engines. Where a pass over a mapped
file is slower, they are read into huge pages instead (prepared_weights.py decides).
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from contextlib import suppress
from typing import BinaryIO

import numpy as np

from speclsp.engine.model.bfloat16 import BFloat16

VALUE_BYTES = 2  # of a bfloat16
READ_BYTES = 64 << 20  # at a time
END_BYTES = 1 << 16  # behind the numbers: passes fetch ahead


def zero_pages(size: int) -> mmap.mmap:
    """At least `size` zeros whose pages take memory from the first write on."""
    pages = _anonymous(max(size, 1))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)  # a first write would take 2 MiB
    return pages


def zeros(shape: tuple[int, ...]) -> BFloat16:
    """Zeros that take memory when they are written."""
    count = math.prod(shape)
    return np.frombuffer(zero_pages(VALUE_BYTES * count), np.uint16, count).reshape(shape)


def copied(values: BFloat16) -> BFloat16:
    """A copy in pages that the system gets back with it. Copies of many sizes would leave gaps in malloc's heap."""
    own = np.frombuffer(huge_pages(values.nbytes), np.uint16, values.size).reshape(values.shape)
    own[...] = values
    return own


def huge_pages(size: int) -> mmap.mmap:
    """`size` zeros in huge pages where the system has them: the first writes take a third of the time."""
    pages = _anonymous(size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def map_file(file: BinaryIO) -> mmap.mmap:
    """The file's bytes, mapped. Raises OSError, ValueError.

    Linux reads pages that it does not have in huge pages then, on file systems that allow them: a pass over pages of
    4 KiB takes 4 to 10 % longer.
    """
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def read_file(file: BinaryIO) -> mmap.mmap:
    """The file's bytes in memory of this process, in huge pages where the system has them. Raises OSError."""
    size = os.fstat(file.fileno()).st_size
    pages = huge_pages(size + END_BYTES)
    file.seek(0)
    with memoryview(pages) as memory:
        start = 0
        while start < size:
            count = file.readinto(memory[start : min(start + READ_BYTES, size)])  # type: ignore[attr-defined]
            if not count:
                raise OSError(f"the file ends after {start} of {size} bytes")
            start += count
    return pages


def _anonymous(size: int) -> mmap.mmap:
    """Zeros of this process alone. Windows counts them as committed at once, and takes memory as they are used."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
