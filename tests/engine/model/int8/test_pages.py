"""Memory pages of the int8 decoder: zeros that take memory when they are used, and the bytes of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil

from speclsp.engine.model.int8 import pages


def test_the_pages_that_are_never_written_take_no_memory():
    size, process = 64 << 20, psutil.Process()
    before_bytes = process.memory_info().rss
    zeros = pages.zero_pages(size)
    zeros[0] = zeros[size // 2] = 1
    assert process.memory_info().rss - before_bytes < 2 << 20
    assert zeros[0] == zeros[size // 2] == 1
    assert not any(zeros[1 : 1 << 20])


def test_each_copy_takes_its_memory_with_it_when_it_goes():
    process, values = psutil.Process(), np.arange(4 << 20, dtype=np.uint16)  # 8 MiB
    np.ones(30 << 20, np.uint8)  # once freed, glibc takes arrays of this size from its heap
    before_bytes = process.memory_info().rss
    copies = [pages.copied(values[:size]) for size in (2 << 20, 3 << 20, 4 << 20, 1 << 20)]
    kept = copies.pop()
    assert process.memory_info().rss - before_bytes > 16 << 20
    copies.clear()
    assert process.memory_info().rss - before_bytes < 4 << 20
    assert np.array_equal(kept, values[: kept.size])


def test_mapped_and_read_bytes_are_those_of_the_file(tmp_path: Path):
    content = np.random.default_rng(1).integers(0, 256, 3 << 20, np.uint8).tobytes()
    path = tmp_path / "numbers"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert bytes(pages.map_file(file)) == content
        assert bytes(pages.read_file(file)[: len(content)]) == content
