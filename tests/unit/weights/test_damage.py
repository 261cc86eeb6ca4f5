"""A damaged model is never accepted: two writers, a disk that changes bytes, read errors, values that cannot be."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.weights.faulty_hub import packed
from support.weights.wheel_index import PARTS, Shop, digest, open_shop

from speclsp.errors import WeightsError
from speclsp.private_files import LEFT_BEHIND_S, locks
from speclsp.weights import cards, installation, locations, model_directory, store
from speclsp.weights.untrusted import tensor_values, untrusted_files
from speclsp.weights.untrusted.untrusted_files import Unreadable


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return open_shop(tmp_path, monkeypatch)


@pytest.fixture
def local(shop: Shop) -> Shop:
    """The shop's GGUF lies in models_dir: no pip runs, and only config and tokenizer are written."""
    (shop.root / "mine").mkdir()
    shutil.copy(shop.root / "model.gguf", shop.root / "mine")
    return shop


def pull(shop: Shop, *, repair: bool = True) -> Path:
    mine = shop.root / "mine"
    return shop.ensure(models_dir=str(mine) if mine.exists() else "", repair=repair)


def sums(directory: Path) -> dict[str, str]:
    return {file.name: digest(file.read_bytes()) for file in directory.iterdir() if file.name != "manifest.json"}


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


FAULTS = (flip, zeros, cut, input_output_error)


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


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    yield Disk(monkeypatch)


def check_fault(shop: Shop, disk: Disk, right: dict[str, str]) -> None:
    """A pull on the faulty disk ends with an error, or nothing counts as installed, or every byte is right."""
    shutil.rmtree(shop.cache, ignore_errors=True)
    try:
        pull(shop)
    except WeightsError as error:
        assert "\n" not in str(error)
    else:
        assert store.path(shop.weights) is None or sums(shop.cache / "tiny-gguf") == right
    disk.strike(None)
    for attempt in range(3):  # the rest of a damaged fetch may cost one error, never two
        try:
            directory = pull(shop)
            break
        except WeightsError:
            assert attempt == 0
    assert sums(directory) == right
    assert store.verify(shop.weights).startswith("all checksums match")


@pytest.mark.parametrize("fault", FAULTS)
def test_an_installation_on_a_disk_that_changes_bytes_is_right_or_an_error(
    local: Shop, disk: Disk, fault: Fault
) -> None:
    disk.strike(None)
    right = sums(pull(local))
    assert disk.flushes == 3, "config, tokenizer and manifest"
    for wait in range(1, disk.flushes + 1):
        for at in (0.2, 0.95):
            disk.strike(fault, wait, at)
            check_fault(local, disk, right)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_copy_on_a_disk_that_changes_bytes_is_right_or_an_error(
    local: Shop, disk: Disk, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(path))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    right = sums(pull(local))
    disk.strike(fault, 1, 0.5)
    check_fault(local, disk, right)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_download_on_a_disk_that_changes_bytes_is_right_or_an_error(shop: Shop, disk: Disk, fault: Fault) -> None:
    right = sums(pull(shop))
    disk.strike(fault, 2 * PARTS - 1, 0.5)  # the partial file, before its last part is recorded
    check_fault(shop, disk, right)


@pytest.mark.parametrize("fault", [flip, zeros, cut])
def test_bytes_that_change_after_the_installation_are_found_and_repaired(shop: Shop, fault: Fault) -> None:
    """The manifest still says "whole", and the time of change is the recorded one."""
    right = sums(pull(shop))
    for name in right:
        file = shop.cache / "tiny-gguf" / name
        recorded_ns = file.stat().st_mtime_ns
        with file.open("r+b") as opened:
            fault(opened.fileno(), 0.5)
        os.utime(file, ns=(recorded_ns, recorded_ns))
        with pytest.raises(WeightsError, match="`speclsp models pull tiny-gguf`"):
            store.verify(shop.weights)
        assert sums(pull(shop)) == right


def test_a_source_that_cannot_be_read_is_an_error_or_passed_over(local: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path, advance: object = None) -> str:
        raise Unreadable("cannot be read (the disk reports an input/output error)")

    with monkeypatch.context() as patch, pytest.raises(WeightsError, match=r"model\.gguf|cannot be read"):
        patch.setattr(model_directory, "sum_of", unreadable)
        pull(local)
    assert pull(local).is_dir()


def test_a_source_that_changes_during_its_installation_is_an_error(local: Shop) -> None:
    file = local.root / "mine" / "model.gguf"

    def touch(step: store.Progress) -> None:
        if step.stage == "check":
            os.utime(file, (1, 1))

    with pytest.raises(WeightsError, match=r"model\.gguf was changed while it was installed: run `speclsp models pull"):
        local.ensure(models_dir=str(file.parent), progress=touch)
    assert store.path(local.weights) is None


