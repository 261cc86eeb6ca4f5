"""Lifecycle of the server process: initialize, replies, text sync, backpressure, and every way it ends.

A B-number in a test's name is a probe of stock pygls that stock pygls fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from support.lsp.lsp_client import FIXTURE, ROOT, Client, frame

GONE_S = 10.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    with Client() as client:
        client.initialize(processId=2**22 + 1)  # as from another pid namespace: invisible here, must not count as dead
        yield client
        assert client.popups() == []
        assert client.stray == b""
        assert "Traceback" not in client.stderr()


@pytest.fixture
def fresh() -> Iterator[Client]:
    with Client() as client:
        yield client


# ── from initialize to exit ─────────────────────────────────────────────────────────────────────────────────────────


def test_initialize_is_answered_and_announces_inline_completion(fresh: Client):
    capabilities = fresh.initialize()["capabilities"]
    assert capabilities["inlineCompletionProvider"] == {}
    assert capabilities["textDocumentSync"] == {"openClose": True, "change": 2, "save": True}
    assert "notebookDocumentSync" not in capabilities


def test_the_protocol_layer_imports_neither_torch_nor_the_engine():
    heavy = ("torch", "speclsp.engine", "httpx", "tree_sitter")
    code = (
        f"import sys, speclsp.lsp.protocol.language_server; sys.exit(any(module in sys.modules for module in {heavy}))"
    )
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == 0


# ── replies ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise(1)
def test_a_failing_handler_gives_an_error_of_one_line_without_a_traceback(shared: Client):
    assert shared.error("test/raise", "ours") == {"code": -32603, "message": "no such engine"}
    assert shared.error("test/raise", "yours") == {"code": -32602, "message": "no such file"}
    assert shared.error("test/raise", "x") == {"code": -32603, "message": "KeyError: 'x'"}
    assert shared.error("test/strange")["code"] == -32603
    assert "bare_server.py" in shared.stderr(), "the log says where"


def test_a_command_is_run_and_a_wrong_one_refused(shared: Client):
    assert shared.call("workspace/executeCommand", {"command": "test.add", "arguments": [1, 2]}) == 3
    assert shared.error("workspace/executeCommand", {"command": "test.none"})["code"] == -32602


@pytest.mark.promise(4)
def test_a_client_that_closes_stdout_ends_the_server():
    read_end, write_end = os.pipe()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(FIXTURE, stdin=subprocess.PIPE, stdout=write_end, stderr=subprocess.DEVNULL, env=env)
    os.close(write_end)
    os.close(read_end)
    server.stdin.write(frame({"jsonrpc": "2.0", "id": 1, "method": "shutdown"}))
    server.stdin.flush()
    assert server.wait(10) == 1
    server.stdin.close()


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

WORK = [None, ("test/wait", 60), ("test/stubborn", 60), ("test/block", 6)]
WORK_NAMES = ["idle", "waiting", "refusing to be cancelled", "blocking the loop"]


def put_to_work(client: Client, work: tuple[str, float] | None) -> None:
    client.initialize()
    if work is not None:
        client.request(*work)
        time.sleep(0.2)


@pytest.mark.promise(4)
@pytest.mark.parametrize("work", WORK, ids=WORK_NAMES)
def test_b13_the_process_ends_with_its_stdin(fresh: Client, work: tuple[str, float] | None):
    put_to_work(fresh, work)
    fresh.process.stdin.close()
    assert fresh.ended(GONE_S) == 1
    assert fresh.stderr().count("on_exit ran") == 1


@pytest.mark.promise(1)
def test_requests_sent_before_the_end_of_stdin_are_still_handled(fresh: Client):
    fresh.initialize()
    last = fresh.request("test/echo", "last words")
    fresh.request("shutdown")
    fresh.process.stdin.close()
    assert fresh.reply(last)["result"] == "last words"
    assert fresh.ended(GONE_S) == 0


@pytest.mark.promise(4)
@pytest.mark.parametrize(
    ("name", "work"), [("SIGTERM", ("test/wait", 60)), ("SIGINT", ("test/stubborn", 60)), ("SIGHUP", None)]
)
def test_b15_a_signal_ends_the_process_cleanly(fresh: Client, name: str, work: tuple[str, float] | None):
    put_to_work(fresh, work)
    fresh.process.send_signal(getattr(signal, name))
    assert fresh.ended(GONE_S) == 0
    assert fresh.stderr() == "on_exit ran\n"
