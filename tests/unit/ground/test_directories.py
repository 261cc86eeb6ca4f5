"""Directories of a session with another user's environment (su, sudo -E, WSLg): laws over owners and modes.

tests/faults/processes/test_foreign_environment.py changes the user for real.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from platformdirs.macos import MacOS

from speclsp import config
from speclsp.cli import entry
from speclsp.config import api_keys, directories, toml_edit
from speclsp.daemon import endpoint
from speclsp.errors import SpeclspError
from speclsp.weights import cards, installation, store

of_linux = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG variables are Linux's")

OTHER_UID = 65534
KINDS = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFSOCK: "socket"}
UIDS = st.sampled_from([0, 1000, 1001])
PLACES = {  # a variable, and a place below the directory that it names
    "XDG_CACHE_HOME": config.cache_dir,
    "XDG_CONFIG_HOME": config.config_path,
    "XDG_STATE_HOME": config.log_dir,
    "XDG_RUNTIME_DIR": config.runtime_path,
}


@contextmanager
def file_system(kind: int, owner: int, writable: bool, uid: int) -> Iterator[None]:
    """Every path has this kind and owner, and user `uid` may write there or not; root always may."""
    status = os.stat_result((kind | 0o755, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    with (
        patch.object(Path, "stat", lambda path, **how: status),
        patch.object(os, "getuid", lambda: uid),
        patch.object(os, "access", lambda path, mode: writable or uid == 0),
    ):
        yield


@of_linux
@given(kind=st.sampled_from(sorted(KINDS)), owner=UIDS, writable=st.booleans(), uid=UIDS, absolute=st.booleans())
def test_a_runtime_directory_is_used_only_if_it_is_this_users_own_and_writable(
    kind: int, owner: int, writable: bool, uid: int, absolute: bool
):
    base = Path("/run/user/1000" if absolute else "run/user/1000")
    with file_system(kind, owner, writable, uid):
        problem = directories.runtime_problem(base)
    good = absolute and kind == stat.S_IFDIR and owner == uid and (writable or uid == 0)
    assert (problem == "") == good
    if absolute and kind == stat.S_IFDIR and owner != uid:
        assert problem == f"it belongs to another user (uid {owner})"


@of_linux
@given(owner=UIDS, writable=st.booleans(), uid=UIDS)
def test_root_writes_in_its_own_directories_only_and_others_where_the_mode_allows_it(
    owner: int, writable: bool, uid: int
):
    with file_system(stat.S_IFDIR, owner, writable, uid):
        assert directories.is_writable(Path("/srv/cache")) == (owner == 0 if uid == 0 else writable)


@of_linux
def test_a_directory_that_is_mounted_into_roots_own_home_is_not_foreign(foreign: Path, monkeypatch: pytest.MonkeyPatch):
    mounted = foreign / ".cache" / "speclsp"
    owners = {foreign / ".cache": 0, mounted: OTHER_UID}
    for directory in owners:
        directory.mkdir()
    owned = Path.stat

    def stat_of(path: Path, **how: bool) -> os.stat_result:
        status = list(owned(path, **how))
        status[stat.ST_UID] = owners.get(path, status[stat.ST_UID])
        return os.stat_result(status)

    monkeypatch.setattr(Path, "stat", stat_of)
    monkeypatch.setenv("XDG_CACHE_HOME", str(foreign / ".cache"))
    assert config.cache_dir() == mounted and config.index_dir() == mounted / "index"
    assert config.foreign_problem("cache") == ""


EXPECTED = {  # a variable that does not count: the place for it on Linux and on Windows
    "XDG_CACHE_HOME": ("home/.cache/speclsp", "Local/speclsp/Cache"),
    "XDG_CONFIG_HOME": ("home/.config/speclsp/config.toml", "Local/speclsp/config.toml"),
    "XDG_STATE_HOME": ("home/.local/state/speclsp/log", "Local/speclsp/Logs"),
    "XDG_RUNTIME_DIR": ("sta/speclsp/run", "sta/speclsp/run"),
}
IS_WINDOWS = sys.platform == "win32"
OF_WINDOWS = ["", r".\relative", r"..\x", r"\cache", "C:cache"]
RELATIVE = ["relative", "./relative", "../x", "~/cache", *(OF_WINDOWS if IS_WINDOWS else [])]


@pytest.mark.skipif(sys.platform == "darwin", reason="XDG variables are Linux's")
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("value", RELATIVE)
def test_only_an_absolute_path_in_a_variable_counts(
    isolated: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.chdir(isolated)
    (isolated / "relative").mkdir()
    monkeypatch.setenv("HOME", str(isolated / "home"))
    monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", str(isolated / "Local"))
    monkeypatch.setattr(directories, "RUNTIME_DIRS", str(isolated / "nowhere"))
    monkeypatch.setenv(name, value)
    assert PLACES[name]() == isolated / EXPECTED[name][IS_WINDOWS]


# ── a query creates nothing ──────────────────────────────────────────────────────────────────────────────────

QUERIES = (
    "engine status",
    "engine stop",
    "models list",
    "models path tiny",
    "config list",
    "config get model",
    "config path",
    "stats",
    "stats --json",
    pytest.param("doctor --model echo", marks=pytest.mark.slow),  # it imports torch
)


@pytest.mark.parametrize("command", QUERIES)
def test_a_query_creates_nothing(isolated: Path, capsys: pytest.CaptureFixture[str], command: str):
    before = sorted(isolated.rglob("*"))
    assert entry.main(command.split()) in (0, 1, 2)
    assert capsys.readouterr().out
    assert sorted(isolated.rglob("*")) == before


def test_the_search_for_an_engine_creates_nothing(isolated: Path):
    before = sorted(isolated.rglob("*"))
    assert endpoint.find() is None and not endpoint.is_locked()
    endpoint.remove(1)
    assert sorted(isolated.rglob("*")) == before
    lock = endpoint.try_lock()
    assert lock is not None and endpoint.is_locked()
    os.close(lock)
    assert not endpoint.is_locked()


# ── root with another user's environment ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def foreign(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's variables in a process of root, whose home is `isolated/root`; every other file is this user's."""
    import pwd

    home = isolated / "root"
    home.mkdir()
    real = Path.stat
    owner = os.getuid() or OTHER_UID

    def owned(path: Path, **how: bool) -> os.stat_result:
        status = list(real(path, **how))
        status[stat.ST_UID] = 0 if path.is_relative_to(home) else owner
        return os.stat_result(status)

    monkeypatch.setattr(Path, "stat", owned)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(("root", "", 0, 0, "", str(home), "")))
    monkeypatch.setenv("HOME", str(isolated))
    monkeypatch.setattr(directories, "RUNTIME_DIRS", str(isolated / "nowhere"))
    return home


