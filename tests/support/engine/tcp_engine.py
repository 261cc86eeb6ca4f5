"""A real `speclsp engine --port 0` with directories of its own, and an authenticated client of its TCP port."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
from windows.harness.program import program


class TcpEngine:
    """The process, its port and its token. `root`: a short, empty directory."""

    def __init__(self, root: Path, *more: str, model: str = "echo") -> None:
        self.root = root
        places = {f"XDG_{name}_HOME": str(root / name.lower()) for name in ("CONFIG", "STATE", "CACHE")}
        (root / "run").mkdir(mode=0o700)
        command = program("engine", "--model", model, "--port", "0", *more)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(root / "stderr").open("w"),
            text=True,
            env=os.environ | places | {"XDG_RUNTIME_DIR": str(root / "run")},
        )
        self.port = 0
        for line in self.process.stdout:
            if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                break
        assert self.port, (root / "stderr").read_text()
        self.token = (root / "state" / "speclsp" / "token").read_text().strip()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=30, headers={"authorization": f"Bearer {self.token}"})

    def post(self, path: str, **fields: Any) -> httpx.Response:
        """The answer to a POST of `fields`."""
        return self.http.post(path, json=fields)

    def close(self) -> None:
        """End the process."""
        self.http.close()
        self.process.terminate()
        self.process.communicate(timeout=30)
