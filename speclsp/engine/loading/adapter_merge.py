"""Merges an adapter (LoRA) into a model's weights while they are read: W' = W + scale * B A.

The sum is computed in float32 and rounded to the type of W, as if the merged weights had been published. Quantization
comes afterwards. So the model is an ordinary one with other weights: its rows stay independent of each other, and
speculation stays lossless. A linear that is adapted has no superblocks any more: int4 rounds the merged weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from speclsp.engine.model import superblocks
from speclsp.engine.model.bfloat16 import Array, Floats, round_into, widen
from speclsp.weights.adapters import AdapterFile
from speclsp.weights.untrusted.safetensors_header import NUMPY_TYPES

PRODUCTS = 1 << 18  # multiply-adds of B A at a time: the sums stay in the cache, and a BLAS starts no threads for them
MAX_CHANGE = 4096.0  # of one weight: trained ones are below 1, and larger ones overflow half precision


class Lora:
    """An adapter, checked against one model: it has `layers` layers, and its tensors have `sizes`, by name.

    Raises AdapterError: its matrices do not fit the model, or are not finite.
    """

    def __init__(self, file: AdapterFile, sizes: Mapping[str, tuple[int, ...]], layers: int) -> None:
        self.file, self.label = file, file.label
        self.weights = {f"{linear}.weight" for linear in file.linears}
        for linear in file.linears:
            if (layer := int(linear.split(".")[2])) >= layers:
                raise file.error(f"adapts layer {layer}, and the model has the layers 0 to {layers - 1}")
            size = sizes.get(f"{linear}.weight")
            if size is None:
                raise file.error(f"adapts {linear}, which the model does not have")
            a, b = self.matrices(f"{linear}.weight")
            if (len(b), a.shape[1]) != size:
                raise file.error(f"adapts {linear} as {[len(b), a.shape[1]]}, and the model has it as {list(size)}")
            change = abs(file.scale) * file.rank * float(np.abs(a).max()) * float(np.abs(b).max())
            if not change <= MAX_CHANGE:  # false for NaN too
                raise file.error(f"has numbers for {linear} that are not finite or too large")

    def adapts(self, name: str) -> bool:
        """True for an adapted weight, by its own name or by that of its superblocks."""
        return superblocks.weight_name(name) in self.weights

    def matrices(self, name: str) -> tuple[Floats, Floats]:
        """A [rank, in] and B [out, rank] of a weight, in float32."""
        a, b = (decode(self.file, f"base_model.model.{name.removesuffix('weight')}lora_{side}.weight") for side in "AB")
        return a, b

    def merged(self, name: str, weight: Array) -> Array:
        """`weight` [out, in] with the adapter, in its own type."""
        a, b = self.matrices(name)
        merged, step = np.empty_like(weight), max(1, PRODUCTS // a.size)
        for first in range(0, len(weight), step):
            rows = slice(first, first + step)
            sums = b[rows] @ a
            sums *= self.file.scale
            sums += widen(weight[rows])
            if merged.dtype == np.uint16:
                round_into(merged[rows], sums)
            else:
                merged[rows] = sums
        return merged


def decode(file: AdapterFile, name: str) -> Floats:
    """A matrix of the file in float32; int8 rows times their scale."""
    values = plain(file, name)
    if file.tensors[name].dtype == "I8":
        values *= plain(file, f"{name}.scale")[:, None]
    return values


def plain(file: AdapterFile, name: str) -> Floats:
    """A tensor of the file, as float32, copied."""
    stored = file.tensors[name]
    values = np.frombuffer(file.bytes_of(name), NUMPY_TYPES[stored.dtype]).reshape(stored.shape)
    return widen(values.copy())
