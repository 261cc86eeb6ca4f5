"""Compile speclsp/engine/model/int8/forward.c while the package is built, and choose the models that it ships.

It uses zig's C compiler, which pip installs, so that every wheel has the same code and no user needs a compiler. Where
that fails the package is pure Python, and slower. SPECLSP_PURE_WHEEL=1 builds the pure wheel on purpose;
SPECLSP_WHEEL_PLATFORM=darwin-arm64 builds a wheel for another platform of PLATFORMS.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = {  # of a processor: {library: flags}
    "x86_64": {"_forward": [], "_forward_avx2": ["-DNARROW"]},  # AVX-512 and AMX; AVX2 and AVX-VNNI
    "arm64": {"_forward_neon": []},
}
# {platform: (instructions, zig's target, the wheel's tag)}. glibc 2.17 is the oldest that the libraries run on: `make
# dist` compares it with their symbols.
PLATFORMS = {
    "linux-x86_64": ("x86_64", "x86_64-linux-gnu.2.17", "py3-none-manylinux_2_17_x86_64"),
    "linux-aarch64": ("arm64", "aarch64-linux-gnu.2.17", "py3-none-manylinux_2_17_aarch64"),
    "darwin-arm64": ("arm64", "aarch64-macos.11.0", "py3-none-macosx_11_0_arm64"),
    "win32-AMD64": ("x86_64", "x86_64-windows-gnu", "py3-none-win_amd64"),
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


def install(built: Path, target: Path) -> None:
    """Copy a library over `target` in one step: a running engine keeps the one that it has mapped. Raises OSError."""
    beside = target.with_name(f"{target.stem}.{os.getpid()}.new{target.suffix}")  # that suffix stays out of the sdist
    try:
        shutil.copy(built, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


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
        suffix = ".dll" if wanted.startswith("win32") else ".so"
        libraries = {f"{name}{suffix}": flags for name, flags in LIBRARIES[instructions].items()}

        def compile_library(name: str) -> None:
            with tempfile.TemporaryDirectory() as built:  # for Windows, the linker writes an import library beside it
                output = Path(built) / name
                flags = [*libraries[name], *([f"-Wl,-install_name,@rpath/{name}"] if "macos" in target else [])]
                command = [*compiler, *flags, "-o", str(output), str(source / "forward.c")]
                subprocess.run(command, check=True, capture_output=True, text=True)
                install(output, source / name)

        with ThreadPoolExecutor() as pool:  # each takes half a minute
            running = {name: pool.submit(compile_library, name) for name in libraries}
        for name, compiled in running.items():
            try:
                compiled.result()
            except (OSError, subprocess.CalledProcessError) as error:
                why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
                self.app.display_warning(f"{name} was not compiled, speclsp will be slower: {why[-1:]}")
                continue
            build_data["artifacts"].append(f"speclsp/engine/model/int8/{name}")
            build_data["pure_python"] = False
            build_data["tag"] = tag
