"""The shared engine on Windows, run under Wine: one engine for all editors, and nothing left of a killed process."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.engine.engine_process import WANT_ONE
from support.lsp.editor_client import CAPABILITIES, echoed
from support.lsp.lsp_client import Client
from support.waiting import becomes_true, wait_until

from speclsp import private_files

if "SPECLSP_WINDOWS_PYTHON" not in os.environ:
    pytest.skip("needs the Windows Python of `make windows`", allow_module_level=True)

URI = "file:///C:/project/app.py"
TEXT = "def add(a, b):\n    "
ENDS_S = 15.0  # the shutdown delay of these tests is 0; Wine and a busy machine are slow
HUNG_S = 90.0  # a request past its deadline, then 5 s of probes, then the start of another engine
DELAY = "engine.shutdown_delay_seconds"

# A Windows process that executes programs, so that not each of them starts an interpreter.
SHELL = """
import sys, json, os, time, traceback
for line in sys.stdin:
    scope, program = {}, json.loads(line)
    try:
        exec(program, scope)
        answer = {"result": scope.get("result")}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
"""


class WindowsShell:
    """A Windows Python for small programs; each leaves its answer in `result`."""

    def __init__(self, windows: list[str]) -> None:
        self.process = subprocess.Popen(
            [*windows, "-u", "-c", SHELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.run("result = sys.platform", "import sys") == "win32"

    def run(self, program: str, *before: str) -> Any:
        """The `result` of a program. Fails the test when the program fails."""
        self.process.stdin.write(json.dumps("\n".join([*before, program])) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def alive(self, pid: int) -> bool:
        return self.run(f"import psutil; result = psutil.pid_exists({pid})")

    def kill(self, pid: int) -> None:
        """TerminateProcess."""
        self.run(f"import psutil; psutil.Process({pid}).kill()")

    def has_ended(self, pid: int) -> bool:
        return becomes_true(lambda: time.sleep(0.1) or not self.alive(pid), ENDS_S)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="session")
def session_shell(windows: list[str]) -> Iterator[WindowsShell]:
    shell = WindowsShell(windows)
    yield shell
    shell.close()


@pytest.fixture
def shell(session_shell: WindowsShell, isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WindowsShell]:
    """The shell, in the directories of this test; they are Windows paths in the environment of its processes too."""
    names = {"XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "sta", "XDG_CONFIG_HOME": "con", "XDG_CACHE_HOME": "cac"}
    variables = {name: "Z:" + str(isolated / part).replace("/", "\\") for name, part in names.items()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session_shell.run(f"import os; os.environ.update({variables!r})")
    yield session_shell
    session_shell.run("from speclsp.daemon import control; [control.stop(files) for files in control.running()]")


@pytest.fixture
def editor(windows: list[str], shell: WindowsShell) -> Iterator[Callable[..., Client]]:
    """Opens editors: `speclsp lsp` with the model echo, initialized, with an open document."""
    clients = []

    def open_editor(*settings: str) -> Client:
        words = [
            word for setting in (f"{DELAY}=0", "completion.timeout_ms=20000", *settings) for word in ("--set", setting)
        ]
        client = Client([*windows, "-m", "speclsp", "lsp", "--stdio", "--model", "echo", *words], warm=False)
        clients.append(client)
        client.initialize(CAPABILITIES)
        client.open(URI, TEXT)
        return client

    yield open_editor
    for client in clients:
        close(client)


def close(client: Client) -> None:
    """End an editor as its death does: its pipes close."""
    client.process.stdin.close()
    try:
        client.process.wait(ENDS_S)
    finally:
        client.__exit__()


def statuses(client: Client) -> list[dict[str, Any]]:
    return [message["params"] for message in list(client.notifications) if message["method"] == "speclsp/status"]


def ready(client: Client, after: int = 0) -> None:
    """Wait until the editor's engine is ready; statuses before index `after` do not count."""
    states = lambda: [status["state"] for status in statuses(client)]  # noqa: E731
    assert client.wait_for(lambda: "ready" in states()[after:]), statuses(client)


def completed(client: Client) -> str:
    """The completion at the document's end."""
    items = client.reply(client.complete(URI, 1, 4))["result"]["items"]
    return items[0]["insertText"] if items else ""


def engine_json(isolated: Path) -> dict[str, Any]:
    """The content of the one discovery file. Raises StopIteration without one."""
    return json.loads(next(isolated.glob("run/speclsp/engine-*.json")).read_text())


def engine_log(isolated: Path) -> str:
    return (isolated / "sta/speclsp/log/engine.log").read_text()


