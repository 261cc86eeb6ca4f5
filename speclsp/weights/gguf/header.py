"""Reader of GGUF headers: the settings, and the position of each tensor in the file.

It checks every length, offset and size against the real file: a GGUF is data from outside. The file is read, and not
mapped: a read error or a file that becomes shorter would end the process (SIGBUS).
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from speclsp.errors import WeightsError

MAX_HEADER_BYTES = 1 << 26  # that of a vocabulary of 150,000 tokens has 6 MB
MAX_ITEMS = 1 << 22  # entries in all lists of the header; the largest vocabulary has 2^18, and twice as many merges
MAX_NAME_BYTES = 1 << 24  # the longest real string is a chat template

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
REPAIR = "delete it and download it again with `speclsp models pull`."


@dataclass(frozen=True, slots=True)
class Kind:
    """A number format: `block_bytes` for each `block_weights` weights of a row."""

    title: str
    block_weights: int
    block_bytes: int


F32, F16, Q5_0, Q8_0, Q4_K, Q6_K, BF16 = 0, 1, 6, 8, 12, 14, 30  # GGML's numbers
KINDS = {  # those of the listed models' files
    F32: Kind("F32", 1, 4),
    F16: Kind("F16", 1, 2),
    Q5_0: Kind("Q5_0", 32, 22),
    Q8_0: Kind("Q8_0", 32, 34),
    Q4_K: Kind("Q4_K", 256, 144),
    Q6_K: Kind("Q6_K", 256, 210),
    BF16: Kind("BF16", 1, 2),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a GGUF: `shape` outermost dimension first, its bytes at `start` for `size`."""

    name: str
    shape: tuple[int, ...]
    kind: int  # of KINDS
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """The settings and tensors of a GGUF."""

    settings: dict[str, Any]
    tensors: dict[str, Tensor]


def read_header(file: BinaryIO, path: Path, with_lists: bool = True) -> Header:
    """The settings and tensor table of a GGUF (version 2 or 3, little-endian); WeightsError when it is malformed.

    `with_lists=False` leaves out settings that are lists, such as the vocabulary: that takes a tenth of the time.
    """
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise WeightsError(f"{path} is empty; {REPAIR}")
    try:
        file.seek(0)
        return _Reader(file.read(MAX_HEADER_BYTES), size, with_lists).header()
    except (OSError, struct.error, UnicodeDecodeError, KeyError, ValueError, OverflowError) as error:
        raise WeightsError(f"{path} is not a whole GGUF file ({error}); {REPAIR}") from None


class _Reader:
    """A cursor over the beginning `data` of a GGUF of `size` bytes."""

    def __init__(self, data: bytes, size: int, with_lists: bool) -> None:
        self.data, self.size, self.with_lists = data, size, with_lists
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
            if tensor.start + tensor.size > self.size:
                end = tensor.start + tensor.size
                raise ValueError(f"{name[:60]!r} ends at byte {end}, the file at {self.size}")
            if name in tensors:
                raise ValueError(f"{name[:60]!r} is there twice")
            tensors[name] = tensor
        return Header({name: value for name, value in settings.items() if value is not None}, tensors)

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
            return [self.text() for _ in range(length)] if self.with_lists else self.skip_texts(length)
        code = f"<{length}{SCALARS[item]}"
        values = struct.unpack_from(code, self.data, self.at)
        self.at += struct.calcsize(code)
        return list(values) if self.with_lists else None

    def skip_texts(self, count: int) -> None:
        at, length_at = self.at, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length_at(self.data, at)[0]
        self.at = at

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        dimensions = int(self.number("I"))
        if not 1 <= dimensions <= 4:
            raise ValueError(f"{name[:60]!r} has {dimensions} dimensions")
        shape = tuple(int(self.number("Q")) for _ in range(dimensions))[::-1]
        return name, shape, int(self.number("I")), int(self.number("Q"))


def _stored_bytes(shape: tuple[int, ...], kind: int, name: str) -> int:
    if kind not in KINDS:
        titles = ", ".join(known.title for known in KINDS.values())
        raise ValueError(f"{name[:60]!r} has the number format {kind} of GGML: expected one of {titles}")
    block = KINDS[kind]
    if min(shape) <= 0 or shape[-1] % block.block_weights:
        raise ValueError(f"{name[:60]!r} has shape {list(shape)}: expected rows of {block.block_weights}")
    return math.prod(shape) // block.block_weights * block.block_bytes
