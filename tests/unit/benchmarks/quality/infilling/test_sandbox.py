"""Sandbox of generated programs: only a program that reaches its end passes, and nothing outside changes."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from benchmarks.quality.infilling.sandbox import FAILED, HOOKS, NAMESPACES, PASSED, PROBE, TIMED_OUT, Limits, Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
LIMITS = Limits(cpu_s=1, wall_s=30, memory_bytes=256 << 20)


@pytest.fixture(params=[NAMESPACES, HOOKS])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    of_mode = Sandbox(request.param, LIMITS)
    if of_mode.run(PROBE) != PASSED:
        pytest.skip(f"this machine does not allow {request.param}")
    return of_mode


def test_the_strongest_mode_is_chosen():
    assert Sandbox.choose(LIMITS).mode in (NAMESPACES, HOOKS)


@pytest.mark.parametrize(
    "program",
    ["x = 1", "import math, hashlib\nassert math.gcd(4, 6) == 2", "print('text')\nimport sys\nprint(sys.stdin.read())"],
)
def test_a_program_that_ends_passes(sandbox: Sandbox, program: str):
    assert sandbox.run(program) == PASSED


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "assert False", "x = (", "raise SystemExit(0)", "import os\nos._exit(0)", "def f(): f()\nf()",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "print('0' * 32)\nraise SystemExit(0)",
    ],
)  # fmt: skip
def test_a_program_that_ends_early_fails(sandbox: Sandbox, program: str):
    assert sandbox.run(program) == FAILED


@pytest.mark.slow
def test_an_endless_loop_is_stopped(sandbox: Sandbox):
    assert sandbox.run("while True: pass") == TIMED_OUT
    assert sandbox.run("while True:\n    try:\n        while True: pass\n    except BaseException: pass") == TIMED_OUT


@pytest.mark.slow
def test_a_program_that_sleeps_is_stopped(sandbox: Sandbox):
    assert Sandbox(sandbox.mode, Limits(wall_s=1.5)).run("import time\ntime.sleep(60)") == TIMED_OUT


def test_a_memory_hog_fails(sandbox: Sandbox):
    assert sandbox.run("pages = bytearray(1 << 30)") == FAILED
    assert sandbox.run("pages = []\nwhile True: pages.append(bytearray(1 << 22))") == FAILED


@pytest.mark.parametrize(
    "program",
    [
        "import os\nwhile True: os.fork()",
        "import subprocess\nsubprocess.run(['true'])",
        "import os\nos.system('true')",
        "import threading\nthreading.Thread(target=print).start()",
    ],
)
def test_a_fork_bomb_starts_no_process(sandbox: Sandbox, program: str):
    assert sandbox.run(program) == FAILED


def test_no_connection_reaches_even_this_machine(sandbox: Sandbox):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.2)
        address = server.getsockname()
        assert sandbox.run(f"import socket\nsocket.create_connection({address!r}, 2)") == FAILED
        assert sandbox.run(f"import _socket\n_socket.socket().connect({address!r})") == FAILED
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "open({path!r}, 'w').write('changed')",
        "open({path!r}, 'r+').truncate()",
        "import os\nos.write(os.open({path!r}, os.O_WRONLY), b'changed')",
        "import os\nos.remove({path!r})",
        "import os\nos.rename({path!r}, {path!r} + '2')",
        "import pathlib\npathlib.Path({path!r} + '3').touch()",
        "import shutil\nshutil.rmtree(__import__('os').path.dirname({path!r}))",
        "import ctypes\nctypes.CDLL(None).unlink({path!r}.encode())",
    ],
)
def test_no_file_outside_changes(sandbox: Sandbox, program: str, tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    tmp_path.chmod(0o777)
    (tmp_path / "mine.txt").chmod(0o666)
    assert sandbox.run(program.format(path=str(tmp_path / "mine.txt"))) == FAILED
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_namespaces_hold_without_the_audit_hook(tmp_path: Path):
    """The kernel alone keeps files, processes and the network away: the hook is a second wall, not the only one."""
    child = tmp_path / "child.py"
    source = (Path(__file__).parents[5] / "benchmarks/quality/infilling/sandboxed_program.py").read_text("utf-8")
    child.write_text(source.replace("    sys.addaudithook(deny)\n", ""), encoding="utf-8")

    unhooked = Sandbox(NAMESPACES, LIMITS, child)
    if unhooked.run(PROBE) != PASSED:
        pytest.skip("this machine does not allow namespaces")
    target = tmp_path / "target"
    target.write_text("mine")
    target.chmod(0o666)
    assert unhooked.run(f"open({str(target)!r}, 'w')") == FAILED
    assert unhooked.run("import os\nos.fork()") == FAILED
    assert unhooked.run("import socket\nsocket.create_connection(('127.0.0.1', 22), 1)") == FAILED
    assert target.read_text() == "mine"
