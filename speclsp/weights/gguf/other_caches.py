"""GGUF files that other programs have downloaded: caches of llama.cpp and the Hugging Face hub.

    llama.cpp   $LLAMA_CACHE, or llama.cpp/ in the user's cache:  OWNER_REPO_FILE, or FILE alone
    hub         $HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub:  models--OWNER--REPO/snapshots/REVISION/FILE

llama.vscode starts llama.cpp, which fills one of the first two: newer versions of llama.cpp use the hub's layout, also
in $LLAMA_CACHE. On Windows ~ is %USERPROFILE%, and the user's cache of llama.cpp is %LOCALAPPDATA%. The files are only
read. Size and name are compared here; the caller compares the checksum.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


def find(repo: str, name: str, size_bytes: int, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The first file with this name and size; links are resolved. None where there is none."""
    for candidate in candidates(repo, name, environment):
        try:
            file = candidate.expanduser().resolve(strict=True)
            if file.is_file() and file.stat().st_size == size_bytes:
                return file
        except (OSError, RuntimeError):  # absent, not readable, a loop of links, or no home directory
            continue
    return None


def candidates(repo: str, name: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """Every path at which a program would have put `name` of `repo`; it may begin with ~."""
    flat = f"{repo.replace('/', '_')}_{name}"
    for directory in llama_directories(environment):
        yield directory / flat
        yield directory / name
    for directory in (*llama_directories(environment), *hub_directories(environment)):
        snapshots = directory / f"models--{repo.replace('/', '--')}" / "snapshots"
        try:
            revisions = sorted(snapshots.expanduser().iterdir())
        except (OSError, RuntimeError):  # absent, not readable, or no home directory
            continue
        yield from (revision / name for revision in revisions)


def llama_directories(environment: Mapping[str, str], system: str = sys.platform) -> list[Path]:
    """llama.cpp's cache, as its fs_get_cache_directory finds it; ~ is not expanded."""
    if chosen := environment.get("LLAMA_CACHE"):
        return [Path(chosen)]
    if system == "darwin":
        return [Path("~/Library/Caches/llama.cpp")]
    if system == "win32":
        return [Path(environment.get("LOCALAPPDATA") or "~/AppData/Local", "llama.cpp")]
    return [user_cache(environment) / "llama.cpp"]


def hub_directories(environment: Mapping[str, str]) -> list[Path]:
    """The hub's cache, in the order in which huggingface_hub reads its variables; ~ is not expanded."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := environment.get(variable):
            return [Path(chosen)]
    home = environment.get("HF_HOME")
    return [(Path(home) if home else user_cache(environment) / "huggingface") / "hub"]


def user_cache(environment: Mapping[str, str]) -> Path:
    """$XDG_CACHE_HOME, or ~/.cache; a relative path does not count."""
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path("~/.cache")