def test_a_source_that_becomes_shorter_during_its_installation_is_an_error(
    local: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file is mapped, the process ends with SIGBUS."""
    file = local.root / "mine" / "model.gguf"

    def cut_file(step: store.Progress) -> None:
        if step.stage == "check":
            os.truncate(file, 4096)

    monkeypatch.setattr(model_directory, "CHUNK_BYTES", 4096)
    with pytest.raises(WeightsError, match=r"model\.gguf has \d+ bytes and sha256 \w+: expected \d+ bytes"):
        local.ensure(models_dir=str(file.parent), progress=cut_file)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────

INFINITE16, NAN_B16 = 0xFC00, 0x7FC0
LAYER = tensor_values.ZERO_BYTES // 64  # rows of 32 values with ZERO_BYTES


def with_value(stored: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    changed = stored.copy()
    changed[place] = value
    return changed


ONES = np.full((4, 32), 0x3F80, np.uint16)
ROWS = np.full((2 * LAYER + 5, 32), 0x3F80, np.uint16)
HOLE = ROWS.copy()
HOLE[:LAYER] = 0
SMALL_HOLE = ROWS.copy()
SMALL_HOLE[9 : LAYER // 2] = 0
TENSORS: dict[str, tuple[str, str, np.ndarray, str]] = {
    "a NaN in bf16": ("lm_head.weight", "BF16", with_value(ONES, (3, 9), NAN_B16), "not finite"),
    "an infinity in f16": ("a.weight", "F16", with_value(ONES, (0, 0), INFINITE16), "not finite"),
    "a NaN in f32": ("a.bias", "F32", np.array([1, np.nan], np.float32), "not finite"),
    "an infinity in f64": ("a.bias", "F64", np.array([1, -np.inf]), "not finite"),
    "a matrix of zeros": ("a.weight", "BF16", ONES * np.uint16(0), "zeros"),
    "a hole in a layer": ("model.layers.0.a.weight", "BF16", HOLE, "zeros"),
    "a small hole in a layer": ("model.layers.0.a.weight", "BF16", SMALL_HOLE, ""),
    "unused tokens": ("model.embed_tokens.weight", "BF16", HOLE, ""),
    "the greatest finite numbers": ("a.weight", "BF16", ONES * 0 + np.uint16(0x7F7F), ""),
    "a bias of zeros": ("a.bias", "BF16", np.zeros(9, np.uint16), ""),
    "an empty tensor": ("a.weight", "BF16", np.zeros((0, 4), np.uint16), ""),
    "integers": ("a.position_ids", "I32", np.array([[0, 1]], np.int32), ""),
}


@pytest.mark.parametrize("case", TENSORS)
def test_values_that_no_trained_model_has_are_damage(case: str, tmp_path: Path) -> None:
    name, dtype, values, says = TENSORS[case]
    head = {name: {"dtype": dtype, "shape": list(values.shape), "data_offsets": [0, values.nbytes]}}
    file = tmp_path / "model.safetensors"
    file.write_bytes(packed(head, values.tobytes()))
    if says:
        with pytest.raises(Unreadable, match=says) as caught:
            tensor_values.check(file, lambda done: None)
        assert name in str(caught.value)
    else:
        tensor_values.check(file, lambda done: None)


def test_a_users_directory_without_checksums_is_checked_by_its_values(local: Shop) -> None:
    mine = local.root / "own"
    shutil.copytree(cards.models_root() / "tiny" / "target", mine / "tiny-gguf")
    assert "no checksums are known" in store.verify(local.weights, str(mine))
    file = mine / "tiny-gguf" / "model.safetensors"
    file.chmod(0o600)
    with file.open("r+b") as opened:
        opened.seek(-4000, os.SEEK_END)
        opened.write(b"\xff\x7f" * 2000)
    verify, repair = (
        lambda: store.verify(local.weights, str(mine)),
        lambda: local.ensure(models_dir=str(mine), repair=True),
    )
    for check in (verify, repair):
        with pytest.raises(WeightsError, match=r"not finite\. The directory is yours, so speclsp changes nothing"):
            check()


def test_the_bundled_models_pass_the_check_of_values() -> None:
    for file in (cards.models_root() / "tiny").glob("*/model.safetensors"):
        tensor_values.check(file, lambda done: None)


# ── two writers ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wait_s", [0.0, 0.15, 0.4])
def test_two_pulls_without_a_lock_both_end_with_the_right_model(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, wait_s: float
) -> None:
    right = sums(pull(shop))
    shutil.rmtree(shop.cache)
    monkeypatch.setattr(locks, "acquire", lambda path: os.open(os.devnull, os.O_RDONLY))
    results: list[dict[str, str]] = []

    def second() -> None:
        time.sleep(wait_s)
        results.append(sums(pull(shop)))

    thread = threading.Thread(target=second)
    thread.start()
    results.append(sums(pull(shop)))
    thread.join(60)
    assert results == [right, right]
    assert sums(shop.cache / "tiny-gguf") == right and store.verify(shop.weights)
    assert not locations.downloads(shop.weights).exists()


def download(shop: Shop, name: str) -> Path:
    """The file of an unfinished download by the writer `name`."""
    file = locations.downloads(shop.weights) / name / "mirror" / "part"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"begun")
    return file


@pytest.mark.parametrize(
    ("writer", "is_shared"),
    [
        ("{machine}-{dead}-0", True),
        ("free-0011aabb", True),
        ("{machine}-{own}-77", False),
        ("0badcafe-{dead}-0", False),
    ],
    ids=["process that ended", "download that failed", "process that runs", "other machine or container"],
)
def test_only_the_file_of_a_process_that_ended_is_written_on(shop: Shop, writer: str, is_shared: bool) -> None:
    """Any other file is copied, because its writer may still write to it."""
    with locations.download_directory(shop.weights) as own:
        machine = own.name.partition("-")[0]
    dead = next(pid for pid in range(60_000, 2**22) if not psutil.pid_exists(pid))
    begun = download(shop, writer.format(machine=machine, own=os.getpid(), dead=dead))
    inode = begun.stat().st_ino
    with locations.download_directory(shop.weights) as own:
        resumed = own / "mirror" / "part"
        assert resumed.read_bytes() == b"begun"
        assert (resumed.stat().st_ino == inode) == is_shared
        assert begun.exists() != is_shared
        locations.remove_downloads(shop.weights)
        assert resumed.exists(), "a live download is never removed"
        if not is_shared:
            old_s = time.time() - LEFT_BEHIND_S - 60
            for path in (begun.parents[1], begun.parent, begun):
                os.utime(path, (old_s, old_s))
            locations.remove_downloads(shop.weights)
            assert not begun.exists() and resumed.exists()
    assert [file.read_bytes() for file in locations.downloads(shop.weights).rglob("part")] == [b"begun"]


def test_a_restarted_container_keeps_the_download_of_its_own_process_number(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first process has the host name, the number and the namespace of the one that was killed."""
    monkeypatch.setattr(locations, "NUMBERS", iter(range(100, 200)))
    with locations.download_directory(shop.weights) as own:
        killed = own.name
    download(shop, killed)
    monkeypatch.setattr(locations, "NUMBERS", iter(range(100, 200)))
    with locations.download_directory(shop.weights) as own:
        assert own.name != killed and (own / "mirror" / "part").read_bytes() == b"begun"


def test_only_the_download_of_another_machine_is_renamed_when_it_is_old(shop: Shop) -> None:
    """As of this machine before a restart. A process that runs here may still write to its own."""
    with locations.download_directory(shop.weights) as own:
        machine = own.name.partition("-")[0]
    for writer, is_renamed in (("0badcafe-1-0", True), (f"{machine}-{os.getpid()}-999", False)):
        begun = download(shop, writer)
        inode, old_s = begun.stat().st_ino, time.time() - LEFT_BEHIND_S - 60
        for path in (begun.parents[1], begun.parent, begun):
            os.utime(path, (old_s, old_s))
        with locations.download_directory(shop.weights) as own:
            assert (own / "mirror" / "part").read_bytes() == b"begun"
            assert ((own / "mirror" / "part").stat().st_ino == inode) == is_renamed == (not begun.exists())
        shutil.rmtree(locations.downloads(shop.weights))


def test_weights_that_an_interrupted_removal_left_are_no_download_and_removed_by_the_next_one(
    local: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = sums(pull(local))
    with monkeypatch.context() as patch:
        patch.setattr(installation.shutil, "rmtree", lambda *_, **__: None)  # killed before this
        installation.remove(local.weights)
    assert locations.downloads(local.weights).exists() and locations.partial_bytes(local.weights) == 0
    assert sums(pull(local)) == right
    assert not locations.downloads(local.weights).exists()


def test_a_directory_in_the_place_of_a_file_is_named_itself(local: Shop) -> None:
    file = pull(local) / "config.json"
    file.unlink()
    file.mkdir()
    with pytest.raises(Unreadable) as caught:
        untrusted_files.read_plain(file, 100)
    assert caught.value.path == file
