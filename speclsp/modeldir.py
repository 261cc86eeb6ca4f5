"""A model's directory on disk: its manifest, and what keeps it from being loaded.

    manifest.json   every other file's size and SHA-256, and where they came from; written last, so it means "whole"

A directory is loaded only with config.json, tokenizer.json and whole safetensors. Formats that run code when read
(pickle) and models that bring code (auto_map, .py) are refused, whoever made the directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
HEADER_BYTES = 100 << 20  # of a safetensors file; the format's own limit
CHUNK_BYTES = 1 << 22


def is_there(directory: Path) -> bool:
    """Whether anything is in the directory at all."""
    return directory.is_dir() and any(directory.iterdir())


def manifest(directory: Path) -> dict[str, Any]:
    """manifest.json, or {} where there is none of ours."""
    try:
        found = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        for name, each in found["files"].items():
            if Path(name).name != name or not isinstance(each["bytes"], int) or not isinstance(each["sha256"], str):
                return {}
        return dict(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_manifest(directory: Path, content: dict[str, Any]) -> None:
    """Write manifest.json in one step, once every file it names is there."""
    partial = directory / f"{MANIFEST}.partial"
    with partial.open("w", encoding="utf-8") as out:
        json.dump(content, out, indent=2)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(directory / MANIFEST)


def damage(directory: Path, repair: str) -> str:
    """What is wrong as far as names, sizes and headers tell, in sentences that end with `repair`; "" when nothing is.

    Takes a millisecond or two; `altered` looks at every byte.
    """
    for name, expected in manifest(directory).get("files", {}).items():
        try:
            found = (directory / name).stat().st_size
        except OSError:
            return f"{directory / name} is missing. {repair}"
        if found != expected["bytes"]:
            cut = f"{directory / name} is {found} bytes long, expected are {expected['bytes']}"
            return f"{cut}: it was cut short or altered. {repair}"
    return unfit(directory, repair)


def unfit(directory: Path, repair: str) -> str:
    """Why a directory cannot be loaded, whatever its manifest says; "" when it can."""
    tensors = sorted(directory.glob("*.safetensors"))
    pickles = sorted(each.name for each in directory.iterdir() if each.suffix in PICKLES)
    if not tensors and pickles:
        return f"{directory} has {pickles[0]} and no safetensors: pickle files can run code when read and are refused."
    for name in ("config.json", "tokenizer.json"):
        if not (directory / name).is_file():
            return f"{directory} has no {name}. {repair}"
    if not tensors:
        return f"{directory} has no *.safetensors file. {repair}"
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        return f"{directory / 'config.json'} is not JSON ({error}). {repair}"
    code = sorted(each.name for each in directory.glob("*.py")) + ["auto_map in config.json"] * ("auto_map" in config)
    if code:
        return f"{directory} brings code of its own ({code[0]}); a model's code is never run, so it is refused."
    return next((f"{file} {wrong}. {repair}" for file in tensors if (wrong := _cut_short(file))), "")


def altered(directory: Path, repair: str, advance: Callable[[int, int, str], None] | None = None) -> str:
    """The first file whose SHA-256 is not the manifest's, in a sentence; "" when every byte is right.

    `advance(done_bytes, total_bytes, file)` is called every few megabytes.
    """
    files = manifest(directory).get("files", {})
    total, done = sum(int(each["bytes"]) for each in files.values()), 0
    for name, expected in files.items():
        found = sum_of(directory / name, (lambda here: advance(done + here, total, name)) if advance else None)  # noqa: B023
        done += int(expected["bytes"])
        if found != expected["sha256"]:
            return f"{directory / name} was altered: its sha256 is {found}, expected is {expected['sha256']}. {repair}"
    return ""


def sum_of(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file; `advance(bytes so far)` every few megabytes."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            if advance:
                advance(done)
    return digest.hexdigest()


def _cut_short(file: Path) -> str:
    """What is wrong with a safetensors file's length or header; "" when nothing is."""
    size = file.stat().st_size
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > min(HEADER_BYTES, size):
                return f"has a header of {length} bytes, in a file of {size}"
            header = json.loads(opened.read(length))
        ends = [int(each["data_offsets"][1]) for name, each in header.items() if name != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        return f"is not a safetensors file ({error})"
    expected = 8 + length + max(ends, default=0)
    return "" if size == expected else f"is {size} bytes long, expected are {expected}: it was cut short or altered"
