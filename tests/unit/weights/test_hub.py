"""Downloads from the model hub: pinned, and checked against the hub's and the card's checksums.

tests/faults/files/test_interrupted_downloads.py has the transfers that break, stall or bring something else.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from support.rows import rows
from support.weights.faulty_hub import COMMIT, Hub, packed

from speclsp.errors import WeightsError
from speclsp.weights import hub, locations, model_directory, store
from speclsp.weights.cards import WeightFile, Weights

ROWS = rows(__file__)

TENSORS = packed({"weight": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}, b"abcd")
FILES = {
    "config.json": b'{"model_type": "qwen2"}',
    "tokenizer.json": b'{"added_tokens": []}',
    "model.safetensors": TENSORS,
    "README.md": b"never fetched",
    "pytorch_model.bin": b"\x80\x04 never fetched",
    **dict.fromkeys(("../model.safetensors", "sub/model.safetensors", "/etc/model.safetensors"), b"odd"),
}
MODEL = Weights(name="model", format="safetensors", repo="owner/model", revision=COMMIT, parameters=2)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    fake = Hub({"model": dict(FILES)})
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    yield fake
    fake.shutdown()
    fake.server_close()


def ensure(model: Weights = MODEL, **options: object) -> Path:
    return store.ensure(model, **options)  # type: ignore[arg-type]


def test_only_config_tokenizer_and_safetensors_of_the_pinned_commit_are_downloaded(server: Hub) -> None:
    steps: list[store.Progress] = []
    directory = ensure(progress=steps.append)
    fetched = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in directory.iterdir()} == fetched | {"manifest.json"}
    assert server.requests[0] == f"/api/models/owner/model/revision/{COMMIT}"
    assert set(server.requests[1:]) == {f"/owner/model/resolve/{COMMIT}/{name}" for name in fetched}
    assert steps[-1].done_bytes == steps[-1].total_bytes == sum(len(server.models["model"][name]) for name in fetched)
    store.verify(MODEL)
    assert model_directory.manifest(directory)["revision"] == COMMIT


def test_without_a_pinned_revision_the_newest_is_used_and_recorded(server: Hub) -> None:
    directory = ensure(replace(MODEL, revision=""))
    assert server.requests[0] == "/api/models/owner/model/revision/main"
    assert store.path(MODEL) == directory, "and a card that pins that commit later is content with it"
    assert store.path(replace(MODEL, revision="f" * 40)) is None


def test_a_small_file_is_compared_with_the_git_hash_of_the_commit(server: Hub) -> None:
    server.sent["config.json"] = wrong = b"x" + FILES["config.json"][1:]
    says = f"config.json with {len(wrong)} bytes and sha256 {hashlib.sha256(wrong).hexdigest()}: .* git hash [0-9a-f]"
    with pytest.raises(WeightsError, match=f"{says}.*A proxy or a mirror that changes downloads"):
        ensure()
    server.sent.clear()
    assert ensure().is_dir(), "and nothing wrong was kept"


@pytest.mark.promise(24)
def test_a_cards_checksum_that_the_hub_lacks_stops_the_download_before_the_transfer(server: Hub) -> None:
    other = replace(MODEL, files=(WeightFile("model.safetensors", 0, "a" * 64),))
    with pytest.raises(WeightsError, match=f"the model definition expects {'a' * 64}"):
        ensure(other)
    assert len(server.requests) == 1
    same = replace(MODEL, files=(WeightFile("model.safetensors", 0, hashlib.sha256(TENSORS).hexdigest()),))
    assert ensure(same).is_dir()


@pytest.mark.promise(31)
def test_a_model_with_only_pickle_files_or_with_code_is_refused(server: Hub) -> None:
    server.models["model"]["config.json"] = b'{"auto_map": {"AutoModel": "evil.Model"}}'
    with pytest.raises(WeightsError, match="contains model code"):
        ensure()
    assert store.path(MODEL) is None
    assert [path.name for path in locations.store_root().iterdir()] == ["model.lock"]
    del server.models["model"]["model.safetensors"]
    with pytest.raises(WeightsError, match="publishes only pickle files"):
        ensure()


@pytest.mark.parametrize(("answer", "says"), ROWS["each_refusal_of_the_hub_names_its_own_way_out"])
def test_each_refusal_of_the_hub_names_its_own_way_out(server: Hub, answer: str, says: str) -> None:
    server.listing_fault = answer
    with pytest.raises(WeightsError, match=says) as caught:
        ensure()
    assert "Then run `speclsp models pull model`, or put its files into" in str(caught.value)


@pytest.mark.parametrize(("name", "value"), ROWS["a_variable_that_cannot_be_used_is_one_sentence_without_a_token"])
def test_a_variable_that_cannot_be_used_is_one_sentence_without_a_token(
    server: Hub, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    for module in ("utils", "hf_api"):  # huggingface_hub keeps a session with the old proxies
        monkeypatch.setattr(f"huggingface_hub.{module}.get_session", lambda: httpx.Client())
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv(name, value)
    with pytest.raises(WeightsError) as caught:
        ensure()
    assert ("correct HF_TOKEN" if name == "HF_TOKEN" else "the variables that begin with HF_") in str(caught.value)
    assert "\n" not in str(caught.value) and (name != "HF_TOKEN" or value not in str(caught.value))
    assert server.requests == [] and not hub.is_reachable()


def test_a_hub_that_never_answers_is_abandoned_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(WeightsError, match=r"the hub (did not answer|cannot be used).*; no package index carries"):
            ensure()
        assert not hub.is_reachable()
        assert time.monotonic() - begun < 4


@pytest.mark.promise(24)
def test_offline_opens_no_connection(server: Hub) -> None:
    with pytest.raises(WeightsError, match=r"offline is set, .*\. Set engine.offline = false\. Then run"):
        ensure(offline=True)
    assert server.requests == []
    assert hub.is_reachable()
