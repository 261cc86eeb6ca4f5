"""Prepared weights: a model's packed numbers in a file, written at the first load and mapped at each start.

    first load   quantize, merge the adapter, pack ─► weights.bin, layout.json, tokenizer.json ─► manifest.json
                 ─► rename
    start        manifest and layout fit? ─► map weights.bin ─► the decoder computes with the mapped numbers

    <cache>/models/<name>.prepared/<key>/     manifest.json names the files, their sizes and sums
    <cache>/models/<name>.prepared/<key>/costs.json    times of passes on this machine (saved_costs.py)

The key is a sum of the model's files, the adapter, the number format, the instruction set and LAYOUT. A directory of
another key is removed when no engine has it mapped. An engine holds a shared lock on weights.bin meanwhile. Mapped
pages belong to the system's cache: it may reclaim them, and engines share them.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from speclsp.engine.model.bfloat16 import Array
from speclsp.engine.model.int8 import native, pages
from speclsp.engine.model.int8.native import EMBEDDING, NativeDecoder
from speclsp.engine.model.superblocks import KINDS, WeightMatrix
from speclsp.errors import WeightsError
from speclsp.private_files import LEFT_BEHIND_S, flush, open_plain, replace, retry_while_open, version_of
from speclsp.private_files.os_errors import sentence
from speclsp.weights import model_directory
from speclsp.weights.untrusted import untrusted_files
from speclsp.weights.untrusted.untrusted_files import Unreadable

LAYOUT = 1  # version of the packed numbers in forward.c, of layout.json and of the vocabulary's tables
WEIGHTS, LAYOUT_FILE = "weights.bin", "layout.json"
ALIGNMENT = 64  # bytes, of each array: a cache line
NEW = ".new-"  # begins the name of a directory that is being written
LAYOUT_BYTES = 16 << 20  # at most
NOT_WHOLE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.EIO)  # faults of the file
Part = tuple[int, int]  # start and bytes in weights.bin

log = logging.getLogger("speclsp.engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedWeights:
    """Packed weights in memory, mapped or read. `file` stays open: it holds the lock and is watched for changes."""

    directory: Path
    layout: Mapping[str, Any]
    file: BinaryIO
    memory: Any  # mmap.mmap
    version: tuple[int, int]  # of the file: see private_files.version_of
    mapped: bool = True  # False: `memory` is this process's own

    def bytes_of(self, part: Part) -> Array:
        """A part of weights.bin, uint8."""
        start, size = part
        return np.frombuffer(self.memory, np.uint8, size, start) if size else np.empty(0, np.uint8)

    def tables(self) -> dict[str, Array]:
        """The arrays that were given to `Writer.add_table`, by name."""
        entries = self.layout["tables"].items()
        return {name: self.bytes_of(entry["part"]).view(entry["dtype"]) for name, entry in entries}

    def in_memory(self) -> PreparedWeights:
        """The same numbers in memory of this process. Raises OSError."""
        return dataclasses.replace(self, memory=pages.read_file(self.file), mapped=False)

    def embedding(self) -> WeightMatrix | None:
        """The embedding as stored rows; None: a linear has it."""
        entry = self.layout["embedding"]
        if entry is None:
            return None
        kind = next(kind for kind in KINDS if kind.source == entry["source"])
        return WeightMatrix(self.bytes_of(entry["part"]).reshape(entry["shape"]), kind)

    def begin_fetching(self) -> None:
        """Read the numbers of the linears in another thread: the first pass waits for no page."""
        read = [
            entry["parts"] for name, entry in self.layout["linears"].items() if not name.startswith(f"{EMBEDDING}.")
        ]
        last = max((start + size for parts in read for start, size in parts), default=0)
        numbers = self.bytes_of((0, last))  # the embedding comes after them: a text needs few of its rows
        threading.Thread(target=native.fetch, args=(numbers,), name="fetch", daemon=True).start()

    def guard(self) -> None:
        """End the process in one sentence when a page cannot be read. The next start prepares the model anew."""
        message = (
            f"speclsp engine: {self.directory / WEIGHTS} could not be read: the disk failed, or another program "
            "cut the file. The engine ends, and the next one prepares the model anew.\n"
        )
        native.guard(np.frombuffer(self.memory, np.uint8), message, str(self.directory / model_directory.MANIFEST))

    def set_weights(self, decoder: NativeDecoder) -> None:
        """Let the decoder compute with these numbers. Raises WeightsError: they are not those of its shape."""
        for name, entry in self.layout["linears"].items():
            layer, which = map(int, name.split("."))
            parts = [self.bytes_of(part) for part in entry["parts"]]
            if not decoder.borrow(layer, which, entry["out"], entry["in"], entry["source"], parts):
                raise WeightsError(f"{self.directory} does not fit the model's config.json. Remove it.")
        for name, part in self.layout["norms"].items():
            layer, which = map(int, name.split("."))
            decoder.set_norm(layer, which, self.bytes_of(part).view(np.float32))
        decoder.numbers, decoder.check = self, self.check

    def check(self) -> None:
        """Raise WeightsError if another program has altered the file: a pass would compute with its bytes."""
        if version_of(self.file) != self.version:
            raise WeightsError(
                f"{self.directory / WEIGHTS} was altered while its model was in use. "
                "The next request prepares the model anew."
            )


class Writer:
    """Writes the packed numbers of a decoder while it is built; each linear leaves memory once it is written.

    Raises OSError in every method, as from a full disk.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = os.fdopen(open_plain(directory / WEIGHTS, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
        self.digest, self.position = hashlib.sha256(), 0
        self.linears: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        self.files: dict[str, Any] = {}  # of the manifest

    def add_linear(self, decoder: NativeDecoder, layer: int, which: int) -> None:
        """Write a linear and release it."""
        out, width, source = decoder.linears[layer, which]
        parts = [self._add(part) for part in decoder.packed(layer, which)]
        decoder.release(layer, which)
        self.linears[f"{layer}.{which}"] = {"out": out, "in": width, "source": source, "parts": parts}

    def add_table(self, name: str, values: Array) -> None:
        """Write another array."""
        self.tables[name] = {"dtype": values.dtype.str, "part": self._add(np.ascontiguousarray(values).view(np.uint8))}

    def add_file(self, name: str, content: bytes) -> None:
        """Write a file beside weights.bin."""
        replace(self.directory / name, content)
        self.files[name] = {"bytes": len(content), "sha256": sha256(content)}

    def finish(self, decoder: NativeDecoder, key: Mapping[str, Any]) -> None:
        """Write the rest, the layout and the manifest."""
        norms = {f"{layer}.{which}": self._add(own.view(np.uint8)) for (layer, which), own in decoder.norms.items()}
        embedding = None
        if stored := decoder.embedding:
            shape, part = list(stored.tensor.shape), self._add(stored.tensor.view(np.uint8).reshape(-1))
            embedding = {"shape": shape, "source": stored.source, "part": part}
        self._write(bytes(pages.END_BYTES))
        self.file.close()
        layout = {"key": dict(key), "linears": self.linears, "norms": norms, "embedding": embedding}
        self.add_file(LAYOUT_FILE, json.dumps({**layout, "tables": self.tables}, separators=(",", ":")).encode())
        flush(self.directory / WEIGHTS)
        self.files[WEIGHTS] = {"bytes": self.position, "sha256": self.digest.hexdigest()}
        model_directory.write_manifest(self.directory, {"files": self.files})

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _add(self, values: Array) -> Part:
        """Write bytes at the next aligned position; the part they take."""
        self._write(bytes(-self.position % ALIGNMENT))
        start = self.position
        self._write(values.data)
        return start, values.nbytes

    def _write(self, content: bytes | memoryview) -> None:
        self.file.write(content)
        self.digest.update(content)
        self.position += len(content)


# ── a prepared directory ─────────────────────────────────────────────────────────────────────────────────────


def key_of(directory: Path, adapter_sha256: str, number_format: str, path: str) -> dict[str, Any]:
    """All that the packed numbers depend on. `directory`: of the model; files without a sum count by size and time."""
    files = model_directory.sums_of(directory)
    if not files:
        statuses = {file.name: file.stat() for file in sorted(directory.iterdir()) if file.is_file()}
        files = {name: f"{status.st_size}-{status.st_mtime_ns}" for name, status in statuses.items()}
    return {
        "layout": LAYOUT,
        "files": files,
        "adapter": adapter_sha256,
        "format": number_format,
        "path": path,
        "bytes": sys.byteorder,
    }


def open_prepared(root: Path, key: Mapping[str, Any]) -> PreparedWeights | None:
    """The prepared weights of that key below `root`, mapped; None where there are none that fit.

    A directory that does not fit is removed, with one sentence in the log. It stays after a fault that is not the
    file's, as of memory or rights.
    """
    directory = root / name_of(key)
    if not directory.exists():
        return None
    try:
        return _mapped(directory, key)
    except OSError as error:
        reason = error.strerror
        if error.errno not in NOT_WHOLE:
            log.warning("%s cannot be used: %s", directory, reason)
            return None
    except (Unreadable, WeightsError, ValueError, KeyError, TypeError) as error:
        reason = str(error)
    log.warning("%s is prepared anew: %s", directory, reason)
    discard(directory)
    return None


def make(
    root: Path, key: Mapping[str, Any], build: Callable[[Writer], NativeDecoder]
) -> tuple[PreparedWeights | None, str]:
    """Write the prepared weights of that key, and map them; the sentence why not, and None, where that fails.

    `build` packs the model and gives each linear to the writer. Raises what it raises, apart from OSError.
    """
    final, work = root / name_of(key), root / f"{NEW}{secrets.token_hex(4)}"
    try:
        work.mkdir(mode=0o700, parents=True)
        writer = Writer(work)
        try:
            writer.finish(build(writer), key)
        finally:
            writer.close()
        _rename(work, final, key)
        clean(root, keep=final.name)
    except OSError as error:
        why = sentence(error, root, "be written")
        return None, f"{why} So each start of the engine quantizes the model, which takes some seconds."
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return open_prepared(root, key), ""


def _rename(work: Path, final: Path, key: Mapping[str, Any]) -> None:
    """Rename a finished directory. That of another engine, which has prepared the same meanwhile, is kept."""
    try:
        retry_while_open(lambda: work.rename(final))
    except OSError:
        if open_prepared(final.parent, key) is None:  # `final` did not fit, and is removed
            retry_while_open(lambda: work.rename(final))


def clean(root: Path, keep: str) -> None:
    """Remove the directories of other keys that no engine has mapped, and those of writers that were killed."""
    for directory in root.iterdir():
        if directory.name.startswith(NEW):
            if time.time() - directory.stat().st_mtime > LEFT_BEHIND_S:
                shutil.rmtree(directory, ignore_errors=True)
        elif directory.name != keep and not in_use(directory):
            discard(directory)


def discard(directory: Path) -> None:
    """Remove a prepared directory in one step. On Windows one that is mapped stays."""
    aside = directory.with_name(f"{NEW}{secrets.token_hex(4)}")
    with suppress(OSError):
        directory.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def in_use(directory: Path) -> bool:
    """True if an engine has it mapped, as far as this system tells."""
    try:
        with (directory / WEIGHTS).open("rb") as file:
            return not _lock(file, shared=False)
    except OSError:
        return False


def name_of(key: Mapping[str, Any]) -> str:
    """The directory's name for a key."""
    return sha256(json.dumps(key, sort_keys=True).encode())[:24]


def sha256(content: bytes) -> str:
    """The sum in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _mapped(directory: Path, key: Mapping[str, Any]) -> PreparedWeights:
    """The prepared weights of a directory. Raises Unreadable, OSError, WeightsError, ValueError."""
    files = model_directory.manifest(directory).get("files")
    if files is None:
        raise WeightsError(f"{model_directory.MANIFEST} is missing or damaged")
    text = untrusted_files.read_plain(directory / LAYOUT_FILE, LAYOUT_BYTES)
    layout = json.loads(text)
    if layout["key"] != key:
        raise WeightsError("it was prepared for other files")
    file = os.fdopen(open_plain(directory / WEIGHTS, os.O_RDONLY), "rb")
    try:
        _lock(file, shared=True)
        for name, entry in files.items():
            if (size := (directory / name).stat().st_size) != entry["bytes"]:
                raise WeightsError(f"{name} has {size} bytes, not {entry['bytes']}")
        if touched := model_directory.touched(directory):
            if problem := model_directory.altered(directory, "", sums=touched):
                raise WeightsError(problem)
            model_directory.found_whole(directory)
        version, memory = version_of(file), pages.map_file(file)
        opened = PreparedWeights(directory=directory, layout=layout, file=file, memory=memory, version=version)
        opened.guard()
        return opened
    except BaseException:
        file.close()
        raise


def _lock(file: BinaryIO, *, shared: bool) -> bool:
    """Lock an open file for its user, or alone; False: another process has the other lock."""
    if sys.platform == "win32":
        return True  # a mapped file cannot be removed
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: a mapping outlives the file's name
        return True
    return True
