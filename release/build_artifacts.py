"""Release artifacts in dist/: the sdist, five wheels, three VSIX files and the Neovim plugin.

    tracked files ─► build/release/source ─► addresses.toml written in ─► sdist ─► wheels
                                                                            └────► VSIX, which carry the server

The copy keeps compiled libraries and local files of a checkout out of the artifacts. Run it as `make dist`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath

import tomli

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build/release/source"
DIST = ROOT / "dist"
PURE, PLATFORM = "SPECLSP_PURE_WHEEL", "SPECLSP_WHEEL_PLATFORM"  # hatch_build.py reads them
PAGES = ("README.md", "CHANGELOG.md", "editors/nvim/README.md")  # vsce rewrites the links of the extension's pages
PLUGIN = ("plugin", "lua", "lsp", "doc", "images", "README.md", "LICENSE")
URL_LABELS = {
    "repository": "Repository",
    "issues": "Issues",
    "documentation": "Documentation",
    "changelog": "Changelog",
    "nvim_plugin": "Neovim plugin",
}
LIBRARIES = {  # manylinux lets wheels link to these
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
}
WINDOWS_LIBRARIES = re.compile(r"kernel32\.dll|api-ms-win-crt-[a-z]+-l1-1-0\.dll")  # parts of Windows 10 and newer
MARKDOWN_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
HTML_LINK = re.compile(r"(<(img|source|a)\b[^>]*?\b(?:src|srcset|href)=\")([^\"]+)(?=\")")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--node", required=True, help="directory of node and npm")
    parser.add_argument("--nvim", required=True, help="Neovim, which writes the plugin's help tags")
    options = parser.parse_args()
    addresses = read_addresses()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    copy_source()
    write_addresses(addresses)
    sdist = build_sdist()
    build_wheels(sdist)
    build_vsix(sdist, Path(options.node), addresses)
    build_plugin(Path(options.nvim))
    for path in sorted(path for path in DIST.iterdir() if path.is_file()):
        print(f"{path.stat().st_size / 1000:>8.0f} kB  dist/{path.name}")
    if missing := [name for name, address in addresses.items() if not address]:
        print(f"Not ready for upload: release/addresses.toml lacks {', '.join(missing)}.")


def read_addresses() -> dict[str, str]:
    """The addresses by name. Ends the program for one that is not https."""
    addresses: dict[str, str] = tomli.loads((ROOT / "release/addresses.toml").read_text("utf-8"))
    for name, address in addresses.items():
        if address and not address.startswith("https://"):
            sys.exit(f"release/addresses.toml: {name} = {address!r} does not start with https://.")
    return addresses


def copy_source() -> None:
    """Copy every tracked file of the checkout to SOURCE."""
    shutil.rmtree(SOURCE.parent, ignore_errors=True)
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listing.split("\0")):
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, SOURCE / name)


def write_addresses(addresses: Mapping[str, str]) -> None:
    """Write the addresses into SOURCE: pyproject.toml, package.json and the links of PAGES."""
    project = SOURCE / "pyproject.toml"
    project.write_text(project.read_text("utf-8") + project_urls(addresses), "utf-8")
    package = SOURCE / "editors/vscode/package.json"
    content = json.loads(package.read_text("utf-8")) | package_fields(addresses)
    package.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
    for name in PAGES:
        page = SOURCE / name
        page.write_text(absolute_links(page.read_text("utf-8"), PurePosixPath(name), addresses), "utf-8")


def project_urls(addresses: Mapping[str, str]) -> str:
    """The table [project.urls]; "" without addresses."""
    rows = [f'"{label}" = "{addresses[name]}"' for name, label in URL_LABELS.items() if addresses[name]]
    return "\n".join(["", "[project.urls]", *rows, ""]) if rows else ""


def package_fields(addresses: Mapping[str, str]) -> dict[str, object]:
    """The fields of package.json that hold addresses."""
    fields: dict[str, object] = {}
    if addresses["repository"]:
        fields["repository"] = {"type": "git", "url": addresses["repository"], "directory": "editors/vscode"}
    if addresses["issues"]:
        fields["bugs"] = {"url": addresses["issues"]}
    if addresses["documentation"]:
        fields["homepage"] = addresses["documentation"]
    return fields


def absolute_links(text: str, page: PurePosixPath, addresses: Mapping[str, str]) -> str:
    """`text` of `page` with absolute links to files and images of the repository; unchanged without addresses."""

    def address(target: str, image: bool) -> str:
        prefix = addresses["raw_files" if image else "files"]
        if not prefix or "://" in target or target.startswith(("#", "mailto:")):
            return target
        return f"{prefix.rstrip('/')}/{normpath(str(page.parent / target))}"

    text = MARKDOWN_LINK.sub(lambda match: f"{match[1]}[{match[2]}]({address(match[3], image=bool(match[1]))})", text)
    return HTML_LINK.sub(lambda match: match[1] + address(match[3], image=match[2] != "a"), text)


def build_sdist() -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", DIST], cwd=SOURCE)
    (sdist,) = DIST.glob("*.tar.gz")
    return sdist


def build_wheels(sdist: Path) -> None:
    """Build the wheels from the sdist: for Linux x86-64 as pip does it for users, pure, for ARM64 and for Windows."""
    run([sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", DIST, sdist], cwd=DIST)
    (binary,) = DIST.glob("*-py3-none-manylinux_*_x86_64.whl")
    check_symbols(binary, 2)
    with tarfile.open(sdist) as archive:
        archive.extractall(SOURCE.parent, filter="data")
    unpacked = SOURCE.parent / sdist.name.removesuffix(".tar.gz")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", DIST], cwd=unpacked, **{PURE: "1"})
    for platform in ("darwin-arm64", "linux-aarch64", "win32-AMD64"):
        for other in unpacked.glob("speclsp/engine/model/int8/_forward*"):  # of the platform before
            other.unlink()
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", DIST]
        run(build, cwd=unpacked, **{PLATFORM: platform})
    (arm64,) = DIST.glob("*-py3-none-manylinux_*_aarch64.whl")
    check_symbols(arm64, 1)
    (windows,) = DIST.glob("*-py3-none-win_amd64.whl")
    check_imports(windows, 2)


def check_symbols(wheel: Path, count: int) -> None:
    """End the program if a library in the wheel needs a newer glibc than its tag, or a library outside manylinux."""
    tag = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    assert tag, wheel.name
    allowed = (int(tag[1]), int(tag[2]))
    for name, content in compiled_libraries(wheel, ".so", count).items():
        needed, foreign = newest_glibc(content), linked_libraries(content) - LIBRARIES
        if needed > allowed or foreign:
            version = ".".join(map(str, needed))
            sys.exit(f"{wheel.name}: {name} needs glibc {version} and {sorted(foreign)}; correct hatch_build.py.")


def check_imports(wheel: Path, count: int) -> None:
    """End the program if a DLL in the wheel needs one that is no part of Windows."""
    for name, content in compiled_libraries(wheel, ".dll", count).items():
        if foreign := [other for other in imported_dlls(content) if not WINDOWS_LIBRARIES.fullmatch(other.lower())]:
            sys.exit(f"{wheel.name}: {name} needs {sorted(foreign)}; correct hatch_build.py.")


def compiled_libraries(wheel: Path, suffix: str, count: int) -> dict[str, bytes]:
    """The compiled libraries in a wheel, by name. Ends the program if there are not `count` of them."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = {name: archive.read(name) for name in archive.namelist() if name.endswith(suffix)}
    if len(libraries) != count:
        sys.exit(f"{wheel.name} holds {len(libraries)} compiled libraries instead of {count}: was ziglang installed?")
    return libraries


