"""An installation of speclsp for tests of weights: its own copy, with cards for models of a few megabytes.

    hubbed    the trained tiny target, in two shards, from a hub on loopback that can fail in every way
    shelved   a GGUF of the same hub

The copy is the product but for one constant: a hub that is silent for STALL_S is given up on after 1 s, not 30.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.lsp.editor_client import Editor
from support.lsp.lsp_client import ROOT, Client
from support.weights import tiny_gguf

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
PIECE = 1 << 14  # as the hub sends
REPAIR = "`speclsp models pull hubbed`"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(header: Mapping[str, Any], data: bytes) -> bytes:
    """A safetensors file."""
    table = json.dumps(header).encode()
    return len(table).to_bytes(8, "little") + table + data


def unpacked(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def shards() -> dict[str, bytes]:
    """The tiny target as a publisher of large models would have it."""
    folder = ROOT / "models/tiny/target"
    header, data = unpacked((folder / "model.safetensors").read_bytes())
    names = [name for name in header if name != "__metadata__"]
    made: dict[str, bytes] = {name: (folder / name).read_bytes() for name in ("config.json", "tokenizer.json")}
    for file, some in ((FIRST, names[: len(names) // 2]), (SECOND, names[len(names) // 2 :])):
        table, body = {}, b""
        for name in some:
            start, end = header[name]["data_offsets"]
            table[name] = {**header[name], "data_offsets": [len(body), len(body) + end - start]}
            body += data[start:end]
        made[file] = packed(table, body)
    return made


class Hub(ThreadingHTTPServer):
    """What the model hub answers, and how it fails: set `next` to a list of faults, one for each transfer.

    `models`: {name: {file: content}}, each published as owner/NAME at the revision `commit`.
    """

    daemon_threads = True

    def __init__(self, models: Mapping[str, dict[str, bytes]], commit: str = COMMIT) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.models = models
        self.commit = commit
        self.sent: dict[str, bytes] = {}  # {file: what is sent in place of the published content}
        self.requests: list[str] = []  # path and range
        self.next: list[tuple[str, int]] = []  # (fault, at which byte of the transfer) of large files
        self.listing_fault = ""  # "page", or an HTTP status
        self.at_byte: Callable[[int], None] = lambda served: None
        self.transfers: list[tuple[str, int]] = []  # (file, first byte)
        self.served = 0  # bytes of large files
        self.released = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is what is wanted."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reset(self) -> None:
        self.next, self.listing_fault, self.at_byte = [], "", lambda served: None
        self.transfers.clear()
        self.served = 0

    def listing(self, model: str) -> dict[str, Any]:
        siblings = []
        for name, body in self.models[model].items():
            git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
            entry: dict[str, Any] = {"rfilename": name, "size": len(body), "blobId": git}
            if name.endswith((".safetensors", ".gguf")):
                entry["lfs"] = {"sha256": sha256(body), "size": len(body), "pointerSize": 134}
            siblings.append(entry)
        repo = f"owner/{model}"
        return {"id": repo, "modelId": repo, "sha": self.commit, "siblings": siblings, "tags": []}


class Answers(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE)  # what is sent has nearly arrived
        super().setup()

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.head(200, 0)

    def head(self, status: int, length: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def page(self, status: int = 200) -> None:
        body = b"<!DOCTYPE html><html>Please log in to the network</html>" * 30
        self.head(status, len(body), Content_Type="text/html")
        self.wfile.write(body)

    def do_GET(self) -> None:
        hub, path, span = self.server, self.path.partition("?")[0], self.headers.get("Range", "")
        hub.requests.append(f"{path} {span}".strip())
        if path.startswith("/api/models/"):
            if hub.listing_fault == "page":
                self.page()
            elif hub.listing_fault:
                self.head(int(hub.listing_fault), 0)
            else:
                body = json.dumps(hub.listing(path.split("/")[4])).encode()
                self.head(200, len(body), Content_Type="application/json")
                self.wfile.write(body)
            return
        model, name = path.split("/")[2] if not path.startswith("/moved") else path.split("/")[3], path.split("/")[-1]
        body = hub.sent.get(name, hub.models[model][name])
        start = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
        fault, at = "", 0
        if name.endswith((".safetensors", ".gguf")):
            if path.startswith("/moved"):
                pass
            elif hub.next:
                fault, at = hub.next.pop(0)
            hub.transfers.append((name, start))
        if fault.isdigit():
            self.head(int(fault), 0, Retry_After="0")
        elif fault == "page":
            self.page()
        elif fault == "moved":
            self.head(302, 0, Location=f"{hub.url}/moved{path}")
        elif fault == "loop":
            hub.next.insert(0, ("loop", 0))
            self.head(302, 0, Location=hub.url + path)
        else:
            self.send(body[start:], 206 if span else 200, fault, at)

    def send(self, body: bytes, status: int, fault: str, at: int) -> None:
        if fault == "wrong":
            body = bytes([body[0] ^ 1]) + body[1:]
        elif fault == "short":
            body = body[:at]
        elif fault == "long":
            body = body * 8
        self.head(status, len(body))
        sent = 0
        while sent < len(body):
            end = min(len(body), sent + PIECE)
            if fault in ("cut", "stall", "trickle") and end >= at:
                end = max(at, sent)
            self.wfile.write(body[sent:end])
            self.server.served += end - sent
            self.server.at_byte(self.server.served)
            sent = end
            if fault == "slow":  # 2.5 MB a second
                time.sleep(PIECE / 2_500_000)
            if fault == "cut" and sent >= at:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if fault == "stall" and sent >= at:
                self.server.released.wait(60)
                self.close_connection = True
                return
            while fault == "trickle" and sent >= at and sent < len(body) and not self.server.released.wait(0.2):
                self.wfile.write(body[sent : sent + 1])
                sent += 1


class FaultyHubRun:
    """The installation, its hub, and a cache in which the models are whole."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "speclsp", root / "speclsp")
        shutil.copytree(ROOT / "models", root / "models")
        module = root / "speclsp/weights/hub.py"
        text = module.read_text()
        assert text.count("STALL_S = 30.0") == 1
        module.write_text(text.replace("STALL_S = 30.0", "STALL_S = 1.0"))
        gguf = tiny_gguf.write(root / "model.gguf", tiny_gguf.random_tensors(biases=True)).read_bytes()
        config, tokenizer = b'{"model_type": "qwen2"}', b"{}"
        self.files = shards()
        self.hub = Hub(
            {
                "hubbed": self.files,
                "shelved": {"model.gguf": gguf, "config.json": config, "tokenizer.json": tokenizer},
            }
        )
        tiny = (ROOT / "models/tiny.toml").read_text()
        head, _, rest = tiny.partition("[target]")
        markers = "[fim]" + rest.partition("[fim]")[2]
        source = f'repo = "owner/%s"\nrevision = "{COMMIT}"\nparameters = 2178688\n'
        (root / "models/hubbed.toml").write_text(
            f'{head}[target]\nformat = "safetensors"\n{source % "hubbed"}\n{markers}'
        )
        for marker in ("pad", "repo", "file_sep"):
            markers = "\n".join(line for line in markers.splitlines() if not line.startswith(f"{marker} ="))
        head = head.partition("stop_tokens")[0]
        (root / "models/shelved.toml").write_text(
            f'{head}[target]\nformat = "gguf"\n{(source % "shelved").replace("2178688", "100000")}\n'
            f'[[target.files]]\nname = "model.gguf"\nbytes = {len(gguf)}\nsha256 = "{sha256(gguf)}"\n{markers}'
        )
        self.zygote: subprocess.Popen[str] | None = None
        self.pid = 0  # of the job under way
        self.whole = root / "whole"
        for model in ("hubbed", "shelved"):
            code, output = self.fork("models", "pull", model, XDG_CACHE_HOME=str(self.whole))
            assert code == 0, output

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "HF_ENDPOINT": self.hub.url,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1",
            **more,
        }

    def fork(
        self, *words: str, below: Path | None = None, at: int = 0, program: str = "", **more: str
    ) -> tuple[int, str]:
        """`speclsp` in a fork of a process that has imported all of it; the exit code, and stdout and stderr.

        It is killed at step `at` on the disk below a place: its exit code is -9. `program`: Python to run in place of
        the command.
        """
        out, err = self.root / "out", self.root / "err"
        job = {
            "words": words,
            "program": program,
            "environment": self.environment(**more),
            "folder": str(self.root),
            "out": str(out),
            "err": str(err),
            "below": str(below or ""),
            "at": at,
            "count": str(self.root / "count"),
        }
        if self.zygote is None:
            self.zygote = subprocess.Popen(
                [sys.executable, str(Path(__file__).parents[1] / "faults/fork_server.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self.root,
                env=self.environment(),
            )
        assert self.zygote.stdin is not None and self.zygote.stdout is not None
        self.zygote.stdin.write(json.dumps(job) + "\n")
        self.zygote.stdin.flush()
        self.pid = int(self.zygote.stdout.readline())
        code = int(self.zygote.stdout.readline())
        self.pid = 0
        return code, out.read_text() + err.read_text()

    def steps(self) -> int:
        """The number of disk operations of the last job below its directory."""
        return int((self.root / "count").read_text() or 0)

    def close(self) -> None:
        self.hub.released.set()
        self.hub.shutdown()
        self.hub.server_close()
        if self.zygote is not None:
            self.zygote.kill()
            self.zygote.communicate()

    def editor(self, *words: str, model: str = "hubbed") -> HouseEditor:
        return HouseEditor(self, *words, model=model)


class HouseEditor(Editor):
    """An editor that starts the house's server."""

    def __init__(self, house: FaultyHubRun, *words: str, model: str) -> None:
        self.settings, self.arrived = None, []
        self.runtime = Path(os.environ["XDG_RUNTIME_DIR"]) / "speclsp"
        self.logs = Path(os.environ["XDG_STATE_HOME"]) / "speclsp" / "log"
        self.started = time.perf_counter()
        ours = ["--model", model, "--set", "engine.shutdown_delay_seconds=0", *words]
        command = [sys.executable, "-m", "speclsp", "lsp", "--stdio", *ours]
        Client.__init__(self, command, env=house.environment(), cwd=house.root)
        Editor.sharing[self.runtime] += 1


def cache() -> Path:
    """The directory of the test's own weights."""
    return Path(os.environ["XDG_CACHE_HOME"]) / "speclsp" / "models"


def model(house: FaultyHubRun, name: str = "hubbed") -> Path:
    """The whole model in the test's own cache, times of change and all."""
    shutil.rmtree(cache() / name, ignore_errors=True)
    shutil.copytree(house.whole / "speclsp/models" / name, cache() / name)
    return cache() / name
