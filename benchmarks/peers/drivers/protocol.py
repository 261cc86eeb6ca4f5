"""Protocol between `python -m benchmarks peers` and a driver: JSON lines, one load, then one request at a time.

    argv[1]   {"model": dir, "draft": dir or "", "peer": dir, "threads": 2, "modes": {name: settings, ...}}
    stdout    {"ready": true, "load_s": 3.1, "versions": {...}}
    stdin     {"ids": [...], "max_tokens": 32, "mode": name, "cold": true}
    stdout    {"total_ms": 812.5, "first_ms": 301.2, "tokens": [...]}         or {"error": "..."}

Each driver runs in its peer's own environment, so this file needs only the standard library. The library's output goes
to stderr; stdout is for the protocol. Times are taken here, inside the driver, so that they exclude the protocol: from
receiving the ids to the first tokens, and to the last.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from time import perf_counter
from typing import Any


class TokenLog:
    """The tokens of one answer as they come; the clock of the first ones."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.began_s = perf_counter()
        self.first_s = 0.0

    def __call__(self, tokens: Sequence[int]) -> None:
        if tokens and not self.tokens:
            self.first_s = perf_counter()
        self.tokens += (int(token) for token in tokens)


Answer = Callable[[list[int], int, str, bool, TokenLog], None]  # ids, max_tokens, mode, cold, where tokens go


def serve(load: Callable[[dict[str, Any]], Answer], packages: Sequence[str]) -> None:
    """Load, then answer until stdin ends. `packages`: the packages whose versions are reported."""
    die_with_parent()
    job = json.loads(sys.argv[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["threads"]])
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(what: dict[str, Any]) -> None:
        channel.write(json.dumps(what) + "\n")
        channel.flush()

    began_s = perf_counter()
    try:
        answer = load(job)
    except Exception as error:
        traceback.print_exc()
        tell({"error": one_line(error)})
        return
    load_s = round(perf_counter() - began_s, 1)
    tell({"ready": True, "load_s": load_s, "versions": {name: version(name) for name in packages}})
    for line in sys.stdin:
        request = json.loads(line)
        log = TokenLog()
        try:
            answer(request["ids"], request["max_tokens"], request["mode"], request["cold"], log)
        except Exception as error:
            traceback.print_exc()
            tell({"error": one_line(error)})
            continue
        ended_s = perf_counter()
        tell(
            {
                "total_ms": round((ended_s - log.began_s) * 1e3, 2),
                "first_ms": round((log.first_s - log.began_s) * 1e3, 2),
                "tokens": log.tokens,
            }
        )


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of equal tokens at the beginning of both: what a prefix cache can keep."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends: a stopped one would not notice."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # 1: PR_SET_PDEATHSIG


def version(package: str) -> str:
    """As installed; "" where it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def one_line(error: BaseException) -> str:
    """Its kind and the first of its words."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
