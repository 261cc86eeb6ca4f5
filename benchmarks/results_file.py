"""What a benchmark leaves behind: one JSON file with its figures, the machine, the versions and the seeds.

    {"bench": "peers", "made_utc": "...", "machine": {...}, "versions": {...}, ...figures}

A figure without its machine says nothing, so no benchmark writes a file in any other way.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

PACKAGES = ("speclsp", "torch", "transformers", "bitsandbytes", "tokenizers", "pygls", "triton", "numpy")
RESULTS = Path("benchmarks/results")  # from the checkout's root, where benchmarks are run


def machine() -> dict[str, object]:
    """What it ran on, in words and numbers; no host name, no user, no path."""
    import psutil
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": cpu_name(),
        "cpu_features": cpu_features(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    """The processor's own name."""
    return from_cpuinfo("model name") or platform.processor() or "unknown"


def cpu_features() -> list[str]:
    """Of the instruction sets that decide our speed, those this processor has."""
    wanted = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimddp", "i8mm")
    flags = set((from_cpuinfo("flags") or from_cpuinfo("Features")).split())
    return [name for name in wanted if name in flags]


def from_cpuinfo(field: str) -> str:
    """The first value of a field of /proc/cpuinfo; "" where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == field), "")


def versions() -> dict[str, str]:
    """The packages that matter, as installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def write(bench: str, figures: Mapping[str, object], name: str = "", directory: Path = RESULTS) -> Path:
    """Write `figures` of a benchmark as `directory`/`name`.json (`name` is the bench's own unless given)."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name or bench}.json"
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    whole = {"bench": bench, "made_utc": made, "machine": machine(), "versions": versions(), **figures}
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return file
