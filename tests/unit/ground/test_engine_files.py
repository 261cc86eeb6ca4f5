"""Files of an engine: settings that share one, the settings passed to it, and its log."""

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

from speclsp import config
from speclsp.config import KNOWN, Config
from speclsp.daemon import control, engine_files, launch, platform
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles
from speclsp.observability import logfile

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
    "engine.offline": [False, True],
    "completion.max_tokens": [96, 5],
    "completion.disabled_languages": [(), ("c", "d")],
    "remote.url": ["", "http://localhost:1"],
    "stats.enabled": [True, False],
}
HEAVY = {key for key in CHOICES if key.startswith(engine_files.ENGINES_OWN) and key not in engine_files.LIGHT}


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
    return EngineEndpoint(pid=1, settings=engine_files.heavy_settings(settings))


@given(configs(), st.sampled_from(sorted(CHOICES)), st.integers(0, 3))
def test_settings_share_an_engine_if_they_agree_on_what_it_cannot_change(one: Config, key: str, number: int):
    choice = CHOICES[key][number % len(CHOICES[key])]
    other, _ = config.parse({key: choice}, one)
    unlike = key in HEAVY and value(one, key) != value(other, key)
    assert (EngineFiles.of(one) != EngineFiles.of(other)) is unlike


def test_another_version_has_another_engine(monkeypatch: pytest.MonkeyPatch):
    ours = EngineFiles.of(Config())
    monkeypatch.setattr(engine_files, "__version__", "0.0.9")
    assert EngineFiles.of(Config()) != ours


def test_relative_paths_mean_the_same_to_the_engine():
    config = engine_files.rooted(Config(model="./models/mine", models_dir="weights"))
    assert (config.model, config.models_dir) == (str(Path.cwd() / "models/mine"), str(Path.cwd() / "weights"))
    assert EngineFiles.of(Config(model="./models/mine", models_dir="weights")) == EngineFiles.of(config)
    assert engine_files.rooted(Config(model="echo")) == Config(model="echo")


@given(configs())
def test_an_engine_receives_exactly_the_settings_that_it_reads(settings: Config):
    words = launch.engine_flags(settings)
    assert words[::2] == ["--set"] * (len(words) // 2)
    handed, problems = config.parse(dict(config.from_words(word) for word in words[1::2]))
    assert problems == []
    assert EngineFiles.of(handed) == EngineFiles.of(settings)
    for key in CHOICES:
        own = key.startswith(engine_files.ENGINES_OWN)
        assert value(handed, key) == (value(settings, key) if own else KNOWN[key].default)


@given(configs())
def test_find_returns_the_endpoint_that_was_written(settings: Config):
    address = {"socket": "/nowhere"} if platform.HAS_UNIX_SOCKETS else {"port": 4711, "token": "secret"}
    written, files = replace(running_with(settings), **address), EngineFiles.of(settings)
    files.write(written)
    lock = None if platform.HAS_UNIX_SOCKETS else files.try_lock()  # of an engine on a port
    assert files.find() == written
    files.remove(2)
    assert files.find() == written, "another process's"
    files.remove(1)
    assert files.find() is None
    if lock is not None:
        os.close(lock)


@pytest.mark.parametrize(
    ("words", "posix", "windows"),
    [
        (["/usr/bin/python3", "-m", "speclsp", "engine", "start"], True, True),
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
    on_a_port, files = EngineEndpoint(pid=1, port=4711, token="secret"), EngineFiles.of(Config())
    files.write(on_a_port)
    assert files.find() is None
    lock = files.try_lock()
    assert lock is not None
    assert files.find() == on_a_port
    os.close(lock)
    assert files.find() is None


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
