"""A wheel for Windows in a Windows Python: pip installs it there, into a directory of its own."""

from __future__ import annotations

import ensurepip
import subprocess
from pathlib import Path

LIMIT_S = 900
LIBRARIES = {"_forward.dll", "_forward_avx2.dll"}


def windows_path(path: Path) -> str:
    """A path of Linux as Windows programs under Wine see it."""
    return f"Z:{path.resolve()}".replace("/", "\\")


def run(windows: list[str], *words: str | Path) -> str:
    """Standard output of the Windows Python, which must succeed. Paths are given as Windows'."""
    words = tuple(windows_path(word) if isinstance(word, Path) else word for word in words)
    done = subprocess.run([*windows, *words], input=b"", capture_output=True, timeout=LIMIT_S, check=False)
    output, errors = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{output}{errors}"
    return output


def install(windows: list[str], wheel: Path, target: Path) -> None:
    """Install a wheel without its dependencies by the pip that Python carries; it refuses other systems' wheels."""
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    options = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", "--target")
    run(windows, pip / "pip", "install", *options, target, wheel)
