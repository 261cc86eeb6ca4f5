"""How long an editor waits for `speclsp lsp` to answer `initialize`, from starting the process. No model is involved.

    python benchmarks/editor/initialize.py [--runs 15]

Prints the median, smallest and largest, and writes benchmarks/results/initialize.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULT = Path(__file__).parents[1] / "results" / "initialize.json"
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
        [sys.executable, "-m", "speclsp", "lsp", "--pair", "echo", "--set", "engine.shared=false"],
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    initialize_ms()  # files into the cache
    times = [initialize_ms() for _ in range(runs)]
    report = {
        "initialize_ms": {
            "median": round(statistics.median(times)),
            "min": round(min(times)),
            "max": round(max(times)),
        },
        "runs": runs,
        "os": platform.platform(),
        "python": platform.python_version(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
