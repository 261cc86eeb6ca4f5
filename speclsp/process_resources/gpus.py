"""Choice of the GPU that computes, the reason against one in a sentence, and a GPU's bandwidth."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from speclsp.process_resources import gpu_extra

MIN_CAPABILITY = (8, 0)  # Ampere, the first with bfloat16
COPIED_BYTES = 1 << 28  # to measure the bandwidth
COPIES = 8


def pick_device(wanted: str) -> tuple[str, str]:
    """(device, problem): "cpu" or a GPU by torch's name; and why an NVIDIA GPU is not used, or is slow, as a sentence.

    Of several GPUs, "auto" takes the one with the most free memory at the first call.
    """
    device, reason, fix = find_gpu(wanted)
    if not reason:
        return device, ""
    effect = "so the CPU computes" if device == "cpu" else "so the GPU computes more slowly"
    return device, f"{reason}, {effect}: {fix}."


def find_gpu(wanted: str) -> tuple[str, str, str]:
    """(device, reason, fix): as `pick_device`, with both parts of its sentence.

    torch is imported only with a GPU's driver, and not where an empty CUDA_VISIBLE_DEVICES hides all GPUs on purpose.
    """
    if wanted == "cpu":
        return "cpu", "", ""
    if not os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip():
        absent = ("CUDA_VISIBLE_DEVICES is empty", "unset it")
    elif not gpu_extra.has_gpu_driver():
        absent = ("This machine has no NVIDIA driver", "install it")
    else:
        return search_gpu(wanted)
    return "cpu", *(("", "") if wanted == "auto" else absent)


@cache
def search_gpu(wanted: str) -> tuple[str, str, str]:
    """One search per process: "auto", the memory plan and the note need one device, and free memory changes."""
    if not gpu_extra.is_installed():
        return "cpu", "This machine has an NVIDIA GPU, and PyTorch is not installed", gpu_extra.fix()
    import torch

    with warnings.catch_warnings(record=True) as caught:  # torch warns of an old driver
        warnings.simplefilter("always")
        try:
            reason, fix = unusable_gpu(torch, wanted, caught)
            if reason:
                return "cpu", reason, fix
            device = wanted if wanted.startswith("cuda:") else "cuda"
            if device == "cuda" and torch.cuda.device_count() > 1:
                usable = [at for at in range(torch.cuda.device_count()) if has_bf16(torch, at)]
                device = f"cuda:{max(usable, key=lambda at: (free_gpu_bytes(torch, at), -at))}"
        except RuntimeError as error:
            return "cpu", f"The GPU does not answer ({first_line(error)})", "restart the machine, or its driver"
    if find_spec("triton") is None:
        package = "triton-windows" if sys.platform == "win32" else "triton"  # Triton's own has no build for Windows
        return device, "Triton is not installed", f"run `pip install {package}`"
    return device, "", ""


def unusable_gpu(torch: Any, wanted: str, caught: Sequence[warnings.WarningMessage]) -> tuple[str, str]:
    """(reason, fix) for a GPU that torch cannot compute on; empty for one that it can.

    Args:
        caught: collects the warnings of torch.

    Raises:
        RuntimeError: a GPU does not answer.
    """
    if torch.version.cuda is None:
        reason = f"This machine has an NVIDIA GPU, and PyTorch {torch.__version__} is built without CUDA"
        return reason, f"install the other build with `pip install torch --index-url {gpu_extra.CUDA_INDEX}`"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        why = first_line(caught[0].message) if caught else "it finds no GPU"
        need = f"PyTorch {torch.__version__} with CUDA {torch.version.cuda} cannot use the NVIDIA driver"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")[:80]
        hidden = f', or unset CUDA_VISIBLE_DEVICES, which is "{visible}"' if visible else ""
        return f"{need} ({why})", f"update the driver, or load it{hidden}"
    numbers = [int(wanted[5:])] if wanted[5:].isdigit() else list(range(count))
    if numbers[-1] >= count:
        return f"PyTorch finds no {wanted}", f"set cuda:0 to cuda:{count - 1}" if count > 1 else "set cuda:0"
    if any(has_bf16(torch, at) for at in numbers):
        return "", ""
    return f"{torch.cuda.get_device_name(numbers[0])} computes without bfloat16", 'set device = "cpu"'


def has_bf16(torch: Any, index: int) -> bool:
    """True for a GPU that computes in bfloat16."""
    return bool(torch.cuda.get_device_capability(index) >= MIN_CAPABILITY)


def free_gpu_bytes(torch: Any, index: int) -> int:
    """Free memory of a GPU; 0 if it does not answer."""
    try:
        return int(torch.cuda.mem_get_info(index)[0])
    except RuntimeError:
        return 0


def first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:160]


@cache
def measured_gb_per_s(device: str) -> float | None:
    """The rate of a copy of 256 MiB on a GPU, bytes read and written; None without the memory for it.

    It is measured once per process. Without it, the model is chosen by its size in bf16.
    """
    import torch

    try:
        source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        target.copy_(source)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            began.record()
            for _ in range(COPIES):
                target.copy_(source)
            ended.record()
            ended.synchronize()
        elapsed_ms = float(began.elapsed_time(ended))
        del source, target
        torch.cuda.empty_cache()  # so that the next choice sees this memory as free
    except RuntimeError:
        return None
    return 2 * COPIES * COPIED_BYTES / elapsed_ms / 1e6
