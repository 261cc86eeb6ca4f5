"""Import resolution: the workspace file that an import means, by the rules of its language and the known paths.

Each rule yields candidates, the likeliest first; the first one in the index wins. Some languages search places that are
not known here (include directories, class paths): then any file whose path ends in the right way will do, the nearest
one first.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Protocol

PYTHON = (".py", ".pyi")
SCRIPTS = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
_WRITTEN_AS = {".js": (".ts", ".tsx", ".d.ts"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_INDEXES = tuple(f"/index{suffix}" for suffix in SCRIPTS)
_DEEPEST = 40
_LONGEST = 400


class KnownFiles(Protocol):
    """Queries about the files of a workspace."""

    def first_existing(self, paths: Iterable[str]) -> str | None:
        """The first of these that is there."""

    def files_with_stem(self, stem: str) -> list[str]:
        """The files of a name, without its suffix."""

    def files_in(self, directory: str) -> list[str]:
        """The files right in a directory."""

    def package_roots(self, kind: str) -> list[tuple[str, str]]:
        """(name, directory) of the packages that manifests declare, the longest name first."""


def resolve(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The path of the file that `module` means in the file at `from_path`; None where it is none of the workspace's."""
    if not module or len(module) > _LONGEST or module.count("/") > _DEEPEST or module.count(".") > _DEEPEST:
        return None
    suffix = posixpath.splitext(from_path)[1].lower()
    if suffix in PYTHON:
        return _python(module, from_path, files)
    if suffix in SCRIPTS:
        return _script(module, from_path, files)
    if suffix == ".rs":
        return _rust(module, from_path, files)
    if suffix == ".go":
        return _go(module, from_path, files)
    if suffix in (".java", ".cs", ".php"):
        return _by_end(module.replace(".", "/").replace("\\", "/").lstrip("/") + suffix, from_path, files)
    return _path(module, from_path, suffix, files)


def above(path: str) -> Iterator[str]:
    """The directories that a file lies in, the innermost first; "" is the workspace folder."""
    directory = posixpath.dirname(path)
    for _ in range(_DEEPEST):
        yield directory
        if not directory:
            return
        directory = posixpath.dirname(directory)


def joined(*parts: str) -> str | None:
    """A path in the workspace folder; None for one that leads out of it."""
    path = posixpath.normpath(posixpath.join(*filter(None, parts)) if any(parts) else "")
    if path == "." or path == "":
        return ""
    return None if path.startswith(("..", "/")) else path


def distance(path: str, near: str) -> int:
    """Number of directory steps from one file's directory to the other's."""
    directory, near_directory = posixpath.dirname(path).split("/"), posixpath.dirname(near).split("/")
    same = 0
    for mine, theirs in zip(directory, near_directory, strict=False):
        if mine != theirs:
            break
        same += 1
    return len(directory) + len(near_directory) - 2 * same


def _by_end(end: str, near: str, files: KnownFiles) -> str | None:
    stem = posixpath.basename(end).split(".", 1)[0]
    matches = [path for path in files.files_with_stem(stem) if path == end or path.endswith("/" + end)]
    return min(matches, key=lambda path: (distance(path, near), path)) if matches else None


# ── Python ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _python(module: str, from_path: str, files: KnownFiles) -> str | None:
    bare = module.lstrip(".")
    dots = len(module) - len(bare)
    inner = "/".join(filter(None, bare.split(".")))
    if dots:
        here = list(above(from_path))
        return files.first_existing(_python_files(here[dots - 1], inner)) if dots <= len(here) else None
    places = [place for place in above(from_path) if _is_no_package(place, files)]
    tried = [*places, *(f"{place}/{name}".lstrip("/") for place in places for name in ("src", "lib", "python"))]
    path = files.first_existing(path for place in tried for path in _python_files(place, inner))
    if path:
        return path
    for end in (f"{inner}/__init__", *([inner] if "/" in inner else [])):
        for suffix in PYTHON:
            there = _by_end(end + suffix, from_path, files) if "/" in end else None
            if there and _is_no_package(there[: -len(end + suffix)].rstrip("/"), files):
                return there
    return None


def _python_files(directory: str, inner: str) -> Iterator[str]:
    base = "/".join(filter(None, (directory, inner)))
    if inner:
        yield from (base + suffix for suffix in PYTHON)
    yield from (f"{base}/__init__{suffix}".lstrip("/") for suffix in PYTHON)


def _is_no_package(directory: str, files: KnownFiles) -> bool:
    return not files.first_existing(f"{directory}/__init__{suffix}".lstrip("/") for suffix in PYTHON)


