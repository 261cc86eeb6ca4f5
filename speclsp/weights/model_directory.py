"""Validation of a model's directory on disk, and its manifest.

    manifest.json   every other file's size, SHA-256 and time of change, and where they came from; written last, so it
                    means "whole"

A directory is loaded only with config.json, tokenizer.json, and whole safetensors or a GGUF. Formats that run code when
read (pickle) and models that bring code (auto_map, .py) are refused, whoever made the directory. Sizes and headers are
checked each time; every byte by `altered`, and of a file that has another time of change than it had when it was made.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from speclsp import private_files
from speclsp.private_files.os_errors import sentence
from speclsp.weights.untrusted import safetensors_header, untrusted_files
from speclsp.weights.untrusted.untrusted_files import Unreadable

MANIFEST = "manifest.json"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
CHUNK_BYTES = 1 << 22

Advance = Callable[[int, int, str], None]  # bytes done, of how many, of which file


def is_there(directory: Path) -> bool:
    """True for a readable directory that is not empty."""
    try:
        return any(directory.iterdir())
    except OSError:
        return False


def weight_files(directory: Path) -> list[Path]:
    """The files with the weights: safetensors, or a GGUF where there are none."""
    return sorted(directory.glob("*.safetensors")) or sorted(directory.glob("*.gguf"))


def manifest(directory: Path) -> dict[str, Any]:
    """manifest.json, or {} where there is none of ours."""
    try:
        content = untrusted_files.read_json(directory / MANIFEST, untrusted_files.CONFIG_BYTES)
        for name, entry in content["files"].items():
            if Path(name).name != name or not isinstance(entry["bytes"], int) or not isinstance(entry["sha256"], str):
                return {}
        return content
    except (Unreadable, KeyError, TypeError, AttributeError):
        return {}


def write_manifest(directory: Path, content: dict[str, Any]) -> None:
    """Write manifest.json in one step, once every file it names is there and as it should be."""
    for name, entry in content["files"].items():
        entry.setdefault("modified_ns", (directory / name).stat().st_mtime_ns)
    private_files.replace(directory / MANIFEST, json.dumps(content, indent=2).encode(), mode=0o644, sync=True)


def unread_manifest(directory: Path, repair: str) -> str:
    """The sentence about a manifest.json that is there and cannot be opened, as a link elsewhere; "" otherwise."""
    file = directory / MANIFEST
    try:
        if file.is_symlink() or file.exists():
            untrusted_files.open_plain(file).close()
    except Unreadable as error:
        return f"{file} {error}. {error.fix or repair}"
    except OSError as error:
        return sentence(error, file, "be read")
    return ""


def damage(directory: Path, repair: str) -> str:
    """The first fault in names, sizes and headers, as sentences that end with `repair`; "" without one.

    Takes a millisecond or two; `altered` checks every byte.
    """
    if problem := unread_manifest(directory, repair):
        return problem
    for name, expected in manifest(directory).get("files", {}).items():
        try:
            size = (directory / name).stat().st_size
        except FileNotFoundError:
            return f"{directory / name} is missing. {repair}"
        except OSError as error:
            return sentence(error, directory / name, "be read")
        if size != expected["bytes"] and (directory / name).is_file():
            cut = f"{directory / name} is {size} bytes long, not {expected['bytes']}"
            return f"{cut}: it was truncated or altered. {repair}"
    return unfit(directory, repair)


def unfit(directory: Path, repair: str) -> str:
    """The reason why a directory cannot be loaded, apart from its manifest; "" when it can."""
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        return sentence(error, directory, "be read")
    files = weight_files(directory)
    pickles = [name for name in names if name.endswith(PICKLES)]
    if "adapter_config.json" in names and "config.json" not in names:
        return f"{directory} is an adapter (LoRA), not a model: merge it into its model first."
    if not files and pickles:
        return (
            f"{directory} has {pickles[0]} and no safetensors: pickle files can run code when they are read, so they "
            "are refused."
        )
    for name in ("config.json", "tokenizer.json"):
        if name not in names:
            return f"{directory} has no {name}. {repair}"
    if not files:
        return f"{directory} has no *.safetensors or *.gguf file. {repair}"
    file = directory / "config.json"
    try:
        config = untrusted_files.read_json(file, untrusted_files.CONFIG_BYTES)
        code = [name for name in names if name.endswith(".py")] + ["auto_map in config.json"] * ("auto_map" in config)
        if code:
            return (
                f"{directory} contains model code ({code[0]}); speclsp never runs such code, so the model is refused."
            )
        for file in (directory / "tokenizer.json", *files):
            if file.suffix == ".safetensors":
                safetensors_header.read(file)
            else:
                check_beginning(file)
    except Unreadable as error:
        return f"{file} {error}. {error.fix or repair}"
    return ""


def check_beginning(file: Path) -> None:
    """Raise Unreadable when the beginning or the size of a file cannot be a tokenizer's or a GGUF's.

    Both are read where the model is loaded.
    """
    with untrusted_files.open_plain(file) as opened:
        start, size = opened.read(64), os.fstat(opened.fileno()).st_size
    if problem := untrusted_files.not_itself(start):
        raise Unreadable(problem)
    if file.suffix == ".gguf" and not start.startswith(b"GGUF"):
        raise Unreadable(f"is not a GGUF file: it begins with {start[:4]!r}")
    if file.suffix == ".json" and not start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise Unreadable("is not JSON: it does not begin with a brace")
    if file.suffix == ".json" and size > untrusted_files.TOKENIZER_BYTES:
        raise Unreadable(f"has {size} bytes; the limit is {untrusted_files.TOKENIZER_BYTES}")


def altered(directory: Path, repair: str, advance: Advance | None = None, sums: Mapping[str, str] | None = None) -> str:
    """The first file whose SHA-256 is not the manifest's, in a sentence; "" when every byte is right.

    `advance(done_bytes, total_bytes, file)` is called every few megabytes. `sums`: of these files, by name.
    """
    expected = sums_of(directory) if sums is None else sums
    try:
        sizes = {name: (directory / name).stat().st_size for name in expected}
    except OSError as error:
        return sentence(error, directory, "be read")
    total, done = sum(sizes.values()), 0
    for name, size in sizes.items():
        try:
            digest = sum_of(directory / name, (lambda here: advance(done + here, total, name)) if advance else None)  # noqa: B023
        except Unreadable as error:
            return f"{directory / name} {error}. {error.fix or repair}"
        done += size
        if digest != expected[name]:
            return f"{directory / name} was altered: its sha256 is {digest}, not {expected[name]}. {repair}"
    return ""


def sums_of(directory: Path) -> dict[str, str]:
    """{file: SHA-256} of the manifest; {} without one."""
    return {name: entry["sha256"] for name, entry in manifest(directory).get("files", {}).items()}


def touched(directory: Path) -> dict[str, str]:
    """The sums of the files whose modification time is not the manifest's: their bytes must be checked again."""
    files = manifest(directory).get("files", {})
    return {
        name: entry["sha256"]
        for name, entry in files.items()
        if (directory / name).stat().st_mtime_ns != entry.get("modified_ns")
    }


def found_whole(directory: Path) -> None:
    """Record that the files are right as they are now; if that cannot be written, they are checked each time."""
    content = manifest(directory)
    for entry in content["files"].values():
        entry.pop("modified_ns", None)
    with suppress(OSError):
        write_manifest(directory, content)


def file_bytes(path: Path) -> int:
    """The size of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def size_of(directory: Path) -> int:
    """Bytes of the files below `directory`; links count nothing, nor do files with another name elsewhere."""
    files = (Path(base, name) for base, _, names in os.walk(directory) for name in names)
    return 0 if directory.is_symlink() else sum(map(own_bytes, files))


def own_bytes(path: Path) -> int:
    """Bytes that the removal of a file frees; 0 where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else 0


def sum_on_disk(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """Flush a file, read it again and return its SHA-256. Raises Unreadable, and OSError from the flush."""
    private_files.flush(path)
    return sum_of(path, advance)


def sum_of(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file; `advance(bytes so far)` every few megabytes. Raises Unreadable."""
    digest, done = hashlib.sha256(), 0
    with untrusted_files.open_plain(path) as file:
        try:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                if advance:
                    advance(done)
        except OSError as error:
            raise untrusted_files.unreadable(error, path) from None
    return digest.hexdigest()
