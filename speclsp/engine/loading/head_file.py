"""The draft head that `engine.head` names: its file is checked, decoded and attached to the target.

A head reads the hidden states of a model, so it belongs to weights, to the adapter that is merged into them, and to
the tokens of a vocabulary. Its metadata name all three by their sums. A head that cannot be used costs speed, never the
completion. models/training/draft_head/ trains heads. A tensor T is stored as

T        int8 [rows, columns]       value = T * T.scale, float32 [rows]
T        uint8 [rows, columns / 2]  value = (nibble - 8) * T.scale, float16 [rows, columns / 32]; low nibbles first
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import HeadDrafter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.model.bfloat16 import Array, Floats
from speclsp.engine.model.int8.draft_head import NORMS, DraftHead, HeadWeights, linear_sizes
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.engine.model.model_shape import ModelShape
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.errors import WeightsError
from speclsp.weights import adapters
from speclsp.weights.untrusted import tensor_file
from speclsp.weights.untrusted.safetensors_header import NUMPY_TYPES
from speclsp.weights.untrusted.tensor_file import SHA256, TensorFile
from speclsp.weights.untrusted.untrusted_files import Unreadable

FORMAT = "speclsp-head-1"
MAX_BYTES = 16 << 20
WITHOUT = 'The model runs without it: name another file, or set engine.head = "".'
TRAINED_FOR = {
    "weights_sha256": "other weights than the model's",
    "adapter_sha256": "these weights with another adapter (engine.adapter)",
    "vocabulary_sha256": "another vocabulary than the tokenizer's",
}
GROUP = 32  # weights of 4 bits that share a scale; outputs that forward.c multiplies together
NEEDED_MIB = 64  # its weights, and buffers


class HeadError(WeightsError):
    """A head that cannot be used; the model runs without it."""


def vocabulary_sum(spellings: Sequence[bytes]) -> str:
    """The sum that names a vocabulary: the bytes of each token, in the order of the ids."""
    lengths = ",".join(map(str, map(len, spellings)))
    return hashlib.sha256(lengths.encode() + b"\n" + b"".join(spellings)).hexdigest()


def error_of(file: TensorFile, problem: str) -> HeadError:
    """`problem` continues a sentence that begins with the file."""
    return HeadError(f"{file.path} {problem}. {WITHOUT}")


def label(file: TensorFile) -> str:
    """The name and the beginning of the sum."""
    return f"{file.metadata.get('name') or file.path.stem} {file.sha256[:8]}"


def read(path: Path) -> TensorFile:
    """A file with checked metadata. Raises HeadError."""
    try:
        file = tensor_file.read(path, MAX_BYTES)
        file.checked("format", re.escape(FORMAT), repr(FORMAT))
        for key in ("weights_sha256", "vocabulary_sha256"):
            file.checked(key, SHA256, "64 hexadecimal digits")
        file.checked("adapter_sha256", f"({SHA256})?", "64 hexadecimal digits, or nothing")
        file.checked("layers", r"\d{1,4},\d{1,4},\d{1,4}", "three numbers of layers")
    except Unreadable as problem:
        raise HeadError(f"{path} {problem}. {WITHOUT}") from None
    return file


def use_of(directory: Path, lora: Lora | None, vocabulary: Vocabulary) -> dict[str, str]:
    """The metadata by which a head names the model in a directory. Raises AdapterError."""
    return {
        "weights_sha256": adapters.sum_of_weights(directory),
        "adapter_sha256": lora.file.sha256 if lora is not None else "",
        "vocabulary_sha256": vocabulary_sum(vocabulary.bytes),
    }


def equip(engine: CompletionEngine, directory: Path, lora: Lora | None, path: str) -> None:
    """Give the engine the head in a file, or `head_problem`: why it cannot be used. Between completions."""
    if not path:
        return
    try:
        file = read(Path(path))
        check_use(file, use_of(directory, lora, engine.prompter.vocabulary))
        engine.head = head = attach(engine.target_decoder, file)
        engine.costs.set_guess(HeadDrafter.source, head.measure())
        engine.target_format += f", head {label(file)}"
    except (HeadError, adapters.AdapterError) as error:
        engine.head_problem = str(error)


def check_use(file: TensorFile, use: Mapping[str, str]) -> None:
    """Raise HeadError if the head was trained for another model."""
    for key, other in TRAINED_FOR.items():
        if file.metadata[key] != use[key]:
            raise error_of(file, f"was trained for {other}")


def attach(target: CachedModel, file: TensorFile) -> DraftHead:
    """The head of a file, attached to its target. Raises HeadError."""
    if not isinstance(target, NativeDecoder):
        raise error_of(file, "is not used: only models in int8 or int4 on a CPU give hidden states")
    if (free_mib := DeviceMemory("cpu").free_mib()) < NEEDED_MIB:
        raise error_of(file, f"needs {NEEDED_MIB} MiB of memory, and {free_mib} MiB are free")
    try:
        return DraftHead(target, weights_of(file, target.shape, target.layers))
    except MemoryError:
        raise error_of(file, "does not fit into memory") from None


def weights_of(file: TensorFile, shape: ModelShape, layers: int) -> HeadWeights:
    """The tensors of a file, in floats, checked against the model's shape. Raises HeadError."""
    width = shape.hidden
    inner = file.tensors["up"].shape[0] // 2 if "up" in file.tensors and file.tensors["up"].shape else 0
    if inner % GROUP or 4 * inner < 3 * width:
        raise error_of(file, f"has an MLP of width {inner}: expected a multiple of {GROUP} above {3 * width // 4}")
    sizes = linear_sizes(shape, inner)
    tensors = {name: matrix(file, name, *size) for name, size in sizes.items()}
    tensors |= {name: stored(file, name, "F32", (width,)) for name in NORMS}
    tensors["qkv_bias"] = stored(file, "qkv_bias", "F32", sizes["qkv"][:1])
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise error_of(file, f"holds numbers for {name!r} that are not finite")
    first, second, third = map(int, file.metadata["layers"].split(","))
    if not 0 < first < second < third <= layers:
        raise error_of(file, f"reads the layers {first}, {second} and {third} of a model of {layers}")
    count = math.prod(file.tensors["vocabulary"].shape) if "vocabulary" in file.tensors else 0
    ids = stored(file, "vocabulary", "I32", (count,)).astype(np.int64)
    if not count or count % GROUP or len(np.unique(ids)) != count or ids.min() < 0 or ids.max() >= shape.vocab:
        raise error_of(file, f"has a vocabulary of {count} ids that does not fit the tokenizer's {shape.vocab} tokens")
    return HeadWeights(tensors, (first, second, third), ids)


