"""`speclsp config`: list, get, set, unset and path, with wrong input and files that cannot be changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli.terminal import Run, runner

from speclsp import config

TEXT = '# mine\nmodel = "tiny"  # small\n\n[completion]\nmax_tokens = 7 # why\n'


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], isolated: Path) -> Run:
    return runner(capsys, "config")


def written(text: str = TEXT) -> Path:
    path = config.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_list_has_groups_values_defaults_and_sources(run: Run):
    path = written()
    code, out, err = run("list")
    assert (code, err) == (0, "") and str(path) in out
    assert all(f"{heading}\n" in out for heading in config.by_group())
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "config.toml (default 96)" in rows["completion.max_tokens"] and " 7 " in rows["completion.max_tokens"]
    assert rows["completion.enabled"].endswith("default")
    assert "engine.threads" not in rows and "engine.threads" in run("list", "--advanced")[1]


def test_the_list_as_json_has_every_setting(run: Run):
    written()
    report = json.loads(run("list", "--json")[1])
    rows = {row["key"]: row for row in report["settings"]}
    assert set(rows) == {key for key in config.KNOWN if not key.startswith("echo.")}
    assert rows["model"].items() >= {"value": "tiny", "default": "auto", "source": "config.toml"}.items()
    assert report["path"] == str(config.config_path()) and report["problems"] == []


def test_set_get_and_unset_keep_comments_and_other_lines(run: Run):
    path = written()
    assert run("set", "completion.max_tokens", "9")[0] == 0
    assert path.read_text() == TEXT.replace("7", "9")
    assert run("get", "completion.max_tokens") == (0, "9\n", "")
    assert run("set", "completion.disabled_languages", "go,rust")[0] == 0
    assert config.load().completion.disabled_languages == ("go", "rust")
    assert run("unset", "completion.disabled_languages")[0] == 0
    assert run("unset", "completion.max_tokens")[0] == 0
    assert config.load() == config.Config(model="tiny") and "# mine" in path.read_text()
    code, _, err = run("unset", "completion.max_tokens")
    assert (code, err) == (1, f"speclsp: completion.max_tokens is not set in {path}.\n")


def test_set_creates_a_missing_file_and_path_prints_its_place(run: Run):
    assert run("path") == (0, f"{config.config_path()}\n", "")
    assert run("set", "model", "tiny")[0] == 0
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
def test_wrong_input_is_one_sentence_and_changes_nothing(run: Run, words: tuple[str, ...], error: str):
    path = written()
    code, out, err = run(*words)
    assert (code, out) == (2, "") and error in err and err.count("\n") == 1 and "secret-1" not in err
    assert path.read_text() == TEXT


def test_a_broken_file_is_reported_by_the_list_too(run: Run):
    written("[engine\n")
    code, out, err = run("list")
    assert code == 2 and "completion.enabled" in out and "not valid TOML" in err
