"""Downloads from the model hub: pinned, checked against the hub's and the card's checksums, and resumed."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from speclsp.errors import WeightsError
from speclsp.weights import auto_choice, hub, model_directory, store
from speclsp.weights.cards import WeightFile, Weights

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BIG = bytes(range(256)) * 12_000  # 3 MB, so that a transfer can be interrupted midway
HEADER = json.dumps({"weight": {"dtype": "U8", "shape": [len(BIG)], "data_offsets": [0, len(BIG)]}}).encode()
TENSORS = len(HEADER).to_bytes(8, "little") + HEADER + BIG
MODEL = Weights(name="model", format="safetensors", repo="owner/model", revision=COMMIT, parameters=len(BIG) // 2)


class FakeHub(ThreadingHTTPServer):
    """The hub's answers about one model, and a record of its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.files = {
            "config.json": b'{"model_type": "qwen2"}',
            "tokenizer.json": b'{"added_tokens": []}',
            "model.safetensors": TENSORS,
            "README.md": b"never fetched",
            "pytorch_model.bin": b"\x80\x04 never fetched",
        }
        self.sent: dict[str, bytes] = {}  # replaces the checksum in the listing
        self.cut_after: list[int] = []  # bytes until the next transfers are interrupted
        self.status = 200
        self.requests: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for name, body in self.files.items():
            git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(body), "blobId": git}
            if len(body) > 1000:
                entry["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
            siblings.append(entry)
        return {"id": "owner/model", "modelId": "owner/model", "sha": COMMIT, "siblings": siblings, "tags": []}


class Answers(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_: object) -> None:
        """Prints nothing."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        path, span = self.path.partition("?")[0], self.headers.get("Range", "")
        self.server.requests.append(f"{path} {span}".strip())
        if self.server.status != 200:
            self.send_response(self.server.status)
            self.send_header("X-Error-Code", "GatedRepo" if self.server.status == 403 else "")
            self.end_headers()
        elif path.startswith("/api/models/"):
            self.answer(200, json.dumps(self.server.listing()).encode())
        else:
            name = path.rpartition("/")[2]
            body = self.server.sent.get(name, self.server.files[name])
            start = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
            self.answer(206 if span else 200, body[start:], cut=name == "model.safetensors")

    def answer(self, status: int, body: bytes, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cut and self.server.cut_after:
            self.wfile.write(body[: self.server.cut_after.pop(0)])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{fake.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    yield fake
    fake.shutdown()
    fake.server_close()


def ensure(root: Path, model: Weights = MODEL, **options: object) -> Path:
    return store.ensure(model, root=root, **options)  # type: ignore[arg-type]


def test_only_config_tokenizer_and_safetensors_of_the_pinned_commit_are_downloaded(
    server: FakeHub, tmp_path: Path
) -> None:
    steps: list[store.Progress] = []
    directory = ensure(tmp_path, progress=steps.append)
    fetched = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in directory.iterdir()} == fetched | {"manifest.json"}
    assert server.requests[0] == f"/api/models/owner/model/revision/{COMMIT}"
    assert set(server.requests[1:]) == {f"/owner/model/resolve/{COMMIT}/{name}" for name in fetched}
    assert steps[-1].done_bytes == steps[-1].total_bytes == sum(len(server.files[name]) for name in fetched)
    store.verify(MODEL, root=tmp_path)
    assert model_directory.manifest(directory)["revision"] == COMMIT


def test_without_a_pinned_revision_the_newest_is_used_and_recorded(server: FakeHub, tmp_path: Path) -> None:
    directory = ensure(tmp_path, replace(MODEL, revision=""))
    assert server.requests[0] == "/api/models/owner/model/revision/main"
    assert model_directory.manifest(directory)["revision"] == COMMIT
    assert store.path(MODEL, root=tmp_path) == directory, "and a card that pins that commit later is content with it"
    assert store.path(replace(MODEL, revision="f" * 40), root=tmp_path) is None


@pytest.mark.promise(24)
def test_an_interrupted_transfer_resumes_where_it_stopped(server: FakeHub, tmp_path: Path) -> None:
    server.cut_after = [16 * hub.CHUNK_BYTES, 8 * hub.CHUNK_BYTES]
    ensure(tmp_path)
    spans = [request.partition(" ")[2] for request in server.requests if "model.safetensors" in request]
    assert spans[0] == ""
    assert [int(span.strip("bytes=-")) for span in spans[1:]] == [16 * hub.CHUNK_BYTES, 24 * hub.CHUNK_BYTES]


@pytest.mark.promise(24)
def test_files_of_a_failed_download_are_kept_for_the_next_one(server: FakeHub, tmp_path: Path) -> None:
    server.cut_after = [10 * hub.CHUNK_BYTES, 0, 0, 0]
    with pytest.raises(WeightsError, match="the hub cannot be reached"):
        ensure(tmp_path)
    assert store.path(MODEL, root=tmp_path) is None
    server.requests.clear()
    ensure(tmp_path)
    assert [request.partition("resolve/")[2] for request in server.requests[1:]] == [
        f"{COMMIT}/model.safetensors bytes={10 * hub.CHUNK_BYTES}-",
        f"{COMMIT}/tokenizer.json",
    ]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.promise(24)
def test_a_wrong_checksum_is_refused_with_both_checksums(server: FakeHub, tmp_path: Path, name: str) -> None:
    wrong = b"x" + server.files[name][1:]
    server.sent[name] = wrong
    with pytest.raises(
        WeightsError, match=f"{name} with {len(wrong)} bytes and sha256 {hashlib.sha256(wrong).hexdigest()}"
    ):
        ensure(tmp_path)
    del server.sent[name]
    assert ensure(tmp_path).is_dir(), "and nothing wrong was kept"


@pytest.mark.promise(24)
def test_a_cards_checksum_that_the_hub_lacks_stops_the_download_before_the_transfer(
    server: FakeHub, tmp_path: Path
) -> None:
    other = replace(MODEL, files=(WeightFile("model.safetensors", 0, "a" * 64),))
    with pytest.raises(WeightsError, match=f"the model definition expects {'a' * 64}"):
        ensure(tmp_path, other)
    assert len(server.requests) == 1
    same = replace(MODEL, files=(WeightFile("model.safetensors", 0, hashlib.sha256(TENSORS).hexdigest()),))
    assert ensure(tmp_path, same).is_dir()


@pytest.mark.promise(31)
def test_a_model_with_only_pickle_files_or_with_code_is_refused(server: FakeHub, tmp_path: Path) -> None:
    server.files["config.json"] = b'{"auto_map": {"AutoModel": "evil.Model"}}'
    with pytest.raises(WeightsError, match="contains model code"):
        ensure(tmp_path)
    assert store.path(MODEL, root=tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == ["model.lock"]
    del server.files["model.safetensors"]
    with pytest.raises(WeightsError, match="publishes only pickle files"):
        ensure(tmp_path)


@pytest.mark.promise(31)
def test_file_names_with_a_path_are_never_requested(server: FakeHub, tmp_path: Path) -> None:
    for odd in ("../model.safetensors", "sub/model.safetensors", "model.safetensors.py", "/etc/model.safetensors"):
        server.files[odd] = b"odd"
    directory = ensure(tmp_path)
    assert len(list(directory.iterdir())) == 4


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (403, "requires that you accept the licence: do so on the model's page, then run `hf auth login`"),
        (503, "the hub answered with HTTP 503"),
    ],
)
def test_a_refusal_of_the_hub_names_the_fix(server: FakeHub, tmp_path: Path, status: int, says: str) -> None:
    server.status = status
    with pytest.raises(WeightsError, match=says):
        ensure(tmp_path)


def test_every_kind_of_timeout_gives_the_same_message() -> None:
    class ConnectTimeout(Exception):
        """The name in httpx."""

    def strikes() -> None:
        raise ConnectTimeout

    for ask in (strikes, lambda: time.sleep(0.3)):
        with pytest.raises(hub.HubError, match="the hub did not answer within 0 s"):
            hub._within(0.1, ask)


def test_a_hub_that_never_answers_is_abandoned_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(
            WeightsError, match=r"the hub (did not answer|cannot be reached).*; no package index carries it"
        ):
            ensure(tmp_path)
        assert not hub.is_reachable()
        assert time.monotonic() - begun < 4


@pytest.mark.promise(24)
def test_offline_opens_no_connection(server: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="offline is set"):
        ensure(tmp_path, offline=True)
    assert not auto_choice.fetchable(offline=True)(MODEL)
    assert server.requests == []
    assert auto_choice.fetchable()(MODEL), "online, the hub is there to be asked"
