"""`speclsp doctor`: every line is ok, warn, todo or fail, and every line that is not ok names a fix."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from speclsp import config
from speclsp.cli import entry
from speclsp.cli.first_run import doctor
from speclsp.cli.first_run import doctor_installation as installation
from speclsp.cli.first_run.doctor import FAIL, OK, TODO, WARN, DoctorCheck
from speclsp.engine.model.int8 import native
from speclsp.errors import SpeclspError
from speclsp.weights import cards


@pytest.fixture(scope="module")
def echoed() -> list[DoctorCheck]:
    """The whole report for the model `echo`."""
    return list(doctor.checks({"model": "echo"}))


def by_name(checks: list[DoctorCheck]) -> dict[str, DoctorCheck]:
    return {check.name: check for check in checks}


def test_a_machine_in_order_passes_every_line(echoed: list[DoctorCheck]):
    assert [check for check in echoed if check.status == FAIL] == []
    assert [check.name for check in echoed] == [
        *("python", "packages", "settings", "directories"),
        *("device", "model", "completion"),
    ]
    assert all(check.fix for check in echoed if check.status != OK)
    report = by_name(echoed)
    assert f"Python {sys.version.split()[0]}" in report["python"].found
    assert f"torch {metadata.version('torch')}" in report["packages"].found
    assert native.best_path() in report["device"].found


def test_the_exit_code_is_1_when_a_check_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    good, bad = DoctorCheck("a", WARN, "slow", "wait"), DoctorCheck("b", FAIL, "no", "do")
    monkeypatch.setattr(doctor, "checks", lambda flags: iter([good]))
    assert entry.main(["doctor"]) == 0
    assert capsys.readouterr().out == "warn  a             slow  -> wait\n"
    monkeypatch.setattr(doctor, "checks", lambda flags: iter([good, bad]))
    assert entry.main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["checks"][1] == {"name": "b", "status": "fail", "found": "no", "fix": "do"}


STEPS = {  # {function: the line whose place an exception in it takes}
    "python": "python",
    "packages": "packages",
    "of_settings": "settings",
    "directories": "directories",
    "device": "device",
    "completion": "completion",
}


@pytest.mark.parametrize("function", STEPS)
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ImportError("libgomp.so.1: cannot open")])
def test_an_exception_in_one_check_ends_no_other(
    function: str, error: Exception, echoed: list[DoctorCheck], monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> DoctorCheck:
        raise error

    monkeypatch.setattr(doctor, "device", lambda config: DoctorCheck("device", OK, "fast"))
    monkeypatch.setattr(doctor if hasattr(doctor, function) else installation, function, fail)
    report = by_name(list(doctor.checks({"model": "echo"})))
    usual = [check.name for check in echoed]
    expected = usual[: usual.index("device")] if function == "packages" else usual  # without them, no model is checked
    assert list(report) == expected
    assert [name for name, check in report.items() if check.status == FAIL] == [STEPS[function]]
    failed = report[STEPS[function]]
    assert failed.fix and failed.found.startswith(f"{type(error).__name__} at test_doctor.py:")


# ── the installation ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_program_outside_path_is_a_warning_with_both_ways_to_start_it():
    missing = installation.python(lambda name: None, "win32")
    assert missing.status == WARN and missing.fix.startswith("add ")
    assert missing.fix.endswith(" to PATH, or write `py -m speclsp` in place of `speclsp`")
    assert installation.python(lambda name: rf"C:\Scripts\{name}.exe", "win32").status == OK


def test_without_a_home_directory_every_check_still_runs(monkeypatch: pytest.MonkeyPatch):
    def no_home(kind: str) -> Path:
        raise SpeclspError("this user has no home directory: set HOME to a directory of yours.")

    monkeypatch.setattr(config.directories, "user_directory", no_home)
    monkeypatch.setattr(doctor, "device", lambda config: DoctorCheck("device", OK, "fast"))
    report = by_name(list(doctor.checks({"model": "echo"})))
    assert {report[name].status for name in ("settings", "directories")} == {FAIL}
    assert "set HOME" in report["settings"].found
    assert {report[name].status for name in ("device", "model", "completion")} == {OK}


def test_invalid_settings_fail_and_the_other_checks_continue():
    path = config.config_path()
    path.parent.mkdir(parents=True)
    path.write_text("[engine]\ngamma = 3\n")
    report = by_name(list(doctor.checks({"model": "echo", "engine.threads": "two", "models_dir": "/no-models"})))
    assert report["settings"].status == FAIL
    assert "engine.gamma" in report["settings"].found
    assert "engine.threads = 'two'" in report["settings"].found
    assert "models_dir = '/no-models' is no directory: create it" in report["settings"].found
    assert report["completion"].status == OK


def test_a_directory_that_cannot_be_written_fails(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(config, "accepts_files", lambda directory: False)
        check = installation.directories()
    assert check.status == FAIL and all(str(path) in check.fix for path in (config.cache_dir(), config.log_dir()))
    assert installation.directories().status == OK
    (isolated / "run" / "speclsp").write_text("")
    assert installation.directories().status == FAIL


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_model_fails_and_names_the_fix():
    check = list(doctor.checks({"model": "qwen"}))[-1]
    assert (check.name, check.status) == ("model", FAIL)
    assert "unknown model 'qwen'" in check.found


def test_missing_weights_are_to_do_with_the_command_that_downloads_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    name = "qwen2.5-coder-0.5b-instruct"
    *_, model, weights = doctor.checks({"model": name})
    assert model.found == f"{name}, as you chose: {cards.load(name).figures}."
    assert (weights.name, weights.status) == ("weights", TODO)
    assert weights.found == f"{name} is not downloaded yet (469 MiB)"
    assert weights.fix == f"`speclsp models pull {name}`"
    monkeypatch.setattr(doctor, "checks", lambda flags: iter([weights]))
    assert entry.main(["doctor"]) == 0, "a download to do is no failure"
    assert capsys.readouterr().out.startswith("todo  weights")


@pytest.mark.slow
def test_the_tiny_model_is_verified_loaded_and_timed():
    report = by_name(list(doctor.checks({"model": "tiny"})))
    assert report["weights"].status == OK
    ms_per_token = re.search(r"by tiny/.*; ([\d.]+) ms per token", report["completion"].found)
    assert ms_per_token and float(ms_per_token[1]) > 0
