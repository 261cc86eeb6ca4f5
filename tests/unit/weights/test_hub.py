"""Downloads from the model hub: pinned, checked against the hub's and the card's checksums, and resumed."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from huggingface_hub import HfApi
from support.rows import rows
from support.weights.faulty_hub import COMMIT, Hub, packed

from speclsp.errors import WeightsError
from speclsp.weights import auto_choice, hub, locations, model_directory, store
from speclsp.weights.cards import WeightFile, Weights

ROWS = rows(__file__)

BIG = bytes(range(256)) * 12_000  # 3 MB, so that a transfer can be interrupted midway
TENSORS = packed({"weight": {"dtype": "U8", "shape": [len(BIG)], "data_offsets": [0, len(BIG)]}}, BIG)
FILES = {
    "config.json": b'{"model_type": "qwen2"}',
    "tokenizer.json": b'{"added_tokens": []}',
    "model.safetensors": TENSORS,
    "README.md": b"never fetched",
    "pytorch_model.bin": b"\x80\x04 never fetched",
}
MODEL = Weights(name="model", format="safetensors", repo="owner/model", revision=COMMIT, parameters=len(BIG) // 2)


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


def test_files_are_flushed_through_handles_that_are_open_for_writing(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FlushFileBuffers of Windows refuses every other handle."""
    fsync, flushed = os.fsync, []

    def fsync_of_windows(handle: int) -> None:
        os.write(handle, b"")  # fails for a handle that is open for reading
        flushed.append(handle)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fsync_of_windows)
    ensure()
    assert len(flushed) == 4, "three files and their manifest"


def test_without_a_pinned_revision_the_newest_is_used_and_recorded(server: Hub) -> None:
    directory = ensure(replace(MODEL, revision=""))
    assert server.requests[0] == "/api/models/owner/model/revision/main"
    assert model_directory.manifest(directory)["revision"] == COMMIT
    assert store.path(MODEL) == directory, "and a card that pins that commit later is content with it"
    assert store.path(replace(MODEL, revision="f" * 40)) is None


@pytest.mark.promise(24)
def test_files_of_a_failed_download_are_kept_for_the_next_one(server: Hub) -> None:
    server.next = [("cut", 10 * hub.CHUNK_BYTES), *[("cut", 0)] * 3]
    with pytest.raises(WeightsError, match="the hub cannot be reached"):
        ensure()
    assert store.path(MODEL) is None
    server.requests.clear()
    ensure()
    assert [request.partition("resolve/")[2] for request in server.requests[1:]] == [
        f"{COMMIT}/model.safetensors bytes={10 * hub.CHUNK_BYTES}-",
        f"{COMMIT}/tokenizer.json",
    ]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.promise(24)
def test_a_wrong_checksum_is_refused_with_both_checksums(server: Hub, name: str) -> None:
    wrong = b"x" + server.models["model"][name][1:]
    server.sent[name] = wrong
    with pytest.raises(
        WeightsError, match=f"{name} with {len(wrong)} bytes and sha256 {hashlib.sha256(wrong).hexdigest()}"
    ) as caught:
        ensure()
    assert "A proxy or a mirror that changes downloads must be avoided. Then run" in str(caught.value)
    del server.sent[name]
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


@pytest.mark.promise(31)
def test_file_names_with_a_path_are_never_requested(server: Hub) -> None:
    for odd in ("../model.safetensors", "sub/model.safetensors", "model.safetensors.py", "/etc/model.safetensors"):
        server.models["model"][odd] = b"odd"
    directory = ensure()
    assert len(list(directory.iterdir())) == 4


@pytest.mark.parametrize(("status", "headers", "says"), ROWS["each_refusal_of_the_hub_names_its_own_way_out"])
def test_each_refusal_of_the_hub_names_its_own_way_out(
    server: Hub, status: int, headers: dict[str, str], says: str
) -> None:
    server.listing_fault, server.fault_headers = str(status), headers
    with pytest.raises(WeightsError, match=says) as caught:
        ensure()
    assert "Go online" not in str(caught.value) and "or put its files into" in str(caught.value)


def test_a_web_page_in_place_of_the_hub_names_the_login_of_the_network(server: Hub) -> None:
    server.listing_fault = "page"
    with pytest.raises(WeightsError, match=r"the answer is not the hub's .* Open a web page in a browser"):
        ensure()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    ROWS["a_variable_that_cannot_be_used_is_named_and_the_hub_is_not_asked"],
)
def test_a_variable_that_cannot_be_used_is_named_and_the_hub_is_not_asked(
    server: Hub, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    for module in ("utils", "hf_api"):  # huggingface_hub keeps a session with the old proxies
        monkeypatch.setattr(f"huggingface_hub.{module}.get_session", lambda: httpx.Client())
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv(name, value)
    with pytest.raises(WeightsError, match=says) as caught:
        ensure()
    assert "Go online" not in str(caught.value) and "browser" not in str(caught.value)
    assert value not in str(caught.value) or name != "HF_TOKEN", "a token is never quoted"
    assert server.requests == []
    assert not hub.is_reachable()


@pytest.mark.parametrize("proxies", [{"no": "localhost"}, {"https": "http://proxy:8080"}], ids=["direct", "proxy"])
def test_a_proxy_of_the_variables_or_the_system_is_a_cause_of_an_unreachable_hub(
    monkeypatch: pytest.MonkeyPatch, proxies: dict[str, str]
) -> None:
    monkeypatch.setattr("urllib.request.getproxies", lambda: proxies)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(hub.HubError, match="cannot be reached") as caught:
        hub.files(MODEL)
    assert caught.value.fix == (hub.PROXY if "https" in proxies else "")


class ConnectTimeout(Exception):
    """The name in httpx."""


def test_an_empty_endpoint_is_the_hub_itself_and_every_kind_of_timeout_gives_the_same_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoints = []

    def strikes(api: HfApi, *_: object, **options: object) -> None:
        endpoints.append(api.endpoint)
        raise ConnectTimeout

    monkeypatch.setenv("HF_ENDPOINT", "")
    monkeypatch.setattr(hub, "CONNECT_S", 0.1)
    for ask in (strikes, lambda *_, **options: time.sleep(0.3)):
        monkeypatch.setattr(HfApi, "model_info", ask)
        with pytest.raises(hub.HubError, match="the hub did not answer within 0 s"):
            hub.files(MODEL)
    assert endpoints == [hub.OFFICIAL]


def test_a_hub_that_never_answers_is_abandoned_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(
            WeightsError, match=r"the hub (did not answer|cannot be reached).*; no package index carries it"
        ):
            ensure()
        assert not hub.is_reachable()
        assert time.monotonic() - begun < 4


@pytest.mark.promise(24)
def test_offline_opens_no_connection(server: Hub) -> None:
    with pytest.raises(WeightsError, match=r"offline is set, .*\. Set engine.offline = false\. Then run"):
        ensure(offline=True)
    assert not auto_choice.fetchable(offline=True)(MODEL)
    assert server.requests == []
    assert auto_choice.fetchable()(MODEL), "online, the hub is there to be asked"
