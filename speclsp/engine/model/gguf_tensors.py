"""Tensors of a GGUF by their published names, dequantized to bfloat16 while they are read.

    name      blk.0.attn_q.weight ─► model.layers.0.self_attn.q_proj.weight
    weights   slab of rows ─► blocks ─► float32 ─► bfloat16, in a few threads
              In a model that is mostly Q4_K, superblocks are tensors, too: NAME.q4k or NAME.q6k

The file is read, and not mapped: a read error or a file that becomes shorter would end the process (SIGBUS).
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from speclsp import process_resources
from speclsp.engine.model.bfloat16 import Array, BFloat16, Floats, round_into, widen
from speclsp.engine.model.superblocks import Q4K, Q6K, halves
from speclsp.errors import WeightsError
from speclsp.private_files import version_of
from speclsp.private_files.os_errors import sentence
from speclsp.weights.gguf import header as gguf_header
from speclsp.weights.gguf import model_files
from speclsp.weights.gguf.header import KINDS, Header, Tensor
from speclsp.weights.gguf.model_families import GGUF_LAYER_NAMES, GGUF_OUTER_NAMES
from speclsp.weights.untrusted import untrusted_files
from speclsp.weights.untrusted.safetensors_header import StoredTensor

SUPERBLOCKS = {gguf_header.Q4_K: Q4K, gguf_header.Q6_K: Q6K}
SLAB_WEIGHTS = 1 << 19  # dequantized at a time: with fewer, threads wait for each other between NumPy's calls
AGAIN = "Load the model again; if that fails, run `speclsp models verify`."


def q5_0_weights(block: Array) -> Floats:
    """Blocks of Q5_0, [rows, n, 22] uint8, as float32 weights, [rows, n * 32]: d * (q - 16), q of 4 bits and one."""
    high = np.unpackbits(block[..., 2:6], axis=-1, bitorder="little")
    packed = block[..., 6:]
    q = np.concatenate([packed & 15, packed >> 4], -1) | high << 4
    weights: Floats = (q.view(np.int8) - np.int8(16)) * halves(block[..., :2])
    return weights.reshape(len(block), -1)


def q8_0_weights(block: Array) -> Floats:
    """Blocks of Q8_0, [rows, n, 34] uint8, as float32 weights, [rows, n * 32]: d * q, q of 8 bits."""
    weights: Floats = block[..., 2:].view(np.int8) * halves(block[..., :2])
    return weights.reshape(len(block), -1)


def plain_weights(dtype: str) -> Callable[[Array], Floats]:
    """The function for weights that are not quantized."""
    return lambda block: widen(block.reshape(len(block), -1).view(dtype))


WEIGHTS_OF: Mapping[int, Callable[[Array], Floats]] = {  # by GGML's number of the format
    gguf_header.F32: plain_weights("<f4"),
    gguf_header.F16: plain_weights("<f2"),
    gguf_header.BF16: plain_weights("<u2"),
    gguf_header.Q5_0: q5_0_weights,
    gguf_header.Q8_0: q8_0_weights,
    gguf_header.Q4_K: Q4K.weights_of,
    gguf_header.Q6_K: Q6K.weights_of,
}


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def published_name(stored: str, path: Path) -> str:
    """blk.0.attn_q.weight -> model.layers.0.self_attn.q_proj.weight; WeightsError for another name."""
    if stored in GGUF_OUTER_NAMES:
        return GGUF_OUTER_NAMES[stored]
    match = re.fullmatch(r"blk\.(\d{1,4})\.(\w+)\.(weight|bias)", stored)
    if match and match[2] in GGUF_LAYER_NAMES:
        return f"model.layers.{int(match[1])}.{GGUF_LAYER_NAMES[match[2]]}.{match[3]}"
    raise WeightsError(f"{path} holds a tensor {stored[:60]!r} that is not part of a qwen2 model.")


def is_mostly_q4k(header: Header) -> bool:
    """True if most weights are Q4_K; where a few are, as in the 0.5B, widening all alike is simpler and as fast."""
    weights = {tensor.name: math.prod(tensor.shape) for tensor in header.tensors.values()}
    q4k = sum(weights[tensor.name] for tensor in header.tensors.values() if tensor.kind == gguf_header.Q4_K)
    return 2 * q4k > sum(weights.values())


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class GgufFile:
    """An open GGUF. `widened` and `superblocks` are its tensors by their published names; the first has all of them.

    Raises:
        WeightsError: it is not a whole GGUF of a known family.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.lock = file, path, threading.Lock()
        self.version = version_of(file)
        header = gguf_header.read_header(file, path, with_lists=False)
        with model_files.implausible_settings(path):
            model_files.model_config(header, path)
        self.widened = {published_name(name, path): tensor for name, tensor in header.tensors.items()}
        kinds = SUPERBLOCKS if is_mostly_q4k(header) else {}
        self.superblocks = {
            kinds[tensor.kind].name(name): tensor for name, tensor in self.widened.items() if tensor.kind in kinds
        }

    def widen(self, tensor: Tensor, pool: ThreadPoolExecutor) -> BFloat16:
        """A tensor in bfloat16: the values of the file, rounded to nearest even. Raises WeightsError."""
        columns, rows = tensor.shape[-1], math.prod(tensor.shape[:-1])
        values = np.empty((rows, columns), np.uint16)
        step, block_bytes = max(1, SLAB_WEIGHTS // columns), KINDS[tensor.kind].block_bytes

        def slab(first: int) -> None:
            raw = self._rows(tensor, first, min(first + step, rows))
            with np.errstate(invalid="ignore"):  # a file may hold numbers that are not finite
                weights = WEIGHTS_OF[tensor.kind](raw.reshape(len(raw), -1, block_bytes))
                round_into(values[first : first + step], weights)

        for _ in pool.map(slab, range(0, rows, step)):
            pass
        return values.reshape(tensor.shape)

    def blocks(self, tensor: Tensor) -> Array:
        """A tensor's superblocks, [out, in / 256 * bytes]. Raises WeightsError."""
        return self._rows(tensor, 0, math.prod(tensor.shape[:-1]))

    def _rows(self, tensor: Tensor, first: int, end: int) -> Array:
        """Bytes of stored rows, [end - first, bytes of a row]."""
        row_bytes = tensor.size // math.prod(tensor.shape[:-1])
        raw = np.empty((end - first, row_bytes), np.uint8)
        start = tensor.start + first * row_bytes
        try:
            with self.lock:
                self.file.seek(start)
                count = self.file.readinto(raw.data)  # type: ignore[attr-defined]
                version = version_of(self.file)
        except OSError as error:
            raise WeightsError(sentence(error, self.path, "be read")) from None
        if count < raw.size or version != self.version:
            raise WeightsError(f"{self.path} was altered while it was read, at byte {start}. {AGAIN}")
        return raw


@contextmanager
def readers(path: Path) -> Iterator[dict[str, Callable[[], Array]]]:
    """Functions that return the tensors of a GGUF, by name; a weight that is superblocks has two names.

    Raises WeightsError and Unreadable.
    """
    with untrusted_files.open_plain(path) as opened, ThreadPoolExecutor(process_resources.cpus().workers) as pool:
        file = GgufFile(opened, path)
        yield {
            **{name: partial(file.widen, tensor, pool) for name, tensor in file.widened.items()},
            **{name: partial(file.blocks, tensor) for name, tensor in file.superblocks.items()},
        }


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The form of each tensor that `readers` returns. Raises WeightsError and Unreadable."""
    with untrusted_files.open_plain(path) as opened:
        file = GgufFile(opened, path)
    return {name: StoredTensor("BF16", tensor.shape, 0, 0) for name, tensor in file.widened.items()}
