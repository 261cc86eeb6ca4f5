"""The committed results by file name, and the models and kinds of CPU that charts and tables name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclsp.errors import SpeclspError

SMALL, LARGE = "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"
NAMES = {SMALL: "0.5B", LARGE: "1.5B"}
CPU_KINDS = {  # kinds of CPU with results of `peers`
    "avx512-bf16": "an AMD EPYC (Zen 4, AVX-512)"
}

Figures = Mapping[str, Any]
Results = Mapping[str, Figures]
"""{file name without .json: what it holds}."""


def read(directory: Path) -> Results:
    """Every result in a directory, by file name. Raises SpeclspError for one that cannot be read."""
    results = {}
    for file in sorted(directory.glob("*.json")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SpeclspError(f"{file} cannot be read: {error}. Remove it, or run its benchmark again.") from None
        if isinstance(data, dict) and "bench" in data:
            results[file.stem] = data
    return results


def newest_gpu(results: Results) -> Figures | None:
    """The newest result of benchmarks/speed/gpu/gpu.py on a GPU; each kind of GPU has a file of its own."""
    on_gpus = [data for data in results.values() if data["bench"] == "gpu" and data["device"] == "cuda"]
    return max(on_gpus, key=lambda data: str(data["made_utc"]), default=None)
