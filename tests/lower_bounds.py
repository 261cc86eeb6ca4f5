"""Lower bounds of pyproject.toml: installs exactly them in an empty environment, builds the kernels and completes.

    python tests/lower_bounds.py        about 4 GB of downloads; `make soak` runs it

Every `name>=X` of the dependencies, of the extra gpu and of the build system becomes `name==X`. It fails if pip finds
no such set, if the package is built without a kernel, if a grammar does not load, or if speclsp does not complete. The
environment and the copy of the tracked files lie outside the checkout, and are removed. SPECLSP_LOWER_BOUNDS_DIR keeps
them in a directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("_forward.so", "_forward_avx2.so")  # hatch_build.py, on x86-64
CODE = "def area(width, height):\n    return width * height\n\n\ndef perimeter(width, height):\n    return "
GRAMMARS = "from speclsp.lsp.syntax import tree; print(len([tree.load_grammar(name) for name in tree.GRAMMARS]))"
OWN_PLACES = ("CONFIG", "STATE", "CACHE", "DATA")


def pinned(requirement: str) -> str:
    """The requirement at its lower bound. Raises ValueError: it has none."""
    parsed = Requirement(requirement)
    lowest = [bound.version for bound in parsed.specifier if bound.operator in (">=", "~=", "==")]
    if len(lowest) != 1:
        raise ValueError(f"{requirement} has {len(lowest)} lower bounds: give it one with >=.")
    marker = f" ; {parsed.marker}" if parsed.marker else ""
    return f"{parsed.name}=={lowest[0]}{marker}"


def lower_bounds(project: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(the build system's requirements, the dependencies), each at its lower bound."""
    build, dependencies = project["build-system"]["requires"], project["project"]["dependencies"]
    dependencies = [*dependencies, *project["project"]["optional-dependencies"]["gpu"]]
    return [pinned(each) for each in build], [pinned(each) for each in dependencies]


@contextmanager
def directory() -> Iterator[Path]:
    """An empty directory, kept where the variable names one."""
    if kept := os.environ.get("SPECLSP_LOWER_BOUNDS_DIR"):
        shutil.rmtree(kept, ignore_errors=True)
        Path(kept).mkdir(parents=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="speclsp-lower-") as name:
        yield Path(name)


def copy_tracked_files(target: Path) -> None:
    """Copy the checkout without local files: a build writes its libraries beside their source."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listing.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def main() -> int:
    """Install, build and complete. Returns the exit code."""
    build, dependencies = lower_bounds(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8")))
    with directory() as root:
        copy_tracked_files(root / "source")
        places = {f"XDG_{name}_HOME": str(root / name.lower()) for name in OWN_PLACES}
        (root / "run").mkdir(mode=0o700)
        environment = os.environ | places | {"XDG_RUNTIME_DIR": str(root / "run")}
        environment.pop("PYTHONPATH", None)
        python = root / "venv/bin/python"

        def run(*command: str | Path) -> str:
            words = [str(word) for word in command]
            done = subprocess.run(words, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                sys.exit(
                    f"{' '.join(words[:6])} ... ended with {done.returncode}. Raise the lower bound that it names."
                )
            return done.stdout

        run(sys.executable, "-m", "venv", root / "venv")
        pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run(*pip, *build)
        run(*pip, "--no-build-isolation", *dependencies, root / "source")
        package = Path(run(python, "-c", "import speclsp; print(speclsp.__path__[0])").strip())
        if missing := [name for name in LIBRARIES if not (package / "engine/model/int8" / name).is_file()]:
            sys.exit(f"{build} compiled no {', '.join(missing)}. Raise the lower bound of ziglang.")
        run(python, "-c", GRAMMARS)
        (root / "area.py").write_text(CODE)
        text = run(root / "venv/bin/speclsp", "complete", "area.py:6:12", "--model", "tiny")
        if not text.strip():
            sys.exit("speclsp completed nothing with the lower bounds.")
    print(f"{len(build) + len(dependencies)} lower bounds: installed, built, and completed {text.strip()!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
