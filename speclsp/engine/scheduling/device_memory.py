"""A device: whether it still answers, and the release of its unused memory."""

from __future__ import annotations

import ctypes
import gc
import sys

from speclsp.engine.scheduling.device_errors import is_device_failure, ran_out_of_memory


class DeviceMemory:
    """Memory of "cpu", or of a GPU by torch's name."""

    def __init__(self, device: str) -> None:
        self.device = device

    def works(self) -> bool:
        """True while the device answers. After some faults and some suspends it never does again in this process."""
        if self.device == "cpu":
            return True
        import torch

        try:
            torch.ones(1, device=self.device).add_(1).item()
        except RuntimeError as error:
            return ran_out_of_memory(error)
        return True

    def lost_message(self, error: BaseException) -> str:
        """The message for a device that no longer answers; "" when `error` does not mean that."""
        if not is_device_failure(error) or self.works():
            return ""
        return (
            f"{self.device} no longer responds ({type(error).__name__}): the engine ends, "
            "and the next client starts another one."
        )

    def trim(self) -> None:
        """Return unreferenced memory to the system; otherwise Python, torch and malloc keep it for later."""
        gc.unfreeze()  # loading froze its objects, so that no collection walks over them in mid-request
        gc.collect()
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()
        trim_malloc()
        gc.freeze()


def trim_malloc() -> None:
    """Empty glibc's arenas of freed memory; other systems' allocators return it by themselves."""
    if sys.platform == "linux":
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if malloc_trim is not None:
            malloc_trim(0)
