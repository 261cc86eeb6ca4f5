"""Files of a shared engine: those of other users, and foreign ones in their place, are refused and not changed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from promises import Measured
from support.engine.shared_engines import ECHO, FILES, ask, started

from speclsp import config
from speclsp.daemon import engine_files, launch
from speclsp.daemon.engine_files import EngineEndpoint
from speclsp.engine.process import shared_engine
from speclsp.errors import EngineError, SpeclspError

NOBODY = 65534


def make_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("mine")
    path.symlink_to(target)


def make_open(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0o666)


PLANTS: dict[str, Callable[[Path], object]] = {
    "symbolic link": make_link,
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "file open to others": make_open,
}


LOOKS: dict[str, list[Callable[[Path], object]]] = {
    ".lock": [lambda path: FILES.try_lock()],
    ".json": [lambda path: FILES.find(), lambda path: FILES.write(EngineEndpoint(pid=1))],
    ".sock": [
        lambda path: shared_engine.listen(path),
        lambda path: engine_files.connect(EngineEndpoint(pid=1, socket=str(path))),
    ],
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_foreign_file_in_place_of_ours_is_refused_and_not_changed(name: str, plant: str):
    path = config.runtime_dir() / FILES.state.with_suffix(name).name
    PLANTS[plant](path)
    before = path.lstat()
    for look in LOOKS[name]:
        with pytest.raises(EngineError) as refused:
            look(path)
        assert str(path) in str(refused.value)
        assert "remove it" in str(refused.value).lower()
    after = path.lstat()
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)
    path.rename(path.with_name("somebodys"))  # so that it does not disturb the checks after the test


def test_a_runtime_directory_that_is_a_link_is_refused(isolated: Path):
    (isolated / "elsewhere").mkdir()
    Path(os.environ["XDG_RUNTIME_DIR"], "speclsp").symlink_to(isolated / "elsewhere")
    with pytest.raises(SpeclspError, match="is a symbolic link"):
        launch.start(ECHO)
    assert stat.S_IMODE((isolated / "elsewhere").stat().st_mode) != 0o700


def test_another_users_files_are_refused_in_the_search_for_an_engine(monkeypatch: pytest.MonkeyPatch):
    FILES.write(EngineEndpoint(pid=1, socket="/nowhere"))
    lock = FILES.try_lock()
    assert lock is not None
    os.close(lock)
    directory = config.runtime_dir()
    with monkeypatch.context() as patch:
        patch.setattr(config, "runtime_dir", lambda: directory)
        patch.setattr(config, "runtime_path", lambda: directory)
        patch.setattr(os, "getuid", lambda: 12345)
        for look in (FILES.find, FILES.try_lock, lambda: FILES.write(EngineEndpoint(pid=1))):
            with pytest.raises(EngineError, match="belongs to another user"):
                look()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"pid": "7"}',
        '{"pid": true}',
        '{"pid": 7, "socket": 8}',
        '{"pid": 7, "settings": []}',
        "\0",
    ],
)
def test_an_invalid_state_file_counts_as_none(text: str):
    config.runtime_dir()
    FILES.state.touch(mode=0o600)
    FILES.state.write_text(text)
    assert FILES.find() is None
    FILES.write(EngineEndpoint(pid=7, socket="/nowhere"))
    assert FILES.find() == EngineEndpoint(pid=7, socket="/nowhere")


# ── other users ──────────────────────────────────────────────────────────────────────────────────────────────

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

AS_NOBODY = """
import os, socket, sys
os.setgid({nobody}); os.setuid({nobody})
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(20)
    try:
        client.connect(sys.argv[1])
        client.sendall(b"GET /health HTTP/1.0\\r\\n\\r\\n")
        print(client.recv(100))
    except OSError as error:
        print(type(error).__name__)
"""
LISTENS_AS_NOBODY = """
import os, socket, sys
os.setgid({nobody}); os.setuid({nobody})
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1]); server.listen(); print("listens", flush=True); sys.stdin.read()
"""


def as_nobody(program: str, path: str, **how: Any) -> list[str]:
    return [sys.executable, "-c", program.format(nobody=NOBODY), path]


@pytest.mark.promise(28)
@root_only
def test_another_user_cannot_reach_the_engine_and_is_refused_on_an_open_path(isolated: Path, promise: Measured):
    running = started()
    outside = subprocess.run(as_nobody(AS_NOBODY, running.socket), capture_output=True, text=True, timeout=60)
    assert outside.stdout == "PermissionError\n", outside.stderr
    for path in (isolated, isolated / "run", Path(running.socket).parent):
        path.chmod(0o711)
    Path(running.socket).chmod(0o666)
    refused = subprocess.run(as_nobody(AS_NOBODY, running.socket), capture_output=True, text=True, timeout=60)
    assert refused.stdout in ("b''\n", "ConnectionResetError\n", "BrokenPipeError\n"), refused.stderr
    assert ask("GET", "/health")["status"] == "ok"
    promise.measured("a real second uid: kept out by the directory, and refused where that is open", holds=True)


@pytest.mark.promise(28)
@root_only
def test_another_users_server_in_its_place_receives_no_request(isolated: Path):
    isolated.chmod(0o711)
    public = isolated / "public"
    public.mkdir()
    public.chmod(0o777)
    theirs = str(public / "engine.sock")
    server = subprocess.Popen(
        as_nobody(LISTENS_AS_NOBODY, theirs), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "listens\n"
    with pytest.raises(EngineError, match=f"belongs to another user \\(uid {NOBODY}\\)"):
        engine_files.connect(EngineEndpoint(pid=1, socket=theirs))
    os.chown(theirs, 0, 0)
    with pytest.raises(EngineError, match="a process of another user listens"):
        engine_files.connect(EngineEndpoint(pid=1, socket=theirs))
    server.communicate()


@pytest.mark.promise(28)
def test_on_macos_the_system_reports_the_user_of_the_peer(monkeypatch: pytest.MonkeyPatch):
    class Connection:
        family = socket.AF_UNIX

        def __init__(self, uid: int) -> None:
            self.uid = uid

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option, size) == (0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED, sizeof(struct xucred)
            return (0).to_bytes(4, sys.byteorder) + self.uid.to_bytes(4, sys.byteorder) + bytes(68)

    monkeypatch.delattr(socket, "SO_PEERCRED")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert engine_files.is_own_peer(Connection(os.getuid()))  # type: ignore[arg-type]
    assert not engine_files.is_own_peer(Connection(os.getuid() + 1))  # type: ignore[arg-type]