def imported_dlls(library: bytes) -> list[str]:
    """Names of the DLLs in a 64-bit DLL's import table (Microsoft's PE format, "The .idata Section")."""
    (header,) = struct.unpack_from("<I", library, 0x3C)
    sections, optional_bytes = struct.unpack_from("<2xH12xH", library, header + 4)
    optional = header + 24
    assert library[header : header + 4] == b"PE\0\0" and library[optional : optional + 2] == b"\x0b\x02", "PE32+"
    rows = [struct.unpack_from("<8x4I", library, optional + optional_bytes + 40 * i) for i in range(sections)]

    def offset(address: int) -> int:
        """The place in the file of an address relative to the loaded image."""
        return next(raw + address - start for _, start, size, raw in rows if start <= address < start + size)

    def dlls() -> Iterator[str]:
        entry = offset(struct.unpack_from("<I", library, optional + 120)[0])
        while name := struct.unpack_from("<I", library, entry + 12)[0]:
            yield library[offset(name) :].partition(b"\0")[0].decode("ascii")
            entry += 20

    return list(dlls())


def newest_glibc(library: bytes) -> tuple[int, int]:
    """The newest symbol version GLIBC_x.y in an ELF file's string table, as (x, y)."""
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library)
    return max((int(major), int(minor)) for major, minor in versions)


