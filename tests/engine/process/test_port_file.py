"""The transport of Windows on Linux: a loopback port and a token in a private file, in the place of Unix sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engine.engine_process import ABC, ANSWER
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.waiting import wait_until

from speclsp import config
from speclsp.config import Config
from speclsp.daemon import control, endpoint, platform
from speclsp.engine.process import port_file
from speclsp.errors import EngineError

IN_EVERY_PROCESS = "from speclsp.daemon import platform\nplatform.HAS_UNIX_SOCKETS = False\n"
SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1


@pytest.fixture(autouse=True)
def without_unix_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process of this test has Unix sockets."""
    (tmp_path / "sitecustomize.py").write_text(IN_EVERY_PROCESS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(platform, "HAS_UNIX_SOCKETS", False)
    yield


def editor(*arguments: str) -> Editor:
    return Editor(*arguments, warm=False)


def completes(client: Editor, name: str) -> None:
    page = Page(client, f"{SOURCE}# {name}", uri=f"file:///{name}.py")
    assert client.text(page.ask(CURSOR)) == page.expected(CURSOR)


def names() -> list[str]:
    return sorted(path.name for path in config.runtime_dir().iterdir())


def test_editors_share_one_engine_on_a_port_that_ends_after_the_last():
    with editor() as first, editor() as second:
        first.begin(CAPABILITIES)
        second.begin(CAPABILITIES)
        engine = endpoint.find()
        assert engine is not None
        assert (engine.socket, engine.port > 0) == ("", True)
        completes(first, "first")
        completes(second, "second")
        os.kill(engine.pid, signal.SIGKILL)
        wait_until(lambda: (other := endpoint.find()) is not None and other.pid != engine.pid)
        wait_until(lambda: first.states()[-1] == second.states()[-1] == "ready")
        completes(first, "first again")
    assert control.wait_for_the_end(engine.pid)
    wait_until(lambda: names() == ["engine.lock"])


def test_a_private_engine_listens_on_a_port_and_leaves_no_file():
    with editor("--set", "engine.shared=false") as client:
        client.begin(CAPABILITIES)
        (name,) = names()
        assert (config.runtime_dir() / name).stat().st_mode & 0o777 == 0o600
        assert endpoint.at(config.runtime_dir() / name) is not None
        completes(client, "private")
    assert names() == []


def test_an_engine_that_the_user_started_is_used_by_its_file():
    path = config.runtime_dir() / "mine"
    words = [sys.executable, "-m", "speclsp", "engine", "--model", "echo", "--socket", str(path)]
    with subprocess.Popen(words) as service, editor("--set", f"engine.socket={path}") as client:
        client.begin(CAPABILITIES)
        completes(client, "attached")
        engine = endpoint.at(path)
        assert engine is not None
        assert control.ask(engine, "POST", "/infill", ABC)["content"] == ANSWER
        service.terminate()
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"not JSON", b'{"pid": 1, "socket": "/x"}'])
def test_a_file_that_describes_no_engine_is_an_error_with_its_way_out(content: bytes):
    path = config.runtime_dir() / "mine"
    path.touch(mode=0o600)
    path.write_bytes(content)
    assert endpoint.at(path) is None
    assert endpoint.read(path) is None, "nor would it be one as engine.json"
    with editor("--set", f"engine.socket={path}") as client:
        client.initialize(dict(CAPABILITIES))
        client.until("error")
        assert "Set it to an engine's socket, or unset it." in client.statuses()[-1]["message"]


def test_a_file_that_others_can_read_is_refused():
    path = config.runtime_dir() / "mine"
    port = port_file.listen(str(path), Config(model="echo"))
    path.chmod(0o644)
    with pytest.raises(EngineError, match=r"mine is open to others \(mode 0644\): remove it\.$"):
        endpoint.at(path)
    port.listener.close()


def test_a_new_engine_removes_the_files_of_killed_ones_and_no_others():
    directory = config.runtime_dir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getpid()):
        (directory / f"lsp-{pid}-1.sock").write_text(json.dumps({"pid": pid}))
    port = port_file.listen(str(directory / "mine"), Config(model="echo"))
    assert names() == [f"lsp-{os.getpid()}-1.sock", "mine"]
    port.remove()
    assert names() == [f"lsp-{os.getpid()}-1.sock"]
    port.listener.close()
