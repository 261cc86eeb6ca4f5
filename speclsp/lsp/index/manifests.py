"""Package names of a workspace, from its manifests: package.json, tsconfig.json's paths, go.mod, Cargo.toml.

Only these four facts are read; malformed entries are skipped.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator

from speclsp import private_files
from speclsp.lsp.index.import_resolution import joined

_MOST_BYTES = 128 * 1024
_MOST = 2000  # manifests of one workspace
_LONGEST = 200
_MOST_PATHS = 50  # of one tsconfig.json
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')


def roots(folder: str, paths: Iterable[str]) -> set[tuple[str, str, str]]:
    """(kind, name, directory in the folder) of every package; of TypeScript's paths, (…, "@/", where they lead)."""
    package_roots: set[tuple[str, str, str]] = set()
    for path in sorted(paths, key=lambda path: (path.count("/"), path))[:_MOST]:
        try:
            text = private_files.read_bytes(f"{folder}/{path}", _MOST_BYTES, follow=False).decode(
                "utf-8-sig", "replace"
            )
            for kind, name, directory in _facts(posixpath.basename(path), text):
                there = joined(posixpath.dirname(path), directory)
                if there is not None and 0 < len(name) <= _LONGEST and f"{name}{there}".encode():
                    package_roots.add((kind, name, there))
        except (OSError, ValueError, RecursionError, TypeError, AttributeError):
            continue
    return package_roots


def _facts(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    if name == "package.json":
        package = json.loads(text)
        if isinstance(package.get("name"), str):
            yield "npm", package["name"], ""
    elif name == "go.mod":
        module = re.search(r"^module\s+\"?([^\s\"]+)", text, re.MULTILINE)
        if module:
            yield "go", module[1], ""
    elif name == "Cargo.toml":
        crate = re.search(r"^\[package\][^\[]*?^name\s*=\s*\"([\w-]+)\"", text, re.MULTILINE)
        if crate:
            yield "cargo", crate[1], ""
    else:
        for pattern in (_COMMENT, _LAST_COMMA):  # JSON as people write it
            text = pattern.sub(lambda match: match[1] or "", text)
        options = json.loads(text).get("compilerOptions", {})
        base = str(options.get("baseUrl", "."))
        for name, targets in list(options.get("paths", {}).items())[:_MOST_PATHS]:
            for target in targets[:4]:
                if name.endswith("*") == target.endswith("*"):
                    yield "paths", name.removesuffix("*"), posixpath.join(base, target.removesuffix("*"))
