"""Package names of a workspace, from the manifests of its languages, as package.json or go.mod.

Nothing else is read from a manifest; malformed entries are skipped.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from speclsp import private_files
from speclsp.lsp.syntax.languages import LANGUAGES
from speclsp.lsp.syntax.languages.import_rules import ManifestReader, joined

_MAX_BYTES = 128 * 1024
_MOST = 2000  # manifests of one workspace
_LONGEST = 200
READERS: Mapping[str, ManifestReader] = MappingProxyType(  # by file name
    {
        name: reader
        for language in LANGUAGES
        if language.imports is not None
        for name, reader in language.imports.manifests.items()
    }
)


def roots(folder: str, paths: Iterable[str]) -> set[tuple[str, str, str]]:
    """(kind, name, directory in the folder) of every package; of TypeScript's paths, (…, "@/", where they lead)."""
    package_roots: set[tuple[str, str, str]] = set()
    for path in sorted(paths, key=lambda path: (path.count("/"), path))[:_MOST]:
        try:
            text = private_files.read_bytes(f"{folder}/{path}", _MAX_BYTES, follow=False).decode("utf-8-sig", "replace")
            for kind, name, directory in READERS[posixpath.basename(path)](text):
                there = joined(posixpath.dirname(path), directory)
                if there is not None and 0 < len(name) <= _LONGEST and f"{name}{there}".encode():
                    package_roots.add((kind, name, there))
        except (OSError, ValueError, RecursionError, TypeError, AttributeError):
            continue
    return package_roots
