"""A damaged model is never accepted: a disk that changes bytes, read errors, and sources that others change."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.weights.wheel_index import PARTS, Shop, digest

from speclsp.errors import WeightsError
from speclsp.weights import store


@pytest.fixture
def local(shop: Shop) -> Shop:
    """The shop's GGUF lies in models_dir: no pip runs, and only config and tokenizer are written."""
    (shop.root / "mine").mkdir()
    shutil.copy(shop.root / "model.gguf", shop.root / "mine")
    return shop


def pull(shop: Shop, *, repair: bool = True, progress: store.Report | None = None) -> Path:
    mine = shop.root / "mine"
    return shop.ensure(models_dir=str(mine) if mine.exists() else "", repair=repair, progress=progress)


def sums(directory: Path) -> dict[str, str]:
    return {file.name: digest(file.read_bytes()) for file in directory.iterdir() if file.name != "manifest.json"}


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file system: a hard link cannot be made."""

    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(path))

    monkeypatch.setattr(Path, "hardlink_to", refuse)


# ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Fault = Callable[[int, float], None]  # (handle of a file that is flushed, position in it from 0 to 1)


def flip(handle: int, at: float) -> None:
    place = int(at * (os.fstat(handle).st_size - 1))
    os.lseek(handle, place, os.SEEK_SET)
    os.write(handle, b"\xa5\x5a\x01")


def zeros(handle: int, at: float) -> None:
    size = os.fstat(handle).st_size
    os.lseek(handle, int(at * size), os.SEEK_SET)
    os.write(handle, bytes(max(1, size // 3)))


def cut(handle: int, at: float) -> None:
    os.ftruncate(handle, int(at * os.fstat(handle).st_size))


def input_output_error(handle: int, at: float) -> None:
    raise OSError(errno.EIO, "Input/output error")


class Disk:
    """A disk that damages the file of one flush: `fault` strikes when `wait` flushes have passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault: Fault | None = None
        self.wait, self.at, self.flushes = 0, 0.0, 0
        fsync = os.fsync

        def faulty_fsync(handle: int) -> None:
            fsync(handle)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                self.flushes += 1
                if self.fault and self.flushes == self.wait:
                    self.fault(handle, self.at)

        monkeypatch.setattr(os, "fsync", faulty_fsync)

    def strike(self, fault: Fault | None, wait: int = 0, at: float = 0.0) -> None:
        self.fault, self.wait, self.at, self.flushes = fault, wait, at, 0


@pytest.mark.parametrize("way", ["link", "copy", "download"])
@pytest.mark.parametrize("fault", [flip, zeros, cut, input_output_error])
def test_a_model_on_a_disk_that_changes_bytes_is_right_or_an_error(
    request: pytest.FixtureRequest, fault: Fault, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull on the faulty disk ends with an error, or nothing counts as installed, or every byte is right."""
    shop: Shop = request.getfixturevalue("shop" if way == "download" else "local")
    if way == "copy":
        refuse_links(monkeypatch)
    disk = Disk(monkeypatch)
    right = sums(pull(shop))
    flushes = {"link": range(1, 4), "copy": [1], "download": [2 * PARTS - 1]}[way]  # before the last part is recorded
    assert way != "link" or disk.flushes == 3, "config, tokenizer and manifest"
    for wait, at in [(wait, at) for wait in flushes for at in (0.2, 0.95)]:
        shutil.rmtree(shop.cache)
        disk.strike(fault, wait, at)
        try:
            pull(shop)
        except WeightsError as error:
            assert "\n" not in str(error)
        else:
            assert store.path(shop.weights) is None or sums(shop.cache / "tiny-gguf") == right
        disk.strike(None)
        try:  # the rest of a damaged fetch may cost one error, never two
            pull(shop)
        except WeightsError:
            pull(shop)
        assert sums(shop.cache / "tiny-gguf") == right
        assert store.verify(shop.weights) == "all checksums match"


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_source_that_changes_during_its_installation_is_hashed_again_when_it_is_used(local: Shop) -> None:
    """The change comes after the last byte was hashed."""
    file = local.root / "mine" / "model.gguf"
    content = file.read_bytes()

    def change(step: store.Progress) -> None:
        if step.stage == "check" and step.done_bytes == step.total_bytes and file.read_bytes() == content:
            with file.open("r+b") as opened:
                flip(opened.fileno(), 0.9)
            os.utime(file, (1, 1))

    pull(local, repair=False, progress=change)
    with pytest.raises(WeightsError, match=r"model\.gguf was altered: its sha256 is .*`speclsp models pull tiny-gguf`"):
        pull(local, repair=False)
