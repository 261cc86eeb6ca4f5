"""Proxy between an editor and its language server that logs messages and times: `lsp_tap.py LOG COMMAND ARGUMENTS...`.

Bytes go through unchanged. Each message becomes one line of LOG: {"ms": CLOCK_MONOTONIC, "to": "server" | "editor",
"message": {...}}. The clock is the machine's, so times of an editor, a test and this proxy are comparable.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO


def main(log: str, *command: str) -> int:
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    with Path(log).open("a", encoding="utf-8", buffering=1) as written:
        lock = threading.Lock()
        inward = threading.Thread(
            target=carry, args=(sys.stdin.fileno(), server.stdin, "server", written, lock), daemon=True
        )
        inward.start()
        carry(server.stdout.fileno(), sys.stdout.buffer, "editor", written, lock)
        return server.wait()


def carry(source: int, sink: IO[bytes], to: str, log: IO[str], lock: threading.Lock) -> None:
    """Copies everything from `source` to `sink` as it comes; the end of one ends the other."""
    buffered = b""
    while got := os.read(source, 1 << 16):
        ms = time.monotonic_ns() / 1e6
        try:
            sink.write(got)
            sink.flush()
        except (BrokenPipeError, ValueError):
            break
        buffered += got
        while True:
            head, blank, rest = buffered.partition(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), None
            )
            if not blank or length is None or len(rest) < length:
                break
            buffered = rest[length:]
            with lock:
                log.write(json.dumps({"ms": round(ms, 3), "to": to, "message": json.loads(rest[:length])}) + "\n")
    with contextlib.suppress(OSError):
        sink.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