@of_linux
def test_what_is_written_unasked_goes_to_roots_own_home(foreign: Path, isolated: Path):
    assert config.runtime_path() == foreign / ".local/state/speclsp/run"
    assert config.log_dir() == foreign / ".local/state/speclsp/log"
    assert config.stats_path() == foreign / ".local/state/speclsp/stats.db"
    assert config.index_dir() == foreign / ".cache/speclsp/index"
    assert "belongs to another user" in config.unused_runtime_dir()


@of_linux
def test_on_macos_root_writes_below_its_own_library_though_sudo_keeps_home(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in PLACES:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "darwin")
    for kind in directories.BELOW_MAC_HOME:
        path = getattr(MacOS(directories.APP, appauthor=False), f"user_{kind}_path")
        monkeypatch.setattr(platformdirs, f"user_{kind}_path", lambda *_, path=path, **__: path)
    assert config.log_dir() == foreign / "Library/Logs/speclsp"
    assert config.stats_path() == foreign / "Library/Application Support/speclsp/stats.db"
    assert config.runtime_path() == foreign / "Library/Application Support/speclsp/run"
    assert config.index_dir() == foreign / "Library/Caches/speclsp/index"


@of_linux
def test_settings_and_models_of_the_user_are_read_where_they_are(foreign: Path, isolated: Path):
    assert config.config_path() == foreign / ".config/speclsp/config.toml", "the user has none"
    assert config.cache_dir() == foreign / ".cache/speclsp"
    assert config.foreign_problem("config") == config.foreign_problem("cache") == ""
    for name in ("cfg", "cac"):
        (isolated / name / "speclsp").mkdir()
    assert config.config_path() == isolated / "cfg/speclsp/config.toml"
    assert config.cache_dir() == isolated / "cac/speclsp"


@of_linux
def test_root_writes_neither_settings_nor_keys_nor_models_of_another_user(foreign: Path, isolated: Path):
    weights = cards.load("qwen2.5-coder-0.5b-instruct").target
    (isolated / "cfg" / "speclsp").mkdir()
    (isolated / "cac" / "speclsp" / "models" / weights.name).mkdir(parents=True)
    before = sorted(isolated.rglob("*"))
    for write in (
        lambda: toml_edit.change(config.config_path(), {"model": "echo"}),
        lambda: api_keys.store("http://127.0.0.1:1", "key"),
        lambda: store.ensure(weights),
        lambda: installation.remove(weights),
    ):
        with pytest.raises(SpeclspError, match=r"belongs to another user \(uid \d+\).*run this command as that user"):
            write()
    assert sorted(isolated.rglob("*")) == before


@of_linux
def test_a_directory_that_nobody_may_enter_counts_as_no_directory(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    """As root's XDG_CACHE_HOME after `su`: it exists, and this user may not even see that."""
    monkeypatch.setenv("HOME", str(isolated / "home"))
    closed, real, access = isolated / "closed", Path.stat, os.access
    (closed / "cache").mkdir(parents=True)

    def guarded(path: Path, **how: bool) -> os.stat_result:
        if path != closed and path.is_relative_to(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **how)

    monkeypatch.setattr(Path, "stat", guarded)
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(closed) and access(path, mode))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(closed / "cache"))
    assert config.cache_dir() == isolated / "home/.cache/speclsp"
    assert config.config_path() == isolated / "home/.config/speclsp/config.toml"
    assert config.state_dir() == isolated / "home/.local/state/speclsp"
