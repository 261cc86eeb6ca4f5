"""Processes of one user with the XDG variables of another: su, sudo -E and WSLg, with real owners and real users.

Only root can give files and processes to another user; elsewhere tests/unit/ground/test_directories.py holds the laws.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.lsp.editor_client import Editor
from support.lsp.lsp_client import gone_within
from support.waiting import PATIENCE_S

from speclsp import config
from speclsp.config import directories

OTHER_UID = 65534  # nobody
pytestmark = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can make files and processes of another user"
)
AS_OTHER = f"""
import json, os, sys
from speclsp import config, process_resources
from speclsp.config import directories
from speclsp.daemon import control
from speclsp.daemon.engine_files import EngineFiles
import platformdirs, psutil, pwd
platformdirs.user_cache_path("warm")  # imports its module for this system
os.setgroups([])
os.setgid({OTHER_UID})
os.setuid({OTHER_UID})
running = control.running()
queried = sorted(os.listdir(os.environ["HOME"]))
lock = EngineFiles.of(config.Config()).try_lock()
print(json.dumps({{
    "running": running, "queried": queried, "locked": lock is not None,
    "runtime": str(config.runtime_dir()), "log": str(config.log_dir()),
    "config": str(config.config_path()), "cache": str(config.cache_dir()),
}}))
"""


@pytest.fixture
def foreign_run(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """XDG_RUNTIME_DIR of another user; this user has no directory of systemd's."""
    directory = isolated / "run"
    os.chown(directory, OTHER_UID, OTHER_UID)
    monkeypatch.setattr(directories, "RUNTIME_DIRS", str(isolated / "nowhere"))
    return directory


def speclsp(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "speclsp", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_status_query_of_root_leaves_nothing_in_the_users_runtime_directory(foreign_run: Path):
    ended = speclsp("engine", "status")
    assert (ended.returncode, ended.stdout) == (1, "no engine runs\n")
    assert list(foreign_run.iterdir()) == []


def test_an_editor_and_the_command_line_find_the_same_engine(foreign_run: Path, isolated: Path):
    expected = config.runtime_path()
    assert not expected.is_relative_to(foreign_run)
    with Editor() as editor:
        editor.begin()
        pid = editor.statuses()[-1]["engine_pid"]
        (reported,) = json.loads(speclsp("engine", "status", "--json").stdout)["engines"]
        assert reported["pid"] == pid > 0
        assert not reported["socket"].startswith(f"{foreign_run}/")
        assert editor.statuses()[-1]["log"] == str(config.log_dir() / "lsp.log")
        assert list(foreign_run.iterdir()) == []
    assert gone_within(pid, PATIENCE_S)


def test_another_user_with_roots_variables_uses_directories_of_its_own(isolated: Path):
    isolated.chmod(0o711)
    home = isolated / "home"
    home.mkdir()
    os.chown(home, OTHER_UID, OTHER_UID)
    ended = subprocess.run(
        [sys.executable, "-c", AS_OTHER],
        env=os.environ | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["running"] == [] and answer["queried"] == []
    state = home / ".local" / "state" / "speclsp"
    systems = Path(directories.RUNTIME_DIRS) / str(OTHER_UID)
    assert Path(answer["runtime"]) == (systems / "speclsp" if systems.is_dir() else state / "run")
    assert answer["locked"]
    assert answer["log"] == str(state / "log")
    assert answer["config"] == str(home / ".config" / "speclsp" / "config.toml")
    assert answer["cache"] == str(home / ".cache" / "speclsp")
