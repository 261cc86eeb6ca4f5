"""Engine that answers `speclsp complete`: a running one, one that is started and stays, or a remote server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from support.cli.terminal import Run, runner
from support.lsp.faulty_http_server import FaultyServer, refuses
from support.waiting import wait_until

from speclsp.daemon import control
from speclsp.weights import locations

SOURCE = "def add(a, b):\n    return \n\n\nprint(add(1, 2))\n"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs `speclsp complete` at the hole of SOURCE."""
    path = tmp_path / "add.py"
    path.write_text(SOURCE)
    return runner(capsys, "complete", f"{path}:2:12")


def running_pids() -> list[int]:
    """The processes of the running engines."""
    return [engine.pid for files in control.running() if (engine := files.read()) is not None]


# ── the shared engine ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_engine_that_it_starts_stays_and_answers_the_next_command(run: Run):
    first = run("--model", "echo")
    (pid,) = running_pids()
    assert first[0] == 0
    assert run("--model", "echo", "--json")[0] == 0
    assert running_pids() == [pid]
    assert run("--model", "tiny")[0] == 0
    assert pid in running_pids() and len(running_pids()) == 2, "other settings have another engine"


@pytest.mark.slow
def test_an_engine_that_cannot_serve_gives_its_error_in_one_line(run: Run):
    code, out, err = run("--model", "qwen2.5-coder-0.5b-instruct", "--set", "engine.offline=true")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "qwen2.5-coder-0.5b-instruct is not on this machine: offline is set" in err


@pytest.mark.slow
def test_an_interrupt_cancels_the_request_silently_and_the_engine_stays(tmp_path: Path):
    path = tmp_path / "x.txt"
    path.write_text("x = ")
    words = ["complete", f"{path}:1:5", "--model", "echo", "--set", "echo.round_ms=60000"]
    listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background job, as CI's, may ignore it
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "speclsp", *words]
    with subprocess.Popen(command, **pipes, text=True, preexec_fn=listens) as process:  # type: ignore[call-overload]
        try:
            wait_until(lambda: any(status.get("leases") for status in control.statuses()))
            process.send_signal(signal.SIGINT)
            assert (*process.communicate(timeout=60), process.returncode) == ("", "", 130)
        finally:
            process.kill()
    assert running_pids()


# ── a remote server ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_remote_url_is_honoured_and_nothing_local_is_started_or_downloaded(run: Run):
    with FaultyServer() as server:
        remote = ("--set", f"remote.url={server.url}")
        assert run(*remote) == (0, "a + b\n", "")
        report = json.loads(run(*remote, "--json")[1])
        assert len(server.completions()) == 2
    assert (report["suggestion"], report["device"], report["stop_type"]) == ("a + b", server.url[7:], "eos")
    assert report["new_tokens"] == 3
    assert control.running() == [] and not locations.store_root().exists()


def test_a_remote_server_that_cannot_be_used_is_the_error_and_nothing_is_downloaded(run: Run):
    code, out, err = run("--set", f"remote.url={NOWHERE}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"speclsp: remote.url = '{NOWHERE}' cannot be used: no connection to")
    assert "Next try" not in err
    assert control.running() == [] and not locations.store_root().exists()


def test_a_refused_request_is_the_error(run: Run):
    with FaultyServer() as server:
        server.always = refuses(500, "out of order")
        code, out, err = run("--set", f"remote.url={server.url}")
    assert (code, out, err.count("\n")) == (2, "", 1) and "out of order" in err
