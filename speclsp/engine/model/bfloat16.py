"""bfloat16 in NumPy, which has no such type: an array of uint16 holds the upper halves of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]
BFloat16 = NDArray[np.uint16]

NAN = 0x7FC0
SLICE_VALUES = 1 << 15  # rounded at a time: they stay in the cache


def widen(values: Array) -> Floats:
    """bfloat16, or floats of another type, as float32. A float32 array is returned itself."""
    if values.dtype != np.uint16:
        return values.astype(np.float32, copy=False)
    wide = values.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def narrow(values: Array) -> BFloat16:
    """Floats of any type, rounded to nearest even. A bfloat16 array is returned itself."""
    if values.dtype == np.uint16:
        return values
    flat = values.reshape(-1)
    rounded = np.empty(flat.shape, np.uint16)
    for start in range(0, len(flat), SLICE_VALUES):
        part = slice(start, start + SLICE_VALUES)
        round_into(rounded[part], flat[part].astype(np.float32))
    return rounded.reshape(values.shape)


def round_into(rounded: BFloat16, values: Floats) -> None:
    """Round contiguous `values` to nearest even; they are overwritten."""
    bits, is_nan = values.view(np.uint32), np.isnan(values)
    bits += (bits >> 16) & 1
    bits += 0x7FFF
    rounded[...] = bits >> 16
    if is_nan.any():
        rounded[is_nan] = NAN
