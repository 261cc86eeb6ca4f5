"""Directories of the user, also in a session with another user's environment (su, sudo -E, WSLg)."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from speclsp import config
from speclsp.cli import entry
from speclsp.config import directories
from speclsp.errors import SpeclspError

of_linux = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG variables are Linux's")

OTHER_UID = 65534
PLACES = {  # a variable, and a place below the directory that it names
    "XDG_CACHE_HOME": config.cache_dir,
    "XDG_CONFIG_HOME": config.config_path,
    "XDG_STATE_HOME": config.log_dir,
    "XDG_RUNTIME_DIR": config.runtime_path,
}


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


def test_without_a_home_directory_the_error_names_the_variable_to_set(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    import pwd

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in [name for name in os.environ if name.startswith("XDG_") or name == "HOME"]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(directories, "RUNTIME_DIRS", str(isolated / "nowhere"))
    for place in (config.cache_dir, config.config_path, config.log_dir, config.runtime_dir, config.stats_path):
        with pytest.raises(SpeclspError, match="set HOME"):
            place()


# ── the runtime directory ────────────────────────────────────────────────────────────────────────────────────


def test_only_the_user_can_open_the_runtime_directory(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    assert stat.S_IMODE(config.runtime_dir().stat().st_mode) == 0o700
    config.runtime_dir().chmod(0o755)
    assert stat.S_IMODE(config.runtime_dir().stat().st_mode) == 0o700
    monkeypatch.setattr(directories, "RUNTIME_DIRS", str(isolated / "nowhere"))
    for missing in ("", str(isolated / "nowhere")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", missing)
        assert config.runtime_dir() == isolated / "sta/speclsp/run"
        assert stat.S_IMODE(config.runtime_dir().stat().st_mode) == 0o700


def test_a_session_without_xdg_runtime_dir_finds_the_same_directory(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    systems = isolated / "systems" / str(os.getuid())
    systems.mkdir(parents=True)
    monkeypatch.setattr(directories, "RUNTIME_DIRS", str(systems.parent))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(systems))
    directory = config.runtime_dir()
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert config.runtime_dir() == directory == systems / "speclsp"


def test_a_file_or_a_link_in_place_of_the_runtime_directory_is_one_clear_error(isolated: Path):
    path, elsewhere = isolated / "run" / "speclsp", isolated / "elsewhere"
    path.write_text("a file in the way")
    with pytest.raises(SpeclspError, match="cannot be made: a file or a broken link is in its place"):
        config.runtime_dir()
    path.unlink()
    elsewhere.mkdir(mode=0o755)
    path.symlink_to(elsewhere)
    with pytest.raises(SpeclspError, match=r"is a symbolic link.*Set XDG_RUNTIME_DIR"):
        config.runtime_dir()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


# ── a query creates nothing ──────────────────────────────────────────────────────────────────────────────────

QUERIES = (
    "engine status",
    "engine stop",
    "models list",
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


# ── another user's environment ───────────────────────────────────────────────────────────────────────────────


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
        status[stat.ST_UID] = owner if not path.is_relative_to(home) or path.name == "mounted" else 0
        return os.stat_result(status)

    monkeypatch.setattr(Path, "stat", owned)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(("root", "", 0, 0, "", str(home), "")))
    monkeypatch.setenv("HOME", str(isolated))
    monkeypatch.setattr(directories, "RUNTIME_DIRS", str(isolated / "nowhere"))
    for name in ("cfg", "cac", "sta"):
        (isolated / name / "speclsp").mkdir()
    return home


@of_linux
def test_root_with_another_users_variables_uses_directories_of_its_own(foreign: Path):
    assert config.runtime_path() == foreign / ".local/state/speclsp/run"
    assert config.log_dir() == foreign / ".local/state/speclsp/log"
    assert config.cache_dir() == foreign / ".cache/speclsp"
    assert config.config_path() == foreign / ".config/speclsp/config.toml"


@of_linux
def test_a_directory_that_is_mounted_into_roots_own_home_is_used(foreign: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(directories, "APP", "mounted")
    (foreign / ".cache" / "mounted").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(foreign / ".cache"))
    assert config.cache_dir() == foreign / ".cache" / "mounted"


@of_linux
def test_a_directory_that_nobody_may_enter_counts_as_no_directory(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    """As root's XDG_CACHE_HOME after `su`: it exists, and this user may not even see that."""
    closed, real, access = isolated / "closed", Path.stat, os.access

    def guarded(path: Path, **how: bool) -> os.stat_result:
        if path != closed and path.is_relative_to(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **how)

    (closed / "cache").mkdir(parents=True)
    monkeypatch.setattr(Path, "stat", guarded)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(closed) and access(path, mode))
    monkeypatch.setenv("HOME", str(isolated / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(closed / "cache"))
    assert config.cache_dir() == isolated / "home/.cache/speclsp"
