"""The extra `gpu`: PyTorch and bitsandbytes, which an engine on a CPU does not need.

They are needed for a GPU; for engine.quantization "bf16", "fp32" and "nf4"; and for a model or a processor that
the compiled forward pass does not support.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from speclsp.process_resources.programs import find_program

PACKAGES = ("torch", *(() if sys.platform == "darwin" else ("bitsandbytes",)))
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # PyTorch without CUDA, for Linux: its package index has CUDA
CUDA_INDEX = "https://download.pytorch.org/whl/cu126"  # with CUDA, for Windows: its package index has none
GPU_SIZE, CPU_SIZE = "5.7 GB", "0.9 GB"  # on disk: with CUDA, and without (docs/install.md)


def is_installed() -> bool:
    """True if PyTorch can be imported."""
    return find_spec("torch") is not None


def problem(need: str, otherwise: str = "") -> str:
    """A sentence if `need` needs PyTorch and it is not installed; "" if it is. `otherwise`: another way out."""
    return "" if is_installed() else f"{need} needs PyTorch, which is not installed: {fix()}{otherwise}."


def fix() -> str:
    """The way to PyTorch, in part of a sentence: the size on disk, and the command."""
    return f"install it ({GPU_SIZE if has_gpu_driver() else CPU_SIZE} on disk) with `{command()}`"


def command() -> str:
    """The command that adds the extra to this program, by the tool that installed it."""
    if (Path(sys.prefix) / "uv-receipt.toml").exists():
        url = source_url()
        return f'uv tool install --torch-backend=auto "speclsp[gpu]{f" @ {url}" if url else ""}"'
    python = Path(sys.executable).as_posix()
    if find_spec("pip") is None:
        return f'uv pip install --torch-backend=auto --python "{python}" "speclsp[gpu]"'
    index = {("linux", False): CPU_INDEX, ("win32", True): CUDA_INDEX}.get((sys.platform, has_gpu_driver()), "")
    return f'"{python}" -m pip install {f"--extra-index-url {index} " if index else ""}"speclsp[gpu]"'


def source_url() -> str:
    """The directory or archive that speclsp was installed from, as a URL; "" for a package index (PEP 610)."""
    import json
    from importlib import metadata

    try:
        return str(json.loads(metadata.distribution("speclsp").read_text("direct_url.json") or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return ""


def has_gpu_driver() -> bool:
    """True where an NVIDIA driver is installed, or was."""
    return bool(find_program("nvidia-smi")) or Path("/dev/nvidiactl").exists()
