"""Which errors say that memory has run out, and which that the device no longer answers. No torch here.

Either is told apart from a bug by what torch, CUDA, oneDNN and the C library say of it. What is caught is cleared: a
traceback keeps the frames of a forward pass, and with them its tensors, for as long as somebody holds the error.
"""

from __future__ import annotations

import errno
import sys

from speclsp.errors import OutOfMemory, SpeclspError

FULL = (  # in small letters
    "out of memory",  # torch's on a GPU, CUDA's own, Linux's
    "can't allocate memory",  # DefaultCPUAllocator
    "cannot allocate memory",
    "not enough memory",  # the same on Windows
    "bad_alloc",
    "bad allocation",
    "alloc_failed",  # cuBLAS, cuDNN
)
DEVICE = ("cuda error", "cuda driver error", "cudnn error", "cublas_status", "cudnn_status", "acceleratorerror")


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, the device's or the machine's."""
    if isinstance(error, MemoryError | OutOfMemory):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in FULL)


def blames_the_device(error: BaseException) -> bool:
    """Whether the device failed, and not for want of memory: it is to be asked whether it still answers."""
    if ran_out_of_memory(error) or not isinstance(error, RuntimeError):
        return False
    return any(words in f"{type(error).__name__}: {error}".lower() for words in DEVICE)


def let_go(error: BaseException) -> None:
    """Keep nothing alive by `error`, nor by what it came of."""
    rest: list[BaseException | None] = [error]
    while rest:
        one = rest.pop()
        if one is not None:
            rest += [one.__context__, one.__cause__]
            one.__traceback__ = one.__context__ = one.__cause__ = None


def one_line(error: BaseException) -> str:
    """What went wrong, for a person: our own errors speak for themselves, others are named."""
    text = " ".join(str(error).split())
    return text if isinstance(error, SpeclspError) else f"{type(error).__name__}: {text[:300]}"
