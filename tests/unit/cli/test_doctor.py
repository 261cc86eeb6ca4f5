"""`speclsp doctor`: every line is ok, warn, todo or fail, and every line that is not ok names a fix."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.cli.denied_directories import deny_new_files

from speclsp import config
from speclsp.cli import entry
from speclsp.cli.first_run import doctor
from speclsp.cli.first_run.doctor import FAIL, OK, TODO, WARN, DoctorCheck
from speclsp.config.schema import EngineConfig
from speclsp.daemon import control
from speclsp.engine.model.int8 import native
from speclsp.errors import SpeclspError
from speclsp.lsp.completion.confidence import CURVES, UNJUDGED
from speclsp.weights import cards


@pytest.fixture(scope="module")
def echoed() -> list[DoctorCheck]:
    """The whole report for the model `echo`."""
    return list(doctor.checks({"model": "echo"}))


def test_the_device_line_has_the_processors_peaks(echoed: list[DoctorCheck]):
    device = by_name(echoed)["device"]
    if native.best_path():
        assert device.facts["peaks"]["read_gb_s"] > 0
        assert native.best_path() in device.found and "GB/s" in device.found


def test_instructions_that_the_processor_lacks_fail_with_the_fix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "paths", lambda: ("AVX2",))
    check = doctor.device(config.Config(engine=EngineConfig(cpu_path="amx"), device="cpu"))
    assert (check.status, check.fix) == (FAIL, 'engine.cpu_path = "auto"')
    assert "It has: auto, avx2." in check.found


NO_PROCESS_LIST = "this system gives no such figure (OSError at _pswindows.py:"  # of the check of Copilot under Wine


def by_name(checks: list[DoctorCheck]) -> dict[str, DoctorCheck]:
    return {check.name: check for check in checks}


def test_a_machine_in_order_passes_every_line(echoed: list[DoctorCheck]):
    assert [check for check in echoed if check.status == FAIL] == []
    names = [check.name for check in echoed if not check.found.startswith(NO_PROCESS_LIST)]
    program = ["program"] if sys.platform == "win32" else []
    assert names == [
        *("python", *program, "tree-sitter", "pygls", "pytorch"),
        *("settings", "runtime", "cache", "logs", "shared", "grammars"),
        *("device", "model", "engine", "completion", "speed"),
    ]


def test_every_check_that_is_not_ok_names_its_fix(echoed: list[DoctorCheck]):
    assert all(check.fix for check in echoed if check.status != OK)


def test_versions_are_reported(echoed: list[DoctorCheck]):
    report = by_name(echoed)
    assert report["pytorch"].found.startswith(f"torch {metadata.version('torch')}, transformers ")
    assert f"Python {sys.version.split()[0]}" in report["python"].found


def test_the_exit_code_is_1_when_a_check_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    good, bad = (
        DoctorCheck(name="a", status=WARN, found="slow", fix="wait"),
        DoctorCheck(name="b", status=FAIL, found="no", fix="do"),
    )
    monkeypatch.setattr(doctor, "checks", lambda flags: iter([good]))
    assert entry.main(["doctor"]) == 0
    assert capsys.readouterr().out == "warn  a             slow  -> wait\n"
    monkeypatch.setattr(doctor, "checks", lambda flags: iter([good, bad]))
    assert entry.main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["checks"][1] == {"name": "b", "status": "fail", "found": "no", "fix": "do", "facts": {}}


@pytest.mark.parametrize(
    ("status_answer", "status", "words"),
    [
        (None, OK, "no engine runs"),
        ({"status": "starting"}, OK, "starting or stopping"),
        ({"status": "ok", "pid": 7, "pair": "tiny", "clients": 2}, OK, "process 7, tiny, ok, used by 2 editors"),
        ({"status": "asleep", "pid": 7, "pair": "", "clients": 1}, OK, "process 7, auto, asleep, used by 1 editor"),
        ({"status": "silent", "pid": 7, "pair": "tiny"}, WARN, "silent"),
        ({"status": "error", "pid": 7, "pair": "tiny"}, WARN, "error"),
    ],
)
def test_the_shared_engine_is_reported(
    status_answer: dict[str, object] | None, status: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(control, "status", lambda: status_answer)
    check = doctor.shared_engine()
    assert check.status == status and words in check.found
    assert bool(check.fix) == (status == WARN)


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    check = doctor.package("no-such-package")
    assert (check.status, check.fix) == (FAIL, "python -m pip install no-such-package")


def test_a_check_is_skipped_without_its_packages(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        doctor, "package", lambda name: DoctorCheck(name=name, status=FAIL, found="not installed", fix="pip")
    )
    assert "device" not in by_name(list(doctor.checks({"model": "echo"})))


STEPS = {  # {function: the lines that an exception in it leaves out, or takes the place of}
    "python": {"python"},
    "package": {"tree-sitter", "pygls"},
    "pytorch": {"pytorch"},
    "of_settings": {"settings"},
    "writable": {"cache", "logs"},
    "shared_engine": {"shared"},
    "copilot_servers": {"next edit"},
    "grammars": {"grammars"},
    "device": {"device"},
    "of_model": {"model", "engine", "completion", "speed"},
    "completion": {"engine", "completion", "speed"},
    "known_completion": {"completion"},
    "measured_speed": {"speed"},
}
if sys.platform == "win32":
    STEPS["program"] = {"program"}


@pytest.mark.parametrize("function", STEPS)
@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ImportError("libgomp.so.1: cannot open"), ValueError()]
)
def test_an_exception_in_one_check_ends_no_other(
    function: str, error: Exception, echoed: list[DoctorCheck], monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> DoctorCheck:
        raise error

    monkeypatch.setattr(doctor, "device", lambda config: DoctorCheck(name="device", status=OK, found="fast"))
    monkeypatch.setattr(doctor, function, fail)
    report = by_name(list(doctor.checks({"model": "echo"})))
    usual = {check.name: check.status for check in echoed}
    unaffected = set(usual) - STEPS[function]
    if function == "package":  # without its packages, no model is checked
        unaffected -= {"grammars", "device", "model", "engine", "completion", "speed"}
    assert unaffected <= {name for name, check in report.items() if check.status in (OK, usual.get(name))}
    failed = [check for check in report.values() if check.status == FAIL]
    assert failed and all(check.fix and "\n" not in check.found for check in failed)
    assert all(check.found.startswith(f"{type(error).__name__} at test_doctor.py:") for check in failed)
    assert {check.name for check in failed} <= STEPS[function]


def test_without_a_home_directory_every_check_still_runs(monkeypatch: pytest.MonkeyPatch):
    def no_home(kind: str) -> Path:
        raise SpeclspError("this user has no home directory: set HOME to a directory of yours.")

    monkeypatch.setattr(config.directories, "user_directory", no_home)
    monkeypatch.setattr(doctor, "device", lambda config: DoctorCheck(name="device", status=OK, found="fast"))
    report = by_name(list(doctor.checks({"model": "echo"})))
    assert {report[name].status for name in ("settings", "cache", "logs")} == {FAIL}
    assert "set HOME" in report["settings"].found
    assert {report[name].status for name in ("grammars", "device", "model", "engine", "completion")} == {OK}


def test_invalid_settings_fail_and_the_other_checks_continue():
    path = config.config_path()
    path.parent.mkdir(parents=True)
    path.write_text("[engine]\ngamma = 3\n")
    report = by_name(list(doctor.checks({"model": "echo", "engine.threads": "two", "models_dir": "/no-models"})))
    assert report["settings"].status == FAIL
    assert "engine.gamma" in report["settings"].found
    assert "engine.threads = 'two'" in report["settings"].found
    assert "models_dir = '/no-models' does not exist: create it" in report["settings"].found
    assert report["completion"].status == OK


def test_an_unknown_pair_fails_and_names_the_fix():
    check = list(doctor.checks({"model": "qwen"}))[-1]
    assert (check.name, check.status) == ("model", FAIL)
    assert "unknown model 'qwen'" in check.found


@pytest.mark.parametrize("name", cards.names())
def test_a_model_without_a_confidence_curve_of_its_own_is_named_in_one_line(name: str):
    lines = [check.found for check in doctor.of_confidence(cards.load(name))]
    calibrated = name in CURVES or name in UNJUDGED
    assert lines == [
        f"{name} has no curve of its own: its plain log-probability decides what is shown"
        for _ in range(not calibrated)
    ]


def test_the_model_line_has_the_figures_of_the_model():
    for name in ("qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-7b"):
        check = next(check for check in doctor.checks({"model": name}) if check.name == "model")
        assert check.found == f"{name}, as you chose: {cards.load(name).figures}."


def test_missing_weights_are_to_do_with_the_command_that_downloads_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    check = list(doctor.checks({"model": "qwen2.5-coder-0.5b-instruct"}))[-1]
    assert (check.name, check.status) == ("weights", TODO)
    assert check.found == "qwen2.5-coder-0.5b-instruct is not downloaded yet (469 MiB)"
    assert check.fix == "`speclsp models pull qwen2.5-coder-0.5b-instruct`"
    monkeypatch.setattr(doctor, "checks", lambda flags: iter([check]))
    assert entry.main(["doctor"]) == 0, "a download to do is no failure"
    assert capsys.readouterr().out.startswith("todo  weights")


def test_a_missing_gpu_fails():
    import torch

    if not torch.cuda.is_available():
        check = doctor.device(config.Config(device="cuda"))
        assert check.status == FAIL and check.fix.endswith('device = "auto"')


def test_a_directory_that_cannot_be_written_fails(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        deny_new_files(patch)
        assert [check.status for check in doctor.places()] == [FAIL, FAIL, FAIL]
    assert [check.status for check in doctor.places()] == [OK, OK, OK]
    (isolated / "run" / "speclsp").write_text("")
    assert next(check.status for check in doctor.places()) == FAIL


@pytest.mark.slow
def test_the_tiny_pair_is_verified_loaded_and_timed():
    report = by_name(list(doctor.checks({"model": "tiny"})))
    assert report["weights"].status == OK
    assert report["tokenizer"].status == OK
    assert report["engine"].facts["pair"] == "tiny"
    assert float(str(report["speed"].facts["ms_per_token"])) > 0


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.slow
def test_the_real_pair_completes_the_known_hole(coder_0_5b: Path):
    report = by_name(list(doctor.checks({"model": "qwen2.5-coder-0.5b-instruct"})))
    assert report["completion"].status == OK, report["completion"].found
    assert "a + b" in report["completion"].found
