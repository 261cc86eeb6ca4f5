"""Checks of `speclsp doctor` on the installation: program, packages, settings and directories."""

from __future__ import annotations

import platform
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata

import speclsp
from speclsp import config as settings
from speclsp.cli.first_run.doctor_check import FAIL, OK, WARN, DoctorCheck
from speclsp.process_resources import gpu_extra
from speclsp.process_resources.programs import find_program

PACKAGES = ("tree-sitter", "pygls")


def python(which: Callable[[str], str | None] = find_program, system: str = sys.platform) -> DoctorCheck:
    """Report the versions. On Windows pip installs the command into a directory that PATH may lack."""
    summary = f"speclsp {speclsp.__version__}, Python {platform.python_version()}, {platform.system()}"
    summary += f" {platform.machine()}"
    if system != "win32" or which("speclsp"):
        return DoctorCheck("python", OK, summary)
    fix = f"add {sysconfig.get_path('scripts')} to PATH, or write `py -m speclsp` in place of `speclsp`"
    return DoctorCheck("python", WARN, f"{summary}; `speclsp` is not on PATH", fix)


def packages() -> DoctorCheck:
    """Check the packages by their metadata, because some imports take seconds, and tree-sitter by a parse."""
    versions: dict[str, str] = {}
    for name in (*PACKAGES, *gpu_extra.PACKAGES):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    summary = ", ".join(f"{name} {version}" for name, version in versions.items())
    for name in PACKAGES:
        if name not in versions:
            return DoctorCheck("packages", FAIL, f"{name} is not installed", f"python -m pip install {name}")
    from speclsp.lsp.syntax.parser import SyntaxParser

    try:
        tree = SyntaxParser().parse("python", "x = 1", 1000)
    except (ImportError, ValueError, TypeError) as error:  # a grammar of another ABI
        return DoctorCheck("packages", WARN, f"{summary}; {error}", "python -m pip install -U tree-sitter-python")
    missing = [name for name in gpu_extra.PACKAGES if name not in versions]
    if tree is None or 0 < len(missing) < len(gpu_extra.PACKAGES):
        problem = f"{', '.join(missing)} not installed" if tree else "python did not parse"
        return DoctorCheck("packages", WARN, f"{summary}; {problem}", f"`{gpu_extra.command()}`")
    return DoctorCheck("packages", OK, f"{summary}; no PyTorch, which few models need on a CPU" if missing else summary)


def of_settings(problems: list[str]) -> DoctorCheck:
    """Report problems in config.toml and the flags."""
    path = settings.config_path()
    if problems:
        return DoctorCheck("settings", FAIL, " ".join(problems), f"correct {path} or the flags of this command")
    return DoctorCheck("settings", OK, str(path) if path.exists() else f"the defaults (no {path})")


def directories() -> DoctorCheck:
    """Check that the directories of sockets, logs and weights can be written, or made."""
    places = {"runtime": settings.runtime_path(), "cache": settings.cache_dir(), "logs": settings.log_dir()}
    summary = ", ".join(f"{name} {place}" for name, place in places.items())
    denied = [str(path) for path in places.values() if not settings.accepts_files(settings.nearest_existing(path))]
    fix = f"make {' and '.join(denied)} writable, or set XDG_RUNTIME_DIR, XDG_CACHE_HOME or XDG_STATE_HOME"
    return DoctorCheck("directories", FAIL if denied else OK, summary, fix if denied else "")
