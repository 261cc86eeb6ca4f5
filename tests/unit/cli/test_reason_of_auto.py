"""The reason for the model that `auto` chose: printed once by `setup` and `doctor`, and by no other command."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclsp.cli import entry
from speclsp.cli.first_run import doctor, setup
from speclsp.daemon import control
from speclsp.weights import auto_choice, cards

REASON = "because a test chose it"
HEALTH = {"pid": 7, "version": "0.1.0", "status": "ok", "pair": "tiny", "socket": "/s", "log": "/l", "reason": REASON}


@pytest.fixture(autouse=True)
def auto(monkeypatch: pytest.MonkeyPatch, isolated: Path) -> None:
    """`auto` chooses `tiny`, with a reason."""
    monkeypatch.setattr(auto_choice, "auto", lambda config, ask_hub=False: (cards.load("tiny"), f"tiny, {REASON}."))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert entry.main([*words]) == 0
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(
    "words",
    [("models", "path"), ("models", "verify"), ("models", "pull"), ("models", "list"), ("demo", "--repeats", "1")],
    ids=" ".join,
)
def test_a_command_about_something_else_does_not_print_it(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]):
    assert REASON not in printed(capsys, *words)


def test_the_status_of_an_engine_does_not_print_it():
    assert REASON not in control.in_words(HEALTH)


def test_doctor_and_setup_print_it_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "completion", lambda config, card: iter(()))
    assert printed(capsys, "doctor").count(REASON) == 1
    monkeypatch.setattr(setup, "test_completion", lambda config, card: None)
    assert printed(capsys, "setup", "--yes").count(REASON) == 1
