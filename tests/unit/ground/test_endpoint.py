"""Endpoint: settings that can share an engine, the settings passed to an engine, and its log."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faults.filled_log import FILL_LOG
from support.rows import rows

from speclsp import config
from speclsp.config import KNOWN, Config
from speclsp.daemon import control, endpoint, launch, platform
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.observability import logfile

ROWS = rows(__file__)

CHOICES = {  # some possible values of each kind of setting
    "model": ["auto", "echo", "tiny", "./mine"],
    "device": ["auto", "cpu", "cuda:1"],
    "models_dir": ["", "/models", "/a b"],
    "engine.context_tokens": [2048, 4096],
    "engine.threads": [0, 2],
    "engine.draft": [True, False],
    "engine.quantization": ["auto", "bf16"],
    "engine.adapter": ["auto", "none"],
    "echo.round_ms": [0, 20],
    "engine.shutdown_delay_seconds": [60.0, 0.5],
    "engine.min_free_memory_mib": [512, 0],
    "engine.shared": [True, False],
    "engine.offline": [False, True],
    "completion.max_tokens": [96, 5],
    "completion.disabled_languages": [(), ("c", "d")],
    "remote.url": ["", "http://localhost:1"],
    "stats.enabled": [True, False],
}
HEAVY = {key for key in CHOICES if key.startswith(endpoint.HEAVY) and key not in endpoint.LIGHT}


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Valid settings."""
    chosen = {key: draw(st.sampled_from(values)) for key, values in CHOICES.items()}
    parsed, problems = config.parse(chosen)
    assert not problems
    return parsed


def value(settings: Config, key: str) -> object:
    section, _, name = key.rpartition(".")
    return getattr(getattr(settings, section) if section else settings, name)


def running_with(settings: Config) -> EngineEndpoint:
    return EngineEndpoint(pid=1, model=settings.model, settings=endpoint.restart_settings(settings))


@given(configs(), configs())
def test_an_engine_suits_settings_that_agree_on_what_it_cannot_change(there: Config, here: Config):
    reasons = endpoint.differences(running_with(there), here)
    unlike = {key for key in HEAVY if value(there, key) != value(here, key)}
    if here.model == "auto":
        unlike.discard("model")
    assert {phrase.split()[0] for phrase in reasons} == unlike
    assert len(reasons) == len(unlike)


@given(configs(), configs())
def test_differences_are_symmetric_except_for_auto(one: Config, other: Config):
    one, other = replace(one, model="tiny"), replace(other, model="echo")
    assert len(endpoint.differences(running_with(one), other)) == len(endpoint.differences(running_with(other), one))


@given(configs())
def test_the_loaded_pair_suits_by_its_own_name(settings: Config):
    auto = running_with(replace(settings, model="auto"))
    assert endpoint.differences(auto, replace(settings, model="tiny"), running_model="tiny") == []
    assert len(endpoint.differences(auto, replace(settings, model="tiny"), running_model="echo")) == 1


def test_another_version_never_suits():
    (reason,) = endpoint.differences(replace(running_with(Config()), version="0.0.9"), Config())
    assert reason.startswith("its version is 0.0.9 and this is ")


@given(configs())
def test_an_engine_receives_exactly_the_settings_that_it_reads(settings: Config):
    words = launch.engine_flags(settings)
    assert words[::2] == ["--set"] * (len(words) // 2)
    handed, problems = config.parse(dict(config.from_words(word) for word in words[1::2]))
    assert problems == []
    assert endpoint.restart_settings(handed) == endpoint.restart_settings(settings)
    for key in CHOICES:
        own = key.startswith(launch.ENGINES_OWN)
        assert value(handed, key) == (value(settings, key) if own else KNOWN[key].default)


@given(configs())
def test_find_returns_the_endpoint_that_was_written(settings: Config):
    address = {"socket": "/nowhere"} if platform.HAS_UNIX_SOCKETS else {"port": 4711, "token": "secret"}
    written = replace(running_with(settings), **address)
    endpoint.write(written)
    lock = None if platform.HAS_UNIX_SOCKETS else endpoint.try_lock()  # of an engine on a port
    assert endpoint.find() == written
    endpoint.remove(2)
    assert endpoint.find() == written, "another process's"
    endpoint.remove(1)
    assert endpoint.find() is None
    if lock is not None:
        os.close(lock)


@pytest.mark.parametrize(
    ("words", "posix", "windows"),
    [
        (["/usr/bin/python3", "-m", "speclsp", "engine", "--detached"], True, True),
        (["/home/a/.local/bin/speclsp", "engine"], True, True),
        (["python.exe", r"C:\Users\a b\SPECLSP.EXE", "engine"], False, True),
        ([r"C:\bin\speclsp.exe", "ENGINE"], False, True),
        (["/usr/bin/python3", "-m", "speclsp", "lsp"], False, False),
        (["/usr/bin/vim", "speclsp.exe.py", "engine"], False, False),
        ([], False, False),
    ],
)
def test_an_engine_is_known_by_its_command_line_on_windows_in_any_case(words: list[str], posix: bool, windows: bool):
    assert control.is_engine_command(words, windows=False) is posix
    assert control.is_engine_command(words, windows=True) is windows


def test_an_engine_on_a_port_without_the_lock_is_not_found():
    """It was killed, and another user's process may now have the port."""
    on_a_port = EngineEndpoint(pid=1, port=4711, token="secret")
    endpoint.write(on_a_port)
    assert endpoint.find() is None
    lock = endpoint.try_lock()
    assert lock is not None
    assert endpoint.find() == on_a_port
    os.close(lock)
    assert endpoint.find() is None


@pytest.mark.promise(35)
def test_a_log_is_private_and_bounded_for_any_content(isolated: Path):
    path = isolated / "state" / "engine.log"
    subprocess.run([sys.executable, "-c", FILL_LOG, str(path)], check=True)
    kept = [path, path.with_name("engine.log.1")]
    assert sorted(path.parent.iterdir()) == kept
    for file in kept:
        assert file.stat().st_size <= 10_100
        assert sys.platform == "win32" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert path.read_text().splitlines()[-1] == "last words"
    assert "logged 299" in path.read_text()


def test_a_record_is_one_short_line(isolated: Path):
    handler = logfile.open_file(isolated / "a.log")
    assert handler is not None
    handler.emit(logging.LogRecord("speclsp.engine", logging.INFO, "", 0, "two\nlines " + "x" * 9999, None, None))
    handler.close()
    (line,) = (isolated / "a.log").read_text().splitlines()
    assert f" {os.getpid()} info engine: two lines xxx" in line
    assert len(line) < logfile.MAX_LINE + 100


def test_a_log_that_cannot_be_opened_is_none(isolated: Path):
    (isolated / "file").write_text("")
    assert logfile.open_file(isolated / "file" / "a.log") is None
