"""Checksums of the source files that decide a cached value: a change to any of them makes another cache key.

Whole packages are listed, not single files, so that a new module of a package cannot be forgotten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import speclsp
from speclsp.weights import model_directory

PRODUCT = Path(speclsp.__file__).parent
TOKEN_PACKAGES = ("engine/model", "engine/decoding", "engine/loading")  # any file in them may change a token
KINDS = ("*.py", "*.c", "*.h", "*.scm")


def digest(value: object) -> str:
    """32 hexadecimal digits of the sha256 of a value, as JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def source_digest(root: Path, packages: Sequence[str], kinds: Sequence[str] = KINDS) -> str:
    """Digest of the names and bytes of all source files in some packages below `root`."""
    files = sorted(file for package in packages for kind in kinds for file in (root / package).rglob(kind))
    return digest([[file.relative_to(root).as_posix(), model_directory.sum_of(file)] for file in files])


@cache
def token_source() -> str:
    """Digest of the engine's source files that can change a token."""
    return source_digest(PRODUCT, TOKEN_PACKAGES)
