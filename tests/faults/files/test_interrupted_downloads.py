"""Downloads: after any disconnect, full disk, wrong content or kill, the next pull resumes and completes every file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from promises import Measured
from support.soak import in_soak
from support.weights.faulty_hub import FIRST, PIECE, SECOND, FaultyHubRun, cache, model
from windows.harness.program import program

from speclsp.weights import hub as product

Disk = Callable[[int], Path]
CHUNK = product.CHUNK_BYTES
STALL_S = 1.0  # in these tests; 30 in the product


@pytest.fixture(autouse=True)
def fresh(house: FaultyHubRun) -> Iterator[None]:
    house.hub.reset()
    yield
    house.hub.reset()


def pull(house: FaultyHubRun, name: str = "hubbed", **options: str) -> tuple[int, str]:
    return house.fork("models", "pull", name, **options)


def check_whole(house: FaultyHubRun, name: str = "hubbed", size: int = 0) -> None:
    """Every file equals the published one, and no temporary file is left."""
    code, output = house.fork("models", "verify", name)
    assert code == 0, output
    if name == "hubbed":
        for file, body in house.files.items():
            assert (cache() / name / file).read_bytes() == body
    assert not (cache() / f"{name}.fetching").exists()


def check_nothing_is_loaded(house: FaultyHubRun, name: str = "hubbed") -> None:
    code, output = house.fork("models", "verify", name)
    assert (code, "is not on this machine" in output) == (1, True), "a part counts for nothing"


def sizes(house: FaultyHubRun) -> int:
    return len(house.files[FIRST]) + len(house.files[SECOND])


@pytest.mark.promise(24)
def test_an_interrupted_transfer_resumes_where_it_stopped(house: FaultyHubRun, promise: Measured, soak: bool) -> None:
    size = len(house.files[FIRST])
    cuts = [0, 1, CHUNK, 7, PIECE, CHUNK + 1, CHUNK - 1, size // 3, 0, size // 3]
    house.hub.next = [("cut", at) for at in cuts]
    code, output = pull(house)
    assert code == 0, output
    check_whole(house)
    again = house.hub.served - sizes(house)
    assert 0 <= again <= CHUNK, "what had come was asked for once more"
    starts = [start for name, start in house.hub.transfers if name == FIRST]
    assert starts == sorted(starts) and starts[-1] > 0
    promise.measured(f"{len(cuts)} cuts in one pull: {again} bytes fetched twice", holds=again <= CHUNK)


@pytest.mark.promise(24)
def test_a_wrong_answer_of_the_hub_is_one_sentence_and_its_content_is_discarded(
    house: FaultyHubRun, promise: Measured
) -> None:
    size = len(house.files[FIRST])
    lies = {
        ("wrong", 0): f"the hub sent {FIRST} with {size} bytes and sha256",
        ("short", 4000): f"the hub sent {FIRST} with 4000 bytes and sha256",
        ("long", 0): ": expected ",
        ("page", 0): f"the hub sent {FIRST} with",
        ("404", 0): "HTTP 404",
        ("loop", 0): "the hub cannot be used",
    }
    for fault, says in lies.items():
        house.hub.next = [fault]
        code, output = pull(house)
        assert code == 2 and says in output, (fault, output)
        assert "`speclsp models pull hubbed`" in output and "Traceback" not in output, output
        check_nothing_is_loaded(house)
    for fault, says in {"page": "cannot be used"}.items():
        house.hub.next, house.hub.listing_fault = [], fault
        code, output = pull(house)
        assert code == 2 and says in output and "Traceback" not in output, (fault, output)
    house.hub.reset()
    house.hub.next = [("429", 0), ("503", 0), ("moved", 0)]  # transient faults: a retry succeeds
    code, output = pull(house)
    assert code == 0, output
    check_whole(house)
    promise.measured(f"{len(lies) + 4} wrong answers named, 3 passing ones sat out", holds=True)


@pytest.mark.promise(24)
def test_a_stalled_hub_transfer_is_abandoned_in_bounded_time(
    house: FaultyHubRun, promise: Measured, soak: bool
) -> None:
    for kind in ("trickle", "stall") if soak else ("trickle",):
        give_up(house, promise, kind)


def give_up(house: FaultyHubRun, promise: Measured, kind: str) -> None:
    shutil.rmtree(cache(), ignore_errors=True)
    house.hub.reset()
    house.hub.next = [(kind, 3 * CHUNK)] * 2 + [(kind, 0)] * 8
    begun = time.monotonic()
    code, output = pull(house)
    took_s = time.monotonic() - begun
    assert code == 2
    assert "the hub sent" in output and "`speclsp models pull hubbed`" in output, output
    assert took_s < 60
    tries = len(house.hub.transfers)
    assert tries == product.ATTEMPTS + 1, "those that brought something do not count"
    house.hub.released.set()
    house.hub.reset()
    code, output = pull(house)
    house.hub.released.clear()
    assert code == 0, output
    assert house.hub.transfers[0] == (FIRST, 6 * CHUNK) if kind == "stall" else house.hub.transfers[0][1] >= 6 * CHUNK
    check_whole(house)
    bound_s = product.ATTEMPTS * product.STALL_S + 6
    promise.measured(
        f"a hub that {kind}s: {tries} tries given up after {took_s:.0f} s with {STALL_S:.0f} s of patience each "
        f"(30 s as shipped: {bound_s:.0f} s)",
        holds=took_s < tries * (STALL_S + 4) + 6,
    )


@pytest.mark.promise(24)
def test_after_a_kill_at_any_byte_the_next_pull_resumes_there(
    house: FaultyHubRun, promise: Measured, soak: bool
) -> None:
    kills, again = (20 if soak else 3), 0
    killed: set[int] = set()
    for number in range(1, kills + 2):
        at = sizes(house) * number // (kills + 1)

        def strike(served: int, at: int = at) -> None:
            if served >= at and house.pid not in killed:
                killed.add(house.pid)
                os.kill(house.pid, signal.SIGKILL)

        here, partial = arrived(), half()
        house.hub.reset()
        house.hub.served, house.hub.at_byte = here, strike if number <= kills else lambda served: None
        code, output = pull(house)
        assert code == (-signal.SIGKILL if number <= kills else 0), output
        again += sum(size - start for start, size in [(house.hub.transfers[0][1], partial)] if partial)
        if code:
            check_nothing_is_loaded(house)
    check_whole(house)
    assert 0 <= again <= CHUNK
    promise.measured(f"killed at {kills} points of the fetch: {again} bytes fetched twice", holds=again <= CHUNK)


def half() -> int:
    """The size of the large file that an interrupted download has begun; 0 without one."""
    partial = (cache() / "hubbed.fetching").glob("*.safetensors.*.partial")
    return next((file.stat().st_size for file in partial), 0)


def arrived() -> int:
    """Bytes of large files that an interrupted download has."""
    return sum(file.stat().st_size for file in (cache() / "hubbed.fetching").glob("*.safetensors*"))


@pytest.mark.promise(24)
@pytest.mark.parametrize("name", ["hubbed", *in_soak("shelved")])
def test_after_a_kill_at_any_disk_step_the_next_pull_completes(
    house: FaultyHubRun, promise: Measured, soak: bool, name: str
) -> None:
    """Steps: each file opened for writing, rename and removal, while fetching, converting, installing, replacing."""
    code, output = house.fork("models", "pull", name, below=cache())
    assert code == 0, output
    steps = house.steps()
    assert steps > 10
    points = range(1, steps + 1) if soak else range(1, steps + 1, max(1, steps // 3))
    for repairing in (False, True):
        for at in points:
            shutil.rmtree(cache() / name, ignore_errors=True)
            if repairing:
                damaged = model(house, name) / "config.json"
                damaged.write_bytes(damaged.read_bytes() + b" ")
            code, output = house.fork("models", "pull", name, below=cache(), at=at)
            assert code in (0, -signal.SIGKILL), output
            left = cache() / name
            if code and left.exists() and not repairing:
                assert house.fork("models", "verify", name)[0] == 0, "what has its name is whole"
            is_complete = (cache() / f"{name}.fetching/manifest.json").exists()
            offline = ("--set", "engine.offline=true") if is_complete else ()
            code, output = house.fork("models", "pull", name, *offline)
            assert code == 0, (at, output)
            check_whole(house, name)
    promise.measured(f"{name}: killed at {2 * len(points)} steps on the disk, whole after the next pull", holds=True)


@pytest.mark.promise(24)
def test_two_concurrent_pulls_download_once_and_both_succeed(house: FaultyHubRun) -> None:
    words = program("models", "pull", "hubbed")
    both = [
        subprocess.Popen(
            words, cwd=house.root, env=house.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sorted(house.hub.transfers) == [(FIRST, 0), (SECOND, 0)]
    check_whole(house)


@pytest.mark.promise(24)
def test_a_disk_that_fills_up_at_60_percent_is_reported_in_bytes_and_keeps_the_partial_download(
    house: FaultyHubRun, disk_of: Disk, promise: Measured
) -> None:
    """Another program takes the rest of the disk during the download."""
    small_disk = disk_of(90)
    place, filler = str(small_disk), small_disk / "another program's"
    taking = threading.Lock()

    def take(served: int) -> None:
        if served >= 0.6 * sizes(house) and taking.acquire(blocking=False):
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 20)):
                    pass

    house.hub.at_byte = take
    code, output = pull(house, XDG_CACHE_HOME=place)
    assert code == 2
    assert "the disk is full. Free some space" in output
    assert re.search(r"hubbed needs \d+ bytes in all; the downloaded part is kept", output)
    filler.unlink()
    before = house.hub.served
    arrived = sum(file.stat().st_size for file in (small_disk / "speclsp/models").glob("hubbed.fetching/*"))
    house.hub.reset()
    code, output = pull(house, XDG_CACHE_HOME=place)
    assert code == 0, output
    code, output = house.fork("models", "verify", "hubbed", XDG_CACHE_HOME=place)
    assert code == 0, output
    again = house.hub.served - (sizes(house) - arrived)
    assert before > 0.6 * sizes(house)
    assert again <= CHUNK + sum(len(body) for name, body in house.files.items() if name not in (FIRST, SECOND))
    promise.measured("disk full at 60 %: named in bytes, no chunk fetched twice", holds=True)
