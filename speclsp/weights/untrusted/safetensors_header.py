"""Reader of safetensors headers: each tensor's number format, shape and position in the file.

Every length and offset is checked against the real file before anything relies on it: the tensors lie one behind the
other, without gap or overlap, from the header's end to the file's.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from speclsp.weights.untrusted.untrusted_files import Unreadable, not_itself, object_of, open_plain

MAX_HEADER_BYTES = 16 << 20  # a shard of the largest known models has a header of 100 KB
MAX_DIMENSIONS = 8
SIZES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
NUMPY_TYPES = {  # of the number formats that are read; engine/model/bfloat16.py gives the meaning of BF16
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1", "I8": "i1", "I32": "<i4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file; its bytes from `start` to `end`, counted from the header's end."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read(path: Path) -> dict[str, StoredTensor]:
    """The tensors by name. Raises Unreadable: the defect of the file, with the actual and the expected value."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = header_bytes(file.read(64), size)
        file.seek(8)
        return parse(file.read(length), size)[0]


def header_bytes(start: bytes, size: int) -> int:
    """The length of the header, by the first 64 bytes of a file of `size` bytes. Raises Unreadable."""
    if problem := not_itself(start):
        raise Unreadable(problem)
    if size < 8:
        raise Unreadable(f"is {size} bytes long, too short for a safetensors file")
    length = int.from_bytes(start[:8], "little")
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise Unreadable(f"has a header of {length} bytes, in a file of {size}")
    return length


def parse(header: bytes, size: int) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors and the metadata in the header of a file of `size` bytes. Raises Unreadable."""
    try:
        entries = object_of(header)
        metadata = entries.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError("metadata that are not texts")
        tensors = {name: tensor(entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"is not a safetensors file ({error})") from None
    except Unreadable as error:
        raise Unreadable(f"is not a safetensors file (its header {error})") from None
    end = 8 + len(header) + max((entry.end for entry in tensors.values()), default=0)
    if size != end:
        raise Unreadable(f"is {size} bytes long, not {end}: it was truncated or altered")
    check_places(tensors)
    return tensors, metadata


def tensor(entry: dict[str, object]) -> StoredTensor:
    """One entry of the header. Raises ValueError, KeyError, TypeError."""
    dtype, shape, places = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise ValueError(f"a number format {str(dtype)[:40]!r}")
    for numbers in (shape, places):
        if not isinstance(numbers, list) or not all(type(number) is int and 0 <= number < 2**48 for number in numbers):
            raise ValueError("an invalid shape or offset")
    if not isinstance(shape, list) or not isinstance(places, list) or len(places) != 2 or len(shape) > MAX_DIMENSIONS:
        raise ValueError("an invalid shape or offset")
    return StoredTensor(dtype, tuple(shape), places[0], places[1])


def check_places(tensors: dict[str, StoredTensor]) -> None:
    """Raises Unreadable unless each tensor is as long as its shape says, and begins where the one before it ends."""
    at = 0
    for name, stored in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        expected = math.prod(stored.shape) * SIZES[stored.dtype]
        if stored.end - stored.start != expected:
            raise Unreadable(
                f"gives {name[:80]!r} {stored.end - stored.start} bytes, not {expected} "
                f"for {list(stored.shape)} in {stored.dtype}"
            )
        if stored.start != at:
            kind = "overlap" if stored.start < at else "leave a gap"
            raise Unreadable(f"lets tensors {kind}: {name[:80]!r} begins at byte {stored.start}, not {at}")
        at = stored.end
