"""API key of a server: where it is kept, who may read it, and which server receives it."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp import config
from speclsp.cli import entry
from speclsp.config import api_keys
from speclsp.config.known_settings import NO_KEY
from speclsp.errors import SpeclspError

OURS, OTHER = "https://coder.example/v1", "https://elsewhere.example/v1"


@pytest.mark.promise(36)
@pytest.mark.parametrize(
    ("url", "same", "other"),
    [
        ("https://Coder.Example/v1", "https://coder.example:443/else", "http://coder.example/v1"),
        ("http://localhost:8000", "http://localhost:8000/v1/completions", "http://localhost:8001"),
        ("https://[::1]/v1", "https://[::1]:443", "https://[::2]/v1"),
        (OURS, OURS, "https://coder.example.evil.example/v1"),
        (OURS, OURS, "https://coder.example@evil.example/v1"),
    ],
)
def test_a_key_is_bound_to_scheme_host_and_port(url: str, same: str, other: str):
    api_keys.store(url, "sk-1")
    assert api_keys.find(same) == ("sk-1", "")
    assert api_keys.find(other) == ("", "")


def test_the_environment_variable_applies_only_to_the_server_of_the_users_own_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPECLSP_API_KEY", "sk-env")
    assert api_keys.find(OURS, OURS) == ("sk-env", "")
    for own in ("", OTHER):
        key, warning = api_keys.find(OURS, own)
        assert (
            key == "" and "SPECLSP_API_KEY is not sent to https://coder.example:443" in warning and "key set" in warning
        )


def test_a_stored_key_is_found_for_any_source_of_its_server():
    api_keys.store(OTHER, "sk-stored")
    assert api_keys.find(OTHER, OURS) == ("sk-stored", "")
    assert api_keys.forget(OTHER) and not api_keys.forget(OTHER)
    assert api_keys.find(OTHER, OURS) == ("", "")
    assert not api_keys.keys_path().exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(mode: int):
    api_keys.store(OURS, "sk-1")
    api_keys.keys_path().chmod(mode)
    with pytest.raises(SpeclspError, match=f"chmod 600 {api_keys.keys_path()}") as raised:
        api_keys.find(OURS)
    assert "open to others" in str(raised.value) and "sk-1" not in str(raised.value)


@given(key=st.text(min_size=1))
def test_a_key_either_fits_into_a_header_or_is_refused_without_quoting_it(key: str):
    try:
        assert api_keys.checked(key, "it").encode("ascii").isalnum() or key.isprintable()
        assert not any(letter in key for letter in "\r\n\0 ")
    except SpeclspError as error:
        assert len(key) < 4 or key not in str(error)


@pytest.mark.parametrize("url", ["coder.example", "ftp://coder.example", "https://", "https://h:x/", ""])
def test_an_invalid_address_is_named_in_the_error(url: str):
    with pytest.raises(SpeclspError):
        api_keys.origin(url)


@pytest.mark.parametrize("text", ["[]", "{", "\0"])
def test_a_damaged_file_gives_no_traceback(text: str):
    api_keys.store(OURS, "sk-1")
    api_keys.keys_path().write_text(text)
    if text == "[]":
        assert api_keys.find(OURS) == ("", "")
    else:
        with pytest.raises(SpeclspError, match="remove it"):
            api_keys.find(OURS)


def test_the_command_reads_the_key_from_stdin_and_never_prints_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "stdin", io.StringIO("sk-typed\n"))
    assert entry.main(["key", "set", OURS]) == 0
    assert api_keys.find(OURS) == ("sk-typed", "")
    assert entry.main(["key", "forget", OURS]) == 0
    assert entry.main(["key", "forget", OURS]) == 1
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert entry.main(["key", "set", OURS]) == 2
    captured = capsys.readouterr()
    assert "https://coder.example:443" in captured.out and "no key was given" in captured.err
    assert "sk-typed" not in captured.out + captured.err


def test_a_key_in_settings_is_ignored(capsys: pytest.CaptureFixture[str]):
    for given_so in ({"remote.key": "sk-1"}, {"remote": {"key": "sk-1"}}, {"speclsp": {"remote": {"key": "sk-1"}}}):
        parsed, problems = config.parse(given_so)
        assert parsed == config.Config() and problems == [NO_KEY]
    assert entry.main(["lsp", "--set", "remote.key=sk-1"]) == 2
    assert "sk-1" not in capsys.readouterr().err


@pytest.mark.promise(30)
def test_the_users_own_settings_can_be_fixed_while_others_change():
    base, _ = config.parse({"remote.url": OURS})
    sent = {"remote": {"url": OTHER, "api": None}, "completion": {"max_tokens": 7}}
    parsed, problems = config.parse(sent, base, fixed=config.THE_USERS_OWN)
    assert parsed == config.parse({"completion.max_tokens": 7}, base)[0]
    assert len(problems) == 1 and "remote.url" in problems[0] and "restart" in problems[0]
