"""Reader of GGUF headers: the settings, and the position of each tensor in the file.

The gguf package's own reader takes seconds for a vocabulary of 150 000 tokens; this one takes a fraction of one, and
checks every length, offset and size against the real file: a GGUF is data from outside.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclsp.errors import WeightsError

MAX_ITEMS = (
    1 << 22
)  # entries in all lists of the header; the largest real vocabulary has 2^18, and twice as many merges
MAX_NAME_BYTES = 1 << 24  # the longest real string is a chat template

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
REPAIR = "delete it and download it again with `speclsp models pull`."


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a GGUF: `shape` outermost dimension first, its bytes at `start` for `size`."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """The settings and tensors of a GGUF."""

    settings: dict[str, Any]
    tensors: dict[str, Tensor]


def read_header(data: mmap.mmap | bytes, file: Path) -> Header:
    """The settings and tensor table of a GGUF (version 2 or 3, little-endian); WeightsError when it is malformed."""
    try:
        return _Reader(data).header()
    except (struct.error, UnicodeDecodeError, KeyError, ValueError, OverflowError) as error:
        raise WeightsError(f"{file} is not a whole GGUF file ({error}); {REPAIR}") from None


class _Reader:
    """A cursor over a GGUF's header."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data = data
        self.at = 0
        self.items = 0  # in all lists so far: each takes more memory than its byte in the file

    def header(self) -> Header:
        if self.data[:4] != b"GGUF":
            raise ValueError(f"it starts with {self.data[:4]!r}")
        self.at = 4
        version = self.number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}: expected 2 or 3")
        tensor_count, setting_count = self.count(), self.count()
        settings = {self.text(): self.value(self.number("I")) for _ in range(setting_count)}
        table = [self.tensor() for _ in range(tensor_count)]
        alignment = int(settings.get("general.alignment", 32))
        if alignment <= 0:
            raise ValueError(f"alignment {alignment}")
        first = math.ceil(self.at / alignment) * alignment
        tensors: dict[str, Tensor] = {}
        for name, shape, kind, offset in table:
            tensor = Tensor(name, shape, kind, first + offset, _stored_bytes(shape, kind, name))
            if tensor.start + tensor.size > len(self.data):
                end = tensor.start + tensor.size
                raise ValueError(f"{name[:60]!r} ends at byte {end}, the file at {len(self.data)}")
            if name in tensors:
                raise ValueError(f"{name[:60]!r} is there twice")
            tensors[name] = tensor
        return Header(settings, tensors)

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def count(self) -> int:
        value = int(self.number("Q"))
        if value > MAX_ITEMS:
            raise ValueError(f"a list of {value} entries")
        self.items += value
        if self.items > MAX_ITEMS:
            raise ValueError(f"lists of {self.items} entries")
        return value

    def text(self) -> str:
        length = int(self.number("Q"))
        if length > MAX_NAME_BYTES or self.at + length > len(self.data):
            raise ValueError(f"a text of {length} bytes at byte {self.at}")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.number(SCALARS[kind])
        item, length = self.number("I"), self.count()
        if item == TEXT:
            return [self.text() for _ in range(length)]
        code = f"<{length}{SCALARS[item]}"
        values = struct.unpack_from(code, self.data, self.at)
        self.at += struct.calcsize(code)
        return list(values)

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        dimensions = int(self.number("I"))
        if not 1 <= dimensions <= 4:
            raise ValueError(f"{name[:60]!r} has {dimensions} dimensions")
        shape = tuple(int(self.number("Q")) for _ in range(dimensions))[::-1]
        return name, shape, int(self.number("I")), int(self.number("Q"))


def _stored_bytes(shape: tuple[int, ...], kind: int, name: str) -> int:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    block_elements, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    if min(shape) <= 0 or shape[-1] % block_elements:
        raise ValueError(f"{name[:60]!r} has shape {list(shape)}: expected rows of {block_elements}")
    return math.prod(shape) // int(block_elements) * int(block_bytes)
