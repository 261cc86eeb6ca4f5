"""The draft head for a model that is loaded: found by what it belongs to, decoded, and attached.

T        int8 [rows, columns]       value = T * T.scale, float32 [rows]
T        uint8 [rows, columns / 2]  value = (nibble - 8) * T.scale, float16 [rows, columns / 32]; low nibbles first
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.model.decoder import ModelShape
from speclsp.engine.model.int8.draft_head import NORMS, DraftHead, HeadWeights
from speclsp.engine.model.int8.hidden_states import STATES
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.weights import adapters, heads
from speclsp.weights.heads import HeadError, HeadUse
from speclsp.weights.untrusted.tensor_file import TensorFile

GROUP = 32  # weights of 4 bits that share a scale; outputs that forward.c multiplies together
DTYPES = {"I8": "i1", "U8": "u1", "F16": "<f2", "F32": "<f4", "I32": "<i4"}
NEEDED_MIB = 64  # its weights, and buffers


def use_of(directory: Path, lora: Lora | None, vocabulary: Vocabulary) -> HeadUse:
    """The model in a directory, as a head's metadata name it. Raises AdapterError."""
    adapter = lora.file.sha256 if lora is not None else ""
    return HeadUse(adapters.sum_of_weights(directory), adapter, heads.vocabulary_sum(vocabulary.bytes))


def equip(engine: CompletionEngine, directory: Path, lora: Lora | None, models_dir: str) -> None:
    """Give the engine the head of its target, or `head_problem`: why one cannot be used. Between completions."""
    try:
        use = use_of(directory, lora, engine.prompter.vocabulary)
        file, engine.head_problem = heads.find(use, models_dir)
        if file is not None:
            head = attach(engine.target_decoder, file)
            engine.head, engine.costs.head_ms = head, head.measure()
            engine.target_format += f", head {heads.label(file)}"
    except (HeadError, adapters.AdapterError) as error:
        engine.head_problem = str(error)


def attach(target: CachedModel, file: TensorFile) -> DraftHead:
    """The head of a file, attached to its target. Raises HeadError."""
    if not isinstance(target, NativeDecoder):
        raise heads.error(file, "is not used: only models in int8 or int4 on a CPU give hidden states")
    if (free_mib := DeviceMemory("cpu").free_mib()) < NEEDED_MIB:
        raise heads.error(file, f"needs {NEEDED_MIB} MiB of memory, and {free_mib} MiB are free")
    try:
        return DraftHead(target, weights_of(file, target.shape, target.layers))
    except MemoryError:
        raise heads.error(file, "does not fit into memory") from None


def weights_of(file: TensorFile, shape: ModelShape, layers: int) -> HeadWeights:
    """The tensors of a file, in floats, checked against the model's shape. Raises HeadError."""
    width, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    inner = file.tensors["up"].shape[0] // 2 if "up" in file.tensors and file.tensors["up"].shape else 0
    if inner % GROUP or 4 * inner < 3 * width:
        raise heads.error(file, f"has an MLP of width {inner}: expected a multiple of {GROUP} above {3 * width // 4}")
    sizes = {
        "fuse": (width, STATES * width), "input": (width, 2 * width), "qkv": (queries + 2 * keys, width),
        "out": (width, queries), "up": (2 * inner, width), "down": (width, inner),
    }  # fmt: skip
    tensors = {name: matrix(file, name, *size) for name, size in sizes.items()}
    tensors |= {name: torch.from_numpy(stored(file, name, "F32", (width,))) for name in NORMS}
    tensors["qkv_bias"] = torch.from_numpy(stored(file, "qkv_bias", "F32", (queries + 2 * keys,)))
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise heads.error(file, f"holds numbers for {name!r} that are not finite")
    first, second, third = map(int, file.metadata["layers"].split(","))
    if not 0 < first < second < third <= layers:
        raise heads.error(file, f"reads the layers {first}, {second} and {third} of a model of {layers}")
    count = math.prod(file.tensors["vocabulary"].shape) if "vocabulary" in file.tensors else 0
    ids = stored(file, "vocabulary", "I32", (count,)).astype(np.int64)
    if not count or count % GROUP or len(np.unique(ids)) != count or ids.min() < 0 or ids.max() >= shape.vocab:
        raise heads.error(
            file, f"has a vocabulary of {count} ids that does not fit the tokenizer's {shape.vocab} tokens"
        )
    return HeadWeights(tensors, (first, second, third), torch.from_numpy(ids))


def matrix(file: TensorFile, name: str, rows: int, columns: int) -> Tensor:
    """A linear's weights, [rows, columns]. Raises HeadError."""
    if name in file.tensors and file.tensors[name].dtype == "U8":
        packed = torch.from_numpy(stored(file, name, "U8", (rows, columns // 2)))
        scale = torch.from_numpy(stored(file, f"{name}.scale", "F16", (rows, columns // GROUP))).float()
        numbers = torch.stack([packed & 15, packed >> 4], dim=-1).view(rows, -1, GROUP).float() - 8
        return (numbers * scale[..., None]).view(rows, columns)
    values = torch.from_numpy(stored(file, name, "I8", (rows, columns))).float()
    return values * torch.from_numpy(stored(file, f"{name}.scale", "F32", (rows,)))[:, None]


def stored(file: TensorFile, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor of that number format and shape, copied. Raises HeadError."""
    tensor = file.tensors.get(name)
    if tensor is None or (tensor.dtype, tensor.shape) != (dtype, shape):
        own = f"{tensor.dtype} {list(tensor.shape)}" if tensor else "nothing"
        raise heads.error(file, f"holds {own} as {name!r}, and the model expects {dtype} {list(shape)}")
    values: NDArray[Any] = np.frombuffer(file.bytes_of(name), DTYPES[dtype]).reshape(shape).copy()
    return values
