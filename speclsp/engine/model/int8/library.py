"""The libraries compiled from forward.c: their functions, and its struct of a model's sizes."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_void_p
from pathlib import Path


class CShape(Structure):
    """The struct Shape of forward.c."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "positions", "rows")
        ),
        ("embedding", c_int32),
        ("eps", c_float),
        ("attention_scale", c_float),
    ]


@functools.cache
def library(name: str) -> ctypes.CDLL | None:
    """A library compiled from forward.c, loaded; None if the package was built without it."""
    file = Path(__file__).parent / name
    if not file.is_file():
        return None
    try:
        loaded = ctypes.CDLL(str(file))
    except OSError:
        return None
    signatures: dict[str, tuple[object, list[object]]] = {
        "path": (c_int32, []),
        "new": (c_void_p, [POINTER(CShape), c_void_p, c_void_p, c_void_p, c_int32, c_int32]),
        "linear": (c_int32, [c_void_p, c_int32, c_int32, c_void_p, c_void_p, c_int32, c_int32, c_int32]),
        "norm": (c_int32, [c_void_p, c_int32, c_int32, c_void_p, c_int32]),
        "forward": (c_int32, [*[c_void_p] * 2, *[c_int32] * 2, *[c_void_p] * 2, c_int32, c_void_p, c_int32, c_void_p]),
        "embed": (None, [c_void_p, c_void_p, c_int32, c_void_p]),
        "share_embedding": (None, [c_void_p, c_void_p]),
        "keep_states": (None, [*[c_void_p] * 2, *[c_int32] * 3]),
        "draft": (None, [*[c_void_p] * 3, *[c_int32] * 3, *[c_void_p] * 2, c_int32, *[c_void_p] * 2]),
        "read_weights": (None, [c_void_p, c_int32]),
        "peak": (c_double, [c_int32, c_int32, c_int32, c_double]),
        "profile": (None, [c_void_p, POINTER(c_double)]),
        "free": (None, [c_void_p]),
    }
    for short, (result, arguments) in signatures.items():
        function = getattr(loaded, f"speclsp_{short}")
        function.restype, function.argtypes = result, arguments
    return loaded
