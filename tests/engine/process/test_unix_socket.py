"""The engine's socket file: permissions, replacement of dead sockets, and refusals."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from speclsp.daemon import endpoint
from speclsp.engine.process import unix_socket
from speclsp.errors import EngineError


@pytest.fixture
def path(isolated: Path) -> Path:
    return isolated / "own" / "engine.sock"


def refusal(path: Path | str) -> str:
    """The one-line refusal to listen on `path`."""
    with pytest.raises(EngineError) as refused:
        unix_socket.listen(str(path))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def dead_socket(path: Path) -> None:
    """A socket file without a listener, as a killed engine leaves it."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


@pytest.mark.promise(28)
def test_only_the_user_can_read_the_directory_and_the_socket(isolated: Path):
    path = isolated / "new" / "deep" / "engine.sock"
    with closing(unix_socket.listen(str(path)).listener):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_clients_can_connect_as_soon_as_the_socket_file_exists(path: Path):
    with closing(unix_socket.listen(str(path)).listener) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        connection, _ = listener.accept()
        with connection:
            assert endpoint.is_own_peer(connection)


@pytest.mark.promise(28)
def test_another_users_process_is_distinguished_from_our_own(path: Path, monkeypatch: pytest.MonkeyPatch):
    with closing(unix_socket.listen(str(path)).listener) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        connection, _ = listener.accept()
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        with connection:
            assert not endpoint.is_own_peer(connection)


def test_the_socket_of_a_killed_engine_is_replaced(path: Path):
    path.parent.mkdir()
    dead_socket(path)
    with closing(unix_socket.listen(str(path)).listener):
        assert unix_socket.is_live(path)


def test_the_socket_of_a_live_engine_is_kept(path: Path):
    with closing(unix_socket.listen(str(path)).listener):
        assert "an engine already listens" in refusal(path)
        assert unix_socket.is_live(path)


def test_an_engine_too_busy_to_accept_counts_as_live(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unix_socket, "CONNECT_TIMEOUT_S", 0.05)
    path.parent.mkdir()
    clients: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(3):  # more connections than the backlog holds
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].setblocking(False)
            clients[-1].connect_ex(str(path))
        assert "an engine already listens" in refusal(path)
    for client in clients:
        client.close()


@pytest.mark.promise(28)
def test_a_file_that_is_not_a_socket_is_never_removed(path: Path):
    path.parent.mkdir()
    path.write_text("mine")
    assert "not a socket" in refusal(path)
    assert path.read_text() == "mine"


@pytest.mark.promise(28)
def test_a_symbolic_link_is_refused_even_to_a_dead_socket(path: Path):
    path.parent.mkdir()
    dead_socket(path.with_name("other"))
    path.symlink_to(path.with_name("other"))
    assert "symbolic link" in refusal(path)
    assert path.is_symlink()
    path.unlink()
    path.symlink_to(path.with_name("nothing"))
    assert "symbolic link" in refusal(path)


@pytest.mark.promise(28)
def test_another_users_socket_and_directory_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    path.parent.mkdir()
    dead_socket(path)
    whose = f"belongs to another user (uid {os.getuid()})"
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert f"{path.parent} {whose}" in refusal(path)
    monkeypatch.setattr(unix_socket, "check_directory", lambda directory: None)
    assert f"{path} {whose}" in refusal(path)
    assert path.exists()


@pytest.mark.promise(28)
def test_a_directory_that_others_can_write_to_is_refused_unless_it_is_sticky(path: Path):
    path.parent.mkdir()
    path.parent.chmod(0o777)
    assert "chmod 700" in refusal(path)
    path.parent.chmod(0o1777)
    unix_socket.listen(str(path)).listener.close()


def test_a_path_too_long_for_a_socket_is_named_with_both_lengths(isolated: Path):
    path = isolated / ("x" * 200)
    assert f"has {len(str(path))} bytes" in refusal(path)
    longest = isolated / ("x" * (unix_socket.MAX_PATH_BYTES - len(str(isolated)) - 1))
    unix_socket.listen(str(longest)).listener.close()


@pytest.mark.parametrize("text", ["127.0.0.1:8012", "localhost:80", ":8080", "tcp://0.0.0.0:1"])
def test_a_network_address_is_refused(text: str):
    assert "network address" in refusal(text)


@pytest.mark.parametrize("text", ["", "a\0b", "somewhere/"])
def test_an_invalid_path_is_refused(text: str):
    assert "not a socket path" in refusal(text)


def test_a_directory_that_cannot_be_created_is_named(isolated: Path):
    (isolated / "file").write_text("")
    assert f"{isolated / 'file'} cannot be used for the socket" in refusal(isolated / "file" / "engine.sock")


def test_closing_removes_the_own_file_but_not_a_successors(path: Path):
    first = unix_socket.listen(str(path))
    first.listener.close()
    path.rename(path.with_name("old"))
    second = unix_socket.listen(str(path))
    first.remove()
    assert path.exists()
    second.listener.close()
    second.remove()
    assert not path.exists()
    second.remove()


def test_of_many_concurrent_starts_one_listens_and_the_others_report_it(path: Path):
    path.parent.mkdir()
    dead_socket(path)
    program = (
        "import sys, time; from speclsp.engine.process import unix_socket as door\n"
        "try: kept = door.listen(sys.argv[1]); print('listens', flush=True); sys.stdin.read()\n"
        "except door.SocketInUse: print('in use', flush=True)\n"
    )
    words = [sys.executable, "-c", program, str(path)]
    pipe = subprocess.PIPE
    many = [subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) for _ in range(8)]
    outcomes = [process.stdout.readline().strip() for process in many]
    for process in many:
        process.communicate()
    assert sorted(outcomes) == ["in use"] * 7 + ["listens"]
