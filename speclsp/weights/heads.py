"""Draft heads (engine/model/int8/draft_head.py): the files of heads, their checks, and the search for one. No torch.

    heads/*.safetensors in <state>, <models_dir> and models/ ─► the one for these weights, adapter and vocabulary

A head reads the hidden states of a model, so it belongs to weights, to the adapter that is merged into them, and to
the tokens of a vocabulary. Its metadata name all three by their sums. A head for anything else is left alone. A file
that belongs here and cannot be used costs speed, never the completion.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speclsp import config
from speclsp.errors import SpeclspError, WeightsError
from speclsp.weights import cards
from speclsp.weights.untrusted import tensor_file
from speclsp.weights.untrusted.tensor_file import SHA256, TensorFile
from speclsp.weights.untrusted.untrusted_files import Unreadable

FORMAT = "speclsp-head-1"
MOST_BYTES = 16 << 20
WITHOUT = "The model runs without it: replace the file, or remove it."


class HeadError(WeightsError):
    """A head that cannot be used; the model runs without it."""


@dataclass(frozen=True, slots=True)
class HeadUse:
    """The model that a head is for."""

    weights_sha256: str
    adapter_sha256: str  # of the merged adapter's file; "": none
    vocabulary_sha256: str

    def metadata(self, name: str, layers: Sequence[int]) -> dict[str, str]:
        """The metadata of a head's file."""
        return {
            "format": FORMAT, "name": name, "weights_sha256": self.weights_sha256,
            "adapter_sha256": self.adapter_sha256, "vocabulary_sha256": self.vocabulary_sha256,
            "layers": ",".join(map(str, layers)),
        }  # fmt: skip


def vocabulary_sum(spellings: Sequence[bytes]) -> str:
    """The sum that names a vocabulary: the bytes of each token, in the order of the ids."""
    lengths = ",".join(map(str, map(len, spellings)))
    return hashlib.sha256(lengths.encode() + b"\n" + b"".join(spellings)).hexdigest()


def error(file: TensorFile, problem: str) -> HeadError:
    """`problem` continues a sentence that begins with the file."""
    return HeadError(f"{file.path} {problem}. {WITHOUT}")


def label(file: TensorFile) -> str:
    """The name and the beginning of the sum."""
    return f"{file.metadata.get('name') or file.path.stem} {file.sha256[:8]}"


def read(path: Path) -> TensorFile:
    """A file with checked metadata. Raises HeadError."""
    try:
        file = tensor_file.read(path, MOST_BYTES)
        file.checked("format", re.escape(FORMAT), repr(FORMAT))
        for key in ("weights_sha256", "vocabulary_sha256"):
            file.checked(key, SHA256, "64 hexadecimal digits")
        file.checked("adapter_sha256", f"({SHA256})?", "64 hexadecimal digits, or nothing")
        file.checked("layers", r"\d{1,4},\d{1,4},\d{1,4}", "three numbers of layers")
    except Unreadable as problem:
        raise HeadError(f"{path} {problem}. {WITHOUT}") from None
    return file


def find(use: HeadUse, models_dir: str = "") -> tuple[TensorFile | None, str]:
    """The head for a model, the user's own first; and why one cannot be used, or ""."""
    problem = ""
    for path in paths(models_dir):
        try:
            file = read(path)
        except HeadError as unreadable:
            problem = problem or str(unreadable)
            continue
        if file.metadata["weights_sha256"] != use.weights_sha256:
            continue
        if file.metadata["adapter_sha256"] != use.adapter_sha256:
            problem = problem or str(error(file, "was trained for these weights with another adapter"))
        elif file.metadata["vocabulary_sha256"] != use.vocabulary_sha256:
            problem = problem or str(error(file, "was trained for another vocabulary than the tokenizer's"))
        else:
            return file, ""
    return None, problem


def paths(models_dir: str) -> list[Path]:
    """The files of heads on this machine."""
    roots = [*([Path(models_dir).expanduser()] if models_dir else []), cards.models_root()]
    with suppress(SpeclspError):  # a user without a home directory trains none
        roots.insert(0, config.state_dir())
    return [path for root in roots for path in sorted((root / "heads").glob("*.safetensors"))]
