"""Time from starting `speclsp lsp` until it answers `initialize`. No model is involved.

    python -m benchmarks initialize [--runs 15]

Prints the median, smallest and largest, and writes benchmarks/results/initialize.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from benchmarks import results_file

BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"processId": None, "rootUri": None, "capabilities": {}},
    }
)


def initialize_ms() -> float:
    """One process: start, ask, read the first bytes of the answer, end."""
    began_s = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "speclsp", "lsp", "--model", "echo", "--set", "engine.shared=false"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(f"Content-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
        server.stdin.flush()
        server.stdout.read(1)
        took_ms = (time.perf_counter() - began_s) * 1e3
        server.stdin.close()
    return took_ms


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks initialize`."""
    parser.add_argument("--runs", metavar="N", type=int, default=15, help="servers to start (default: 15)")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    initialize_ms()  # loads the files into the system's cache
    times = [initialize_ms() for _ in range(options.runs)]
    spread = {"median": round(statistics.median(times)), "min": round(min(times)), "max": round(max(times))}
    print(json.dumps({"initialize_ms": spread, "runs": options.runs}))
    print(f"wrote {results_file.write('initialize', {'initialize_ms': spread, 'runs': options.runs})}")
    return 0
