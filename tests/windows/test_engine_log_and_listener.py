"""Renaming an open log, and connections that end before they are accepted, on Windows, run under Wine."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.faults.filled_log import FILL_LOG
from support.waiting import wait_until

if "SPECLSP_WINDOWS_PYTHON" not in os.environ:
    pytest.skip("needs the Windows Python of `make windows`", allow_module_level=True)

RESETS = 200


@pytest.mark.parametrize("opened", ["alone", "another"])
def test_a_log_that_prints_or_another_handle_keep_open_stays_bounded(windows: list[str], tmp_path: Path, opened: str):
    """The process's own prints do not stop the rename. A foreign handle does: then the file is emptied."""
    log = tmp_path / "engine.log"
    command = [*windows, "-c", FILL_LOG, f"Z:{log}", opened, "report"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stderr.endswith("written"), done.stderr
    text = log.read_text()
    assert "logged 299" in text and text.splitlines()[-1] == "last words"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == ({"engine.log", "engine.log.1"} if opened == "alone" else {"engine.log"})
    assert all((tmp_path / name).stat().st_size <= 10_200 for name in names)


@contextmanager
def engine(windows: list[str], path: Path) -> Iterator[dict[str, Any]]:
    """An engine with the model echo and the runtime directory `path`; gives the content of its discovery file."""
    words = [*windows, "-m", "speclsp", "engine", "--model", "echo"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": f"Z:{path}"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            wait_until(lambda: list(path.glob("speclsp/engine-*.json")))
            yield json.loads(next(path.glob("speclsp/engine-*.json")).read_text())
        finally:
            process.kill()


def test_connections_that_are_reset_before_they_are_accepted_leave_the_listener(
    windows: list[str], isolated: Path, tmp_path: Path
):
    with engine(windows, tmp_path) as state:
        address = ("127.0.0.1", state["port"])
        for _ in range(RESETS):
            with socket.create_connection(address) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        headers = {"authorization": f"Bearer {state['token']}"}
        url = f"http://127.0.0.1:{state['port']}/health"
        assert httpx.get(url, headers=headers, timeout=120).status_code == 200
