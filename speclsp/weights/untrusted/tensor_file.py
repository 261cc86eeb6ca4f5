"""A small safetensors file in memory, whose header, size and metadata are checked before anything relies on them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from speclsp.weights.untrusted import safetensors_header, untrusted_files
from speclsp.weights.untrusted.safetensors_header import StoredTensor
from speclsp.weights.untrusted.untrusted_files import Unreadable

SHA256 = r"[0-9a-f]{64}"


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file whose header agrees with its size. `content` holds the tensors' bytes from `body` on."""

    path: Path
    sha256: str
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]
    content: bytes
    body: int

    def bytes_of(self, name: str) -> bytes:
        """A tensor's bytes."""
        stored = self.tensors[name]
        return self.content[self.body + stored.start : self.body + stored.end]

    def checked(self, key: str, pattern: str, wanted: str) -> str:
        """A value of the metadata. Raises Unreadable."""
        value = self.metadata.get(key, "")
        if not re.fullmatch(pattern, value):
            raise Unreadable(f"has {key} = {value[:80]!r} in its metadata: expected {wanted}")
        return value


def read(path: Path, most_bytes: int) -> TensorFile:
    """Read a file. Raises Unreadable."""
    content = untrusted_files.read_plain(path, most_bytes)
    body = 8 + safetensors_header.header_bytes(content[:64], len(content))
    tensors, metadata = safetensors_header.parse(content[8:body], len(content))
    return TensorFile(path, hashlib.sha256(content).hexdigest(), tensors, metadata, content, body)
