"""`speclsp config`: list, get, set, unset and path, with wrong input and files that cannot be changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from speclsp import config
from speclsp.cli import entry

TEXT = '# mine\nmodel = "tiny"  # small\n\n[completion]\nmax_tokens = 7 # why\n'


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = entry.main(["config", *words])
    return code, *capsys.readouterr()


def written(text: str = TEXT) -> Path:
    path = config.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_list_has_groups_values_defaults_and_sources(isolated: Path, capsys: pytest.CaptureFixture[str]):
    path = written()
    code, out, err = run(capsys, "list")
    assert (code, err) == (0, "") and str(path) in out
    assert all(f"{heading}\n" in out for heading in config.by_group())
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "config.toml (default 96)" in rows["completion.max_tokens"] and " 7 " in rows["completion.max_tokens"]
    assert rows["completion.enabled"].endswith("default")
    assert "engine.threads" not in rows and "engine.threads" in run(capsys, "list", "--advanced")[1]


def test_an_advanced_setting_of_the_file_is_listed(isolated: Path, capsys: pytest.CaptureFixture[str]):
    written("[engine]\nthreads = 2\n")
    assert "engine.threads" in run(capsys, "list")[1]


def test_the_list_as_json_has_every_setting(isolated: Path, capsys: pytest.CaptureFixture[str]):
    written()
    report = json.loads(run(capsys, "list", "--json")[1])
    rows = {row["key"]: row for row in report["settings"]}
    assert set(rows) == {key for key in config.KNOWN if not key.startswith("echo.")}
    assert (rows["model"]["value"], rows["model"]["default"], rows["model"]["source"]) == (
        "tiny",
        "auto",
        "config.toml",
    )
    assert report["path"] == str(config.config_path()) and report["problems"] == []


def test_set_get_and_unset_keep_comments_and_other_lines(isolated: Path, capsys: pytest.CaptureFixture[str]):
    path = written()
    assert run(capsys, "set", "completion.max_tokens", "9")[0] == 0
    assert path.read_text() == TEXT.replace("7", "9")
    assert run(capsys, "get", "completion.max_tokens") == (0, "9\n", "")
    assert run(capsys, "set", "completion.disabled_languages", "go,rust")[0] == 0
    assert config.load().completion.disabled_languages == ("go", "rust")
    assert run(capsys, "unset", "completion.disabled_languages")[0] == 0
    assert run(capsys, "unset", "completion.max_tokens")[0] == 0
    assert config.load() == config.Config(model="tiny") and "# mine" in path.read_text()
    code, _, err = run(capsys, "unset", "completion.max_tokens")
    assert (code, err) == (1, f"speclsp: completion.max_tokens is not set in {path}.\n")


def test_set_creates_a_missing_file_and_path_prints_its_place(isolated: Path, capsys: pytest.CaptureFixture[str]):
    assert run(capsys, "path") == (0, f"{config.config_path()}\n", "")
    assert run(capsys, "set", "model", "tiny")[0] == 0
    assert config.load().model == "tiny"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("set", "completion.max_token", "9"), 'did you mean "completion.max_tokens"?'),
        (("get", "completion.max_token"), 'did you mean "completion.max_tokens"?'),
        (("unset", "zzz"), "`speclsp config list` shows all."),
        (("set", "completion.max_tokens", "many"), "expected a whole number from 1 to 4096"),
        (("set", "completion.eagerness", "lo"), 'expected "low", "medium" or "high"'),
        (("set", "completion", "3"), "expected a table of settings"),
        (("set", "remote.key", "secret-1"), "`speclsp key set URL` stores it"),
    ],
)
def test_wrong_input_is_one_sentence_and_changes_nothing(
    isolated: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
):
    path = written()
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "") and error in err and err.count("\n") == 1 and "secret-1" not in err
    assert path.read_text() == TEXT


@pytest.mark.parametrize("words", [("set", "model", "tiny"), ("unset", "model")])
@pytest.mark.parametrize("text", ["[engine\n", "engine = 5\nmodel\n"])
def test_broken_toml_stays_as_it_was(
    isolated: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
):
    path = written(text)
    code, _, err = run(capsys, *words)
    assert code == 2 and str(path) in err and err.count("\n") == 1
    assert path.read_text() == text


def test_a_broken_file_is_reported_by_the_list_too(isolated: Path, capsys: pytest.CaptureFixture[str]):
    written("[engine\n")
    code, out, err = run(capsys, "list")
    assert code == 2 and "completion.enabled" in out and "not valid TOML" in err


@pytest.mark.parametrize("words", [("set", "model", "other"), ("unset", "model")])
def test_a_full_disk_loses_nothing(
    isolated: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
):
    path = written()

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("speclsp.private_files.replace", full)
    code, _, err = run(capsys, *words)
    assert (code, err) == (2, f"speclsp: {path} cannot be changed: {os.strerror(28)}.\n")
    assert path.read_text() == TEXT


def test_a_directory_that_is_no_directory_is_one_sentence(isolated: Path, capsys: pytest.CaptureFixture[str]):
    place = config.config_path().parent
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("a file")
    code, _, err = run(capsys, "set", "model", "tiny")
    assert code == 2 and "cannot be" in err and err.count("\n") == 1
