"""Classification of errors: out of memory, failed device, or neither. No torch here.

The wording of torch, CUDA, oneDNN and the C library tells these errors from bugs. A caught error must be cleared: its
traceback keeps the frames of a forward pass alive, and with them its tensors, while anything refers to the error.
"""

from __future__ import annotations

import errno
import sys

from speclsp.errors import OutOfMemory, SpeclspError, shortened

OUT_OF_MEMORY_TEXTS = (  # in lower case
    "out of memory",  # torch's on a GPU, CUDA's own, Linux's
    "can't allocate memory",  # DefaultCPUAllocator
    "cannot allocate memory",
    "not enough memory",  # the same on Windows
    "bad_alloc",
    "bad allocation",
    "alloc_failed",  # cuBLAS, cuDNN
)
DEVICE_TEXTS = ("cuda error", "cuda driver error", "cudnn error", "cublas_status", "cudnn_status", "acceleratorerror")


def ran_out_of_memory(error: BaseException) -> bool:
    """True when the device's or the machine's memory ran out."""
    if isinstance(error, MemoryError | OutOfMemory):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in OUT_OF_MEMORY_TEXTS)


def is_device_failure(error: BaseException) -> bool:
    """True when the device failed for another reason than memory. The caller then tests whether it still answers."""
    if ran_out_of_memory(error) or not isinstance(error, RuntimeError):
        return False
    return any(text in f"{type(error).__name__}: {error}".lower() for text in DEVICE_TEXTS)


def clear_references(error: BaseException) -> None:
    """Drop the tracebacks, causes and contexts of `error`, so that it keeps no tensor alive."""
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is not None:
            pending += [current.__context__, current.__cause__]
            current.__traceback__ = current.__context__ = current.__cause__ = None


def one_line(error: BaseException) -> str:
    """The error in one line for a person. The type is named for errors that are not our own."""
    text = " ".join(str(error).split())
    return text if isinstance(error, SpeclspError) else f"{type(error).__name__}: {shortened(text, 300)}"
