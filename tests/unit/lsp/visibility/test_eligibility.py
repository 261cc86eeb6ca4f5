"""Globs over a document's path, and the setting or rule that disables suggestions for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import rows

from speclsp.config import Config, parse
from speclsp.lsp.visibility.eligibility import exclusion, matches

ROWS = rows(__file__)


def config(**completion: object) -> Config:
    parsed, problems = parse({"completion": completion})
    assert problems == []
    return parsed


@pytest.mark.parametrize(("pattern", "yes", "no"), ROWS["a_glob_matches_exactly_the_expected_paths"])
def test_a_glob_matches_exactly_the_expected_paths(pattern: str, yes: list[str], no: list[str]):
    assert [path for path in yes if not matches(pattern, path)] == []
    assert [path for path in no if matches(pattern, path)] == []


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("secrets\\**", "secrets/a.py"),
        ("Secrets/**", "secrets/A.py"),
        ("C:\\Users\\x\\**", "c:/Users/X/a.py"),
        ("**\\*.PEM", "a/b.pem"),
        ("\\\\server\\share\\*", "//server/share/a.py"),
        ("[A-C]*.py", "b.py"),
    ],
)
def test_a_glob_on_windows_has_either_slash_and_ignores_case(pattern: str, path: str):
    assert matches(pattern, path, windows=True) and not matches(pattern, path, windows=False)
    assert not matches(pattern, path + "/x.txt/y", windows=True) or pattern.endswith("**")


@given(st.text("*?[]!-ab/.\\^", max_size=12), st.text("ab/.", max_size=8))
def test_every_glob_gives_a_verdict(pattern: str, path: str):
    assert matches(pattern, path) in (True, False)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///p/keys/a.py",
        "vscode-notebook-cell:/p/keys/a.ipynb#W0",
        "untitled:/p/keys/a.py",
        "file:///p/%6Beys/a.py",
    ],
)
def test_globs_match_the_path_in_the_workspace_and_the_absolute_path(uri: str):
    for pattern in ("keys/**", "/p/keys/*", "/p/**"):
        reason, message = exclusion(uri, "python", 3, config(disabled_globs=[pattern]), "file:///p")
        assert reason == "glob_off" and repr(pattern) in message and "completion.disabled_globs" in message
    assert exclusion(uri, "python", 3, config(disabled_globs=["keys/**"]), None) == ("", ""), "no folder is open"
    assert exclusion(uri, "python", 3, config(disabled_globs=["p/**"]), "file:///p") == ("", "")


def test_prose_and_commit_messages_are_off_by_default_and_a_list_replaces_the_default():
    for language in ("markdown", "plaintext", "text", "git-commit", "gitcommit", "git-rebase", "rst", "latex", "mail"):
        assert exclusion("file:///p/a", language, 1, Config(), None)[0] == "language_off"
        assert exclusion("file:///p/a", language, 1, config(disabled_languages=[]), None) == ("", "")
        assert exclusion("file:///p/a", language, 1, config(disabled_languages=["go"]), None) == ("", "")
    assert exclusion("file:///p/a", "go", 1, config(disabled_languages=["go"]), None)[0] == "language_off"