def linked_libraries(library: bytes) -> set[str]:
    """Names of shared libraries in an ELF file's string table."""
    return {name.decode() for name in re.findall(rb"\0((?:lib|ld-)[\w+.-]*\.so\.\d+)(?=\0)", library)}


def build_vsix(sdist: Path, node: Path, addresses: Mapping[str, str]) -> None:
    """Package the extension for Linux, Windows and every platform, with the server inside.

    That is the platform's wheel. The file for every platform has the sdist, which pip compiles for the machine.
    """
    folder = SOURCE / "editors/vscode"
    (linux_wheel,) = DIST.glob("*-py3-none-manylinux_*_x86_64.whl")
    (windows_wheel,) = DIST.glob("*-py3-none-win_amd64.whl")
    (folder / "node_modules").symlink_to(ROOT / "editors/vscode/node_modules")
    version = json.loads((folder / "package.json").read_text("utf-8"))["version"]
    flags = ["--no-dependencies"]
    if addresses["repository"] and addresses["files"] and addresses["raw_files"]:
        flags += ["--baseContentUrl", f"{addresses['files'].rstrip('/')}/editors/vscode"]
        flags += ["--baseImagesUrl", f"{addresses['raw_files'].rstrip('/')}/editors/vscode"]
    else:
        flags += ["--allow-missing-repository", "--no-rewrite-relative-links"]
    vsce = [node / "node", "node_modules/@vscode/vsce/vsce", "package", *flags]
    path = f"{node}{os.pathsep}{os.environ['PATH']}"
    for target, package in (("linux-x64", linux_wheel), ("win32-x64", windows_wheel), ("", sdist)):
        shutil.rmtree(folder / "server", ignore_errors=True)
        (folder / "server").mkdir()
        shutil.copy2(package, folder / "server")
        shutil.copy2(SOURCE / "constraints.txt", folder / "server")
        name = f"speclsp-{version}-{target}.vsix" if target else f"speclsp-{version}.vsix"
        run([*vsce, *(["--target", target] if target else []), "--out", DIST / name], cwd=folder, PATH=path)


def build_plugin(nvim: Path) -> None:
    """Build dist/speclsp.nvim, a directory that a plugin manager installs, and its archive."""
    plugin = DIST / "speclsp.nvim"
    plugin.mkdir()
    for name in PLUGIN:
        origin = SOURCE / "editors/nvim" / name
        (shutil.copytree if origin.is_dir() else shutil.copy2)(origin, plugin / name)
    readme = plugin / "README.md"
    readme.write_text(plugin_readme(readme.read_text("utf-8")), "utf-8")
    run([nvim, "--headless", "-u", "NONE", "-i", "NONE", "-c", "helptags doc", "-c", "qall"], cwd=plugin)
    version = json.loads((SOURCE / "editors/vscode/package.json").read_text("utf-8"))["version"]
    write_archive(plugin, DIST / f"speclsp.nvim-{version}.tar.gz")


def plugin_readme(text: str) -> str:
    """The plugin's page for a directory without the rest of the repository."""
    text = text.replace("/path/to/speclsp/editors/nvim", "/path/to/speclsp.nvim")
    text = text.replace("/path/to/speclsp is a checkout", "/path/to/speclsp.nvim is this directory")
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+([^)#]+)[^)]*\)", r"\1 (`\2` in speclsp's repository)", text)


def write_archive(folder: Path, archive: Path) -> None:
    """Write a .tar.gz whose bytes depend on the files alone."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as file,
    ):
        file.add(folder, folder.name, filter=anonymous)


def run(command: list[str | Path], cwd: Path, **environment: str) -> None:
    """Run a build step quietly. Ends the program with the step's output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
