"""The libraries compiled from forward.c: their functions, and its struct of a model's sizes."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import sysconfig
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

DIRECTORY = Path(__file__).parent
SUFFIX = ".dll" if sys.platform == "win32" else ".so"  # macOS loads .so as well


def names_for(processor: str) -> tuple[str, ...]:
    """The names of the libraries for a processor, as platform.machine() or on Windows sysconfig.get_platform() has it.

    On Windows on ARM, a Python for x86-64 runs under emulation, and its libraries are those for x86-64.
    platform.machine() is ARM64 there.
    """
    return ("_forward", "_forward_avx2") if processor in ("x86_64", "win-amd64") else ("_forward_neon",)


NAMES = names_for(sysconfig.get_platform() if sys.platform == "win32" else platform.machine())


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


def library(name: str) -> ctypes.CDLL | None:
    """A library compiled from forward.c, by its name without suffix; None if it is missing or cannot be loaded."""
    return load_library(name)[0]


def load_problem(path: str) -> str:
    """A sentence about libraries of this machine that cannot be loaded, its effect and its fix; "" if there are none.

    A package may be built without libraries. On Windows a missing one is a problem: the wheel has it, and antivirus
    programs delete files that they suspect.

    Args:
        path: the instruction set in use; "" if no library is.
    """
    expected = [name for name in NAMES if sys.platform == "win32" or (DIRECTORY / f"{name}{SUFFIX}").exists()]
    errors = [f"{DIRECTORY / name}{SUFFIX} {error}" for name in expected if (error := load_library(name)[1])]
    if not errors:
        return ""
    effect = f"the CPU computes with {path}" if path else "PyTorch has to compute, which is slower"
    fix = "install speclsp again, and allow the file in the antivirus program if that blocked it"
    return f"{' and '.join(errors)}, so {effect}: {fix}."


@functools.cache
def load_library(name: str) -> tuple[ctypes.CDLL | None, str]:
    """(library, "") or (None, why it cannot be loaded)."""
    file = DIRECTORY / f"{name}{SUFFIX}"
    if not file.is_file():
        return None, "is missing"
    try:
        loaded = ctypes.CDLL(str(file))
    except OSError as error:
        return None, f"cannot be loaded ({error})"
    signatures: dict[str, tuple[object, list[object]]] = {
        "path": (c_int32, []),
        "new": (c_void_p, [POINTER(CShape), c_void_p, c_void_p, c_void_p, c_int32, c_int32]),
        "linear": (c_int32, [c_void_p, c_int32, c_int32, c_void_p, c_void_p, c_int32, c_int32, c_int32]),
        "parts": (None, [c_void_p, c_int32, c_int32, c_void_p, c_void_p]),
        "release": (None, [c_void_p, c_int32, c_int32]),
        "borrow": (c_int32, [c_void_p, *[c_int32] * 5, c_void_p, c_void_p]),
        "fetch": (None, [c_void_p, c_int64]),
        "guard": (None, [c_void_p, c_int64, c_char_p, c_char_p]),
        "norm": (c_int32, [c_void_p, c_int32, c_int32, c_void_p, c_int32]),
        "forward": (c_int32, [*[c_void_p] * 2, *[c_int32] * 2, *[c_void_p] * 2, c_int32, c_void_p, c_int32, c_void_p]),
        "read_weights": (None, [c_void_p, c_int32]),
        "peak": (c_double, [c_int32, c_int32, c_int32, c_double]),
        "profile": (None, [c_void_p, POINTER(c_double)]),
        "free": (None, [c_void_p]),
    }
    for short, (result, arguments) in signatures.items():
        function = getattr(loaded, f"speclsp_{short}")
        function.restype, function.argtypes = result, arguments
    return loaded, ""
