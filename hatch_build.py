"""Compile speclsp/engine/model/int8/forward.c while the package is built, and choose the models that it ships.

It uses zig's C compiler, which pip installs, so that every wheel has the same code and no user needs a compiler. Where
that fails the package is pure Python, and slower. SPECLSP_PURE_WHEEL=1 builds the pure wheel on purpose;
SPECLSP_WHEEL_PLATFORM=darwin-arm64 builds a wheel for another platform of PLATFORMS.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = {  # of a platform: {library: flags}
    "x86_64": {"_forward.so": [], "_forward_avx2.so": ["-DNARROW"]},  # AVX-512 and AMX; AVX2 and AVX-VNNI
    "arm64": {"_forward_neon.so": []},
}
# {platform: (instructions, zig's target, the wheel's tag)}. glibc 2.17 is the oldest that the libraries run on: `make
# dist` compares it with their symbols.
PLATFORMS = {
    "linux-x86_64": ("x86_64", "x86_64-linux-gnu.2.17", "py3-none-manylinux_2_17_x86_64"),
    "linux-aarch64": ("arm64", "aarch64-linux-gnu.2.17", "py3-none-manylinux_2_17_aarch64"),
    "darwin-arm64": ("arm64", "aarch64-macos.11.0", "py3-none-macosx_11_0_arm64"),
}
FLAGS = [
    *("-O3", "-ffp-contract=off", "-fno-sanitize=undefined", "-Wall", "-Wextra"),
    *("-shared", "-fPIC", "-pthread", "-s"),
]


NOT_SHIPPED = {"training", "__pycache__"}  # of models/: it needs the benchmarks and a network


def shipped_models(root: Path) -> dict[str, str]:
    """{path in the checkout: path in the wheel} of the cards and the small models."""
    entries = sorted(entry for entry in (root / "models").iterdir() if entry.name not in NOT_SHIPPED)
    return {str(entry): f"speclsp/models/{entry.name}" for entry in entries}


class ForwardBuilder(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook: runs for wheels and for editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version == "standard":
            build_data["force_include"].update(shipped_models(Path(self.root)))
        here = f"{sys.platform}-{platform.machine()}"
        wanted = os.environ.get("SPECLSP_WHEEL_PLATFORM", here) if version == "standard" else here
        if self.target_name != "wheel" or wanted not in PLATFORMS:
            return
        if version == "standard" and os.environ.get("SPECLSP_PURE_WHEEL"):
            return
        instructions, target, tag = PLATFORMS[wanted]
        source = Path(self.root) / "speclsp" / "engine" / "model" / "int8"
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS]
        with ThreadPoolExecutor() as pool:  # each takes half a minute
            running = {
                name: pool.submit(
                    subprocess.run,
                    [*compiler, *flags, "-o", str(source / f"{name}.new"), str(source / "forward.c")],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                for name, flags in LIBRARIES[instructions].items()
            }
        for name, compiled in running.items():
            try:
                compiled.result()
            except (OSError, subprocess.CalledProcessError) as error:
                why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
                self.app.display_warning(f"{name} was not compiled, speclsp will be slower: {why[-1:]}")
                continue
            (source / f"{name}.new").replace(source / name)  # a running engine keeps the one it has mapped
            build_data["artifacts"].append(f"speclsp/engine/model/int8/{name}")
            build_data["pure_python"] = False
            build_data["tag"] = tag
