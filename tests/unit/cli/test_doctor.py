"""`speclsp doctor`: every line ok, warn or fail, and every line that is not ok says what to do."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from speclsp import config
from speclsp.cli import doctor, entry
from speclsp.cli.doctor import FAIL, OK, WARN, DoctorCheck
from speclsp.daemon import control


@pytest.fixture(scope="module")
def echoed() -> list[DoctorCheck]:
    """The whole report for the model-free pair."""
    return list(doctor.checks({"pair": "echo"}))


def by_name(checks: list[DoctorCheck]) -> dict[str, DoctorCheck]:
    return {check.name: check for check in checks}


def test_a_machine_in_order_passes_every_line(echoed: list[DoctorCheck]):
    assert [check for check in echoed if check.status == FAIL] == []
    names = [check.name for check in echoed]
    assert names[:6] == ["python", "torch", "transformers", "bitsandbytes", "tree-sitter", "pygls"]
    assert names[6:] == [
        *("settings", "runtime", "cache", "logs", "shared", "grammars"),
        *("device", "pair", "engine", "completion", "speed"),
    ]


def test_every_check_that_is_not_ok_names_its_fix(echoed: list[DoctorCheck]):
    assert all(check.fix for check in echoed if check.status != OK)


def test_versions_are_reported(echoed: list[DoctorCheck]):
    found = by_name(echoed)
    assert found["torch"].found == metadata.version("torch")
    assert f"Python {sys.version.split()[0]}" in found["python"].found


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
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert said["checks"][1] == {"name": "b", "status": "fail", "found": "no", "fix": "do", "facts": {}}


@pytest.mark.parametrize(
    ("told", "status", "words"),
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
    told: dict[str, object] | None, status: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(control, "status", lambda: told)
    check = doctor.shared_engine()
    assert check.status == status and words in check.found
    assert bool(check.fix) == (status == WARN)


def test_a_missing_package_is_named_with_the_command_that_brings_it():
    found = doctor.package("no-such-package")
    assert (found.status, found.fix) == (FAIL, "python -m pip install no-such-package")


def test_a_missing_bitsandbytes_is_only_a_warning(monkeypatch: pytest.MonkeyPatch):
    def gone(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", gone)
    assert doctor.package("bitsandbytes").status == WARN


def test_nothing_is_tried_without_the_packages_it_needs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        doctor, "package", lambda name: DoctorCheck(name=name, status=FAIL, found="not installed", fix="pip")
    )
    assert "device" not in by_name(list(doctor.checks({"pair": "echo"})))


def test_settings_that_cannot_be_used_fail_and_the_rest_goes_on():
    path = config.config_path()
    path.parent.mkdir(parents=True)
    path.write_text("[engine]\ngamma = 3\n")
    found = by_name(list(doctor.checks({"pair": "echo", "engine.threads": "two"})))
    assert found["settings"].status == FAIL
    assert "engine.gamma" in found["settings"].found
    assert "engine.threads = 'two'" in found["settings"].found
    assert found["completion"].status == OK


def test_an_unknown_pair_fails_and_names_the_fix():
    found = list(doctor.checks({"pair": "qwen"}))[-1]
    assert (found.name, found.status) == ("pair", FAIL)
    assert "unknown pair 'qwen'" in found.found


def test_weights_that_are_not_here_fail_with_the_command_that_fetches_them():
    found = list(doctor.checks({"pair": "qwen2.5-coder-0.5b-instruct"}))[-1]
    assert (found.name, found.status) == ("weights", FAIL)
    assert found.found == "qwen2.5-coder-0.5b-instruct is not on this machine"
    assert found.fix == "`speclsp models pull qwen2.5-coder-0.5b-instruct`"


def test_a_gpu_that_is_not_there_fails():
    import torch

    if not torch.cuda.is_available():
        found = doctor.device(config.Config(device="cuda"))
        assert (found.status, found.fix) == (FAIL, 'device = "auto"')


def test_a_place_that_cannot_be_written_fails(isolated: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    assert [check.status for check in doctor.places()] == [OK, FAIL, FAIL]
    (isolated / "run" / "speclsp").rmdir()
    (isolated / "run" / "speclsp").write_text("")
    assert next(check.status for check in doctor.places()) == FAIL


def test_the_tiny_pair_is_verified_loaded_and_timed():
    found = by_name(list(doctor.checks({"pair": "tiny"})))
    assert found["weights"].status == OK
    assert found["tokenizer"].status == OK
    assert found["engine"].facts["pair"] == "tiny"
    assert float(str(found["speed"].facts["ms_per_token"])) > 0


@pytest.mark.real
def test_the_real_pair_completes_the_known_hole(coder_0_5b: Path):
    found = by_name(list(doctor.checks({"pair": "qwen2.5-coder-0.5b-instruct"})))
    assert found["completion"].status == OK, found["completion"].found
    assert "a + b" in found["completion"].found