def other_engine(isolated: Path, pid: int) -> int:
    """The process id of an engine that listens in the place of engine `pid`."""

    def other() -> bool:
        try:
            return engine_json(isolated)["pid"] != pid
        except (FileNotFoundError, StopIteration, ValueError):
            return False

    wait_until(other, HUNG_S)
    return engine_json(isolated)["pid"]


def start_engine(windows: list[str], isolated: Path) -> int:
    """`speclsp engine start`; its process id. Under Wine the engine keeps stderr open, so that nobody reads it."""
    words = [*windows, "-m", "speclsp", "engine", "start", "--model", "echo", "--port", "0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        printed = process.stdout.read()
        assert process.wait() == 0
    engine = engine_json(isolated)
    assert printed.startswith(f"listens on http://127.0.0.1:{engine['port']} too")
    return engine["pid"]


def files(isolated: Path) -> list[str]:
    """Kinds of files in the runtime directory."""
    return sorted(path.suffix for path in (isolated / "run/speclsp").iterdir())


# ── one engine ───────────────────────────────────────────────────────────────────────────────────────────


def test_two_editors_share_one_engine_that_ends_after_the_last(editor, shell: WindowsShell, isolated: Path):
    first, second = editor(), editor()
    ready(first)
    ready(second)
    pid = engine_json(isolated)["pid"]
    assert engine_log(isolated).count("listens on port") == 1
    assert completed(first) == completed(second) == echoed(TEXT, "")
    close(first)
    assert shell.alive(pid)
    assert completed(second) == echoed(TEXT, "")
    close(second)
    assert shell.has_ended(pid)
    assert files(isolated) == [".lock"]


def test_of_ten_simultaneous_starts_exactly_one_begins_an_engine(windows, shell: WindowsShell, isolated: Path):
    starters = [
        subprocess.Popen(
            [*windows, "-u", "-c", WANT_ONE, "300"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for starter in starters:
        assert starter.stdout.readline().strip() == "ready"
    for starter in starters:
        starter.stdin.write("\n")
        starter.stdin.flush()
    pids = [pid for starter in starters for pid in starter.stdout.readline().split()]
    for starter in starters:
        starter.communicate()
    assert pids == 10 * [str(engine_json(isolated)["pid"])]
    assert engine_log(isolated).count("listens on port") == 1


def test_the_commands_start_show_and_stop_an_engine(windows, shell: WindowsShell, isolated: Path):
    def run(*words: str) -> tuple[int, str]:
        ended = subprocess.run([*windows, "-m", "speclsp", "engine", *words], input="", capture_output=True, text=True)
        return ended.returncode, ended.stdout + ended.stderr

    assert run("status") == (1, "no engine runs\n")
    pid = start_engine(windows, isolated)
    code, text = run("status")
    assert (code, f"process   {pid}, speclsp" in text, "http://127.0.0.1:" in text) == (0, True, True)
    code, text = run("stop")
    assert (code, text.startswith(f"ended process {pid}")) == (0, True)
    assert not shell.alive(pid)


# ── killed processes ─────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_server_leaves_no_engine(editor, shell: WindowsShell, isolated: Path):
    client = editor()
    ready(client)
    pid = engine_json(isolated)["pid"]
    (lease,) = shell.run("from speclsp.daemon import control; result = control.statuses()[0]['leases']")
    shell.kill(lease["pid"])
    client.ended(ENDS_S)
    assert shell.has_ended(pid)
    assert files(isolated) == [".lock"]


def test_a_killed_engine_is_replaced_for_each_of_its_editors(editor, shell: WindowsShell, isolated: Path):
    first, second = editor(), editor()
    ready(first)
    ready(second)
    pid, seen = engine_json(isolated)["pid"], (len(statuses(first)), len(statuses(second)))
    shell.kill(pid)
    ready(first, seen[0])
    ready(second, seen[1])
    assert other_engine(isolated, pid)
    assert completed(first) == completed(second) == echoed(TEXT, "")
    assert engine_log(isolated).count("listens on port") == 2


def test_a_hung_engine_is_killed_and_replaced(editor, shell: WindowsShell, isolated: Path):
    client = editor("completion.timeout_ms=1000")
    ready(client)
    pid, seen = engine_json(isolated)["pid"], len(statuses(client))
    shell.run(f"import psutil; psutil.Process({pid}).suspend()")
    assert completed(client) == ""
    assert other_engine(isolated, pid)
    assert shell.has_ended(pid)
    ready(client, seen)
    wait_until(lambda: completed(client) == echoed(TEXT, ""), ENDS_S)  # each has a second, which is little under Wine


KILL_ON_JOB_CLOSE, BREAKAWAY_OK = 0x2000, 0x800  # limits of a job object
LIMIT_BYTES, FLAGS_AT = 144, 16  # of JOBOBJECT_EXTENDED_LIMIT_INFORMATION


@pytest.mark.parametrize(("limits", "survives"), [(KILL_ON_JOB_CLOSE | BREAKAWAY_OK, True), (KILL_ON_JOB_CLOSE, False)])
def test_an_engine_leaves_the_job_of_an_editor_that_allows_it(
    limits: int, survives: bool, shell: WindowsShell, isolated: Path
):
    """In a job that forbids it the engine starts, and ends with the editor."""
    editor = f"""
import ctypes, struct, sys
from ctypes import wintypes
from speclsp.config import Config
from speclsp.daemon import launch
kernel32 = ctypes.WinDLL("kernel32")
kernel32.CreateJobObjectW.restype = kernel32.GetCurrentProcess.restype = wintypes.HANDLE
job = wintypes.HANDLE(kernel32.CreateJobObjectW(None, None))
info = (ctypes.c_char * {LIMIT_BYTES})()
struct.pack_into("I", info, {FLAGS_AT}, {limits})
assert kernel32.SetInformationJobObject(job, 9, info, {LIMIT_BYTES})
assert kernel32.AssignProcessToJobObject(job, wintypes.HANDLE(kernel32.GetCurrentProcess()))
print(launch.start(Config(model="echo")).pid, flush=True)
sys.stdin.read()
"""
    start = f"""
import subprocess, sys
streams = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
process = subprocess.Popen([sys.executable, "-c", {editor!r}], **streams)
result = process.stdout.readline().decode()
assert result, process.stderr.read().decode()
process.kill()
process.wait()
"""
    pid = int(shell.run(start))
    assert shell.has_ended(pid) is not survives


# ── the token ────────────────────────────────────────────────────────────────────────────────────────────


def test_only_this_user_can_read_the_token(editor, shell: WindowsShell, isolated: Path):
    ready(editor())
    others = """
from speclsp.daemon import control
from speclsp.private_files import windows_files
path = control.running()[0].state
result = [windows_files.other_accounts(path), windows_files.other_accounts(path.parent)]
"""
    assert shell.run(others) == [[], []]
    (state,) = isolated.glob("run/speclsp/engine-*.json")
    state.chmod(0o644)
    (file, directory) = shell.run(others)
    assert (file, directory) == (["Everyone"], [])
    read = """
from speclsp.daemon import engine_files
from speclsp.errors import EngineError
try:
    engine_files.present()[0].find()
except EngineError as error:
    result = str(error)
"""
    assert shell.run(read).endswith(".json is open to others (Everyone): remove it.")
    state.chmod(0o600)


def test_a_request_without_the_token_is_refused(editor, isolated: Path):
    ready(editor())
    engine = engine_json(isolated)
    for headers in ({}, {"authorization": "Bearer guess"}, {"authorization": f"Bearer {engine['token'][:-1]}"}):
        answer = httpx.get(f"http://127.0.0.1:{engine['port']}/status", headers=headers)
        assert answer.status_code == 401, answer.text
    right = {"authorization": f"Bearer {engine['token']}"}
    assert httpx.get(f"http://127.0.0.1:{engine['port']}/status", headers=right).json()["pid"] == engine["pid"]


# ── files that another program has open ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("open_s", "outcome"), [(0.5, "replaced"), (10.0, private_files.STAYS_OPEN)])
def test_a_file_that_is_open_elsewhere_is_replaced_once_it_is_closed(
    open_s: float, outcome: str, shell: WindowsShell, isolated: Path
):
    (isolated / "state.json").write_text("old")
    path = "Z:" + str(isolated / "state.json").replace("/", "\\")
    replace = f"""
import subprocess, sys, time, threading
from pathlib import Path
from speclsp import private_files
from speclsp.private_files import os_errors
path = Path({path!r})
file = path.open()
timer = threading.Timer({open_s}, file.close)
timer.start()
try:
    private_files.replace(path, b"new")
    result = "replaced"
except OSError as error:
    result = os_errors.reason(error)
timer.cancel()
file.close()
"""
    assert shell.run(replace) == outcome
    assert (isolated / "state.json").read_text() == ("new" if outcome == "replaced" else "old")
    assert [path.name for path in isolated.glob(".state.json.*")] == []


# ── directories ──────────────────────────────────────────────────────────────────────────────────────────