def matrix(file: TensorFile, name: str, rows: int, columns: int) -> Floats:
    """A linear's weights, [rows, columns]. Raises HeadError."""
    if name in file.tensors and file.tensors[name].dtype == "U8":
        packed = stored(file, name, "U8", (rows, columns // 2))
        scale = stored(file, f"{name}.scale", "F16", (rows, columns // GROUP)).astype(np.float32)
        numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(rows, -1, GROUP).astype(np.float32) - 8
        weights: Floats = (numbers * scale[..., None]).reshape(rows, columns)
        return weights
    values = stored(file, name, "I8", (rows, columns)).astype(np.float32)
    values *= stored(file, f"{name}.scale", "F32", (rows,))[:, None]
    return values


def stored(file: TensorFile, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """A tensor of that number format and shape, copied. Raises HeadError."""
    tensor = file.tensors.get(name)
    if tensor is None or (tensor.dtype, tensor.shape) != (dtype, shape):
        own = f"{tensor.dtype} {list(tensor.shape)}" if tensor else "nothing"
        raise error_of(file, f"holds {own} as {name!r}, and the model expects {dtype} {list(shape)}")
    values: Array = np.frombuffer(file.bytes_of(name), NUMPY_TYPES[dtype]).reshape(shape).copy()
    return values