# ── JavaScript and TypeScript ─────────────────────────────────────────────────────────────────────────────────────────


def _script(module: str, from_path: str, files: KnownFiles) -> str | None:
    if module.startswith("."):
        base = joined(posixpath.dirname(from_path), module)
        return None if base is None else files.first_existing(_script_files(base, module.endswith(("/", "."))))
    for name, directory in files.package_roots("paths"):  # tsconfig.json: "@/*" is "@/", "src/"
        if module.startswith(name) and (name.endswith("/") or module == name):
            base = joined(directory, module[len(name) :])
            path = files.first_existing(_script_files(base, False)) if base is not None else None
            if path:
                return path
    for name, directory in files.package_roots("npm"):
        if module == name or module.startswith(name + "/"):
            inner = module[len(name) + 1 :]
            bases = [joined(directory, inner), joined(directory, "src", inner), joined(directory, "lib", inner)]
            return files.first_existing(
                path for base in bases if base is not None for path in _script_files(base, not inner)
            )
    return None


def _script_files(base: str, directory: bool) -> Iterator[str]:
    stem, suffix = posixpath.splitext(base)
    if not directory:
        yield from (stem + written for written in _WRITTEN_AS.get(suffix, ()))
        yield base
        yield from (base + ending for ending in SCRIPTS)
    yield from ((base + ending).lstrip("/") for ending in _INDEXES)


# ── Rust, Go, and what names paths ────────────────────────────────────────────────────────────────────────────────────


def _rust(module: str, from_path: str, files: KnownFiles) -> str | None:
    first, *rest = module.split("::")
    directory, name = posixpath.split(from_path)
    own = directory if name in ("mod.rs", "lib.rs", "main.rs") else joined(directory, name.removesuffix(".rs"))
    base: str | None
    if first == "crate":
        base = _crate(from_path, files)
    elif first in ("self", "super"):
        base = own
        for part in [first, *rest]:
            if part == "super":
                base = posixpath.dirname(base) if base else None
        rest = [part for part in rest if part != "super"]
    else:
        named = next((place for known, place in files.package_roots("cargo") if known.replace("-", "_") == first), None)
        base = joined(named, "src") if named is not None else None
        roots = (f"{name}/src/lib.rs" for name in (first, first.replace("_", "-")))
        root = next(filter(None, (_by_end(end, from_path, files) for end in roots)), None) if base is None else None
        if root is not None:  # its manifest was not found
            base = posixpath.dirname(root)
        if base is None:  # a module beside this one, by its bare name
            base, rest = own, [first, *rest]
    if base is None:
        return None
    for length in range(len(rest), -1, -1):  # what follows are items of that module
        inner = "/".join(filter(None, (base, *rest[:length])))
        ends = [f"{inner}.rs", f"{inner}/mod.rs"] if inner else []
        ends += [f"{inner}/{root}".lstrip("/") for root in ("lib.rs", "main.rs")] if not length else []
        path = files.first_existing(ends)
        if path:
            return path if first in ("crate", "self", "super") or length or path != from_path else None
        if not length or (length == 1 and first not in ("crate", "self", "super") and rest[0] == first):
            return None
    return None


def _crate(from_path: str, files: KnownFiles) -> str | None:
    for place in above(from_path):
        if files.first_existing(f"{place}/{root}".lstrip("/") for root in ("lib.rs", "main.rs")):
            return place
        if posixpath.basename(place) in ("tests", "benches", "examples"):
            return place  # each of its files is a crate
    return None


def _go(module: str, from_path: str, files: KnownFiles) -> str | None:
    for name, directory in files.package_roots("go"):
        if module == name or module.startswith(name + "/"):
            place = joined(directory, module[len(name) + 1 :])
            if place is None:
                return None
            paths = [path for path in files.files_in(place) if path.endswith(".go") and not path.endswith("_test.go")]
            package = posixpath.basename(place) or posixpath.basename(module)
            return min(paths, key=lambda path: (posixpath.basename(path) != f"{package}.go", path), default=None)
    return None


def _path(module: str, from_path: str, suffix: str, files: KnownFiles) -> str | None:
    """C's includes, and what requires a file by its path or by words with dots."""
    if suffix == ".lua":
        module = module.replace(".", "/")
    base = joined(posixpath.dirname(from_path), module)
    near = files.first_existing((base, base + suffix)) if base else None
    if near:
        return near
    end = joined(module)
    if not end:
        return None
    return _by_end(end, from_path, files) or _by_end(end + suffix, from_path, files)
