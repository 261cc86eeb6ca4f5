"""Size of the program without a model: each package that a machine without a GPU installs, downloaded and on disk.

    python -m benchmarks install-size

pip fetches the wheels of `.` with the versions of constraints.txt, and installs them in an empty environment. `disk_mb`
leaves out files that Python compiled, which uv does not write, and pip and setuptools. `compiled_mb` are those files.
Prints the largest packages and writes benchmarks/results/install-size.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from benchmarks import results_file

MB = 10**6
TOOLS = ("pip", "setuptools")  # in each new environment of older Pythons
SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def main(options: argparse.Namespace) -> int:
    """Install, measure and write the result."""
    with tempfile.TemporaryDirectory(prefix="speclsp-size-") as name:
        wheels, venv = Path(name, "wheels"), Path(name, "venv")
        python = venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        run(sys.executable, "-m", "venv", venv)
        pip = (python, "-m", "pip", "--disable-pip-version-check", "-q")
        run(*pip, "wheel", "-w", wheels, "-c", results_file.CHECKOUT / "constraints.txt", results_file.CHECKOUT)
        run(*pip, "install", "--no-index", "--find-links", wheels, "speclsp")
        (site_packages,) = {file.parent for file in venv.rglob("speclsp-*.dist-info")}
        packages = sizes(site_packages)
        download_mb = sum(file.stat().st_size for file in wheels.iterdir()) / MB
    disk_mb, compiled_mb = (sum(part[at] for part in packages.values()) for at in (0, 1))
    figures = {
        "commit": run("git", "-C", results_file.CHECKOUT, "rev-parse", "--short", "HEAD").strip(),
        "download_mb": round(download_mb),
        "disk_mb": round(disk_mb),
        "compiled_mb": round(compiled_mb),
        "packages_mb": {name: round(part[0], 1) for name, part in packages.items()},
    }
    print(f"{download_mb:.0f} MB to download, {disk_mb:.0f} MB on disk, and {compiled_mb:.0f} MB of compiled files")
    for name, part in list(packages.items())[:SHOWN]:
        print(f"{part[0]:8.1f} MB  {name}")
    print(results_file.write("install-size", figures))
    return 0


def sizes(site_packages: Path) -> dict[str, tuple[float, float]]:
    """MB of each package, the largest first: its files, and those that Python compiled from them."""
    found: dict[str, tuple[float, float]] = {}
    for package in metadata.distributions(path=[str(site_packages)]):
        files = [Path(str(file.locate())) for file in package.files or []]
        parts = ([f.stat().st_size for f in files if f.is_file() and (f.suffix == ".pyc") is c] for c in (False, True))
        found[package.metadata["Name"].lower()] = tuple(sum(part) / MB for part in parts)  # type: ignore[assignment]
    return dict(sorted(((n, part) for n, part in found.items() if n not in TOOLS), key=lambda item: -item[1][0]))


def run(*command: str | Path) -> str:
    """The output of a command that must succeed."""
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True).stdout
