"""Compile speclsp/engine/model/int8/forward.c while the package is built.

It uses zig's C compiler, which pip installs, so that every wheel has the same code and no user needs a compiler. Where
that fails the package is pure Python, and slower. SPECLSP_PURE_WHEEL=1 builds the pure wheel on purpose.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "x86_64-linux-gnu.2.17"  # the oldest glibc that the libraries run on
TAG = "py3-none-manylinux_2_17_x86_64"  # of the same glibc; `make dist` compares it with the libraries' symbols
LIBRARIES = {"_forward.so": [], "_forward_avx2.so": ["-DNARROW"]}  # AVX-512 and AMX; AVX2
FLAGS = ["-O3", "-fno-sanitize=undefined", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread", "-s"]


class ForwardBuilder(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook: runs for wheels and for editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or sys.platform != "linux" or platform.machine() != "x86_64":
            return
        if version == "standard" and os.environ.get("SPECLSP_PURE_WHEEL"):
            return
        source = Path(self.root) / "speclsp" / "engine" / "model" / "int8"
        for name, flags in LIBRARIES.items():
            compiler = [sys.executable, "-m", "ziglang", "cc", "-target", TARGET, *FLAGS, *flags]
            try:
                subprocess.run(
                    [*compiler, "-o", str(source / f"{name}.new"), str(source / "forward.c")],
                    check=True,
                    capture_output=True,
                    text=True,
                )
            except (OSError, subprocess.CalledProcessError) as error:
                why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
                self.app.display_warning(f"{name} was not compiled, speclsp will be slower: {why[-1:]}")
                continue
            (source / f"{name}.new").replace(source / name)  # a running engine keeps the one it has mapped
            build_data["artifacts"].append(f"speclsp/engine/model/int8/{name}")
            build_data["pure_python"] = False
            build_data["tag"] = TAG
