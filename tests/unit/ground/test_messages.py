"""Messages: cut between words and marked, the fix of another process's error kept, no log named that does not exist."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import Config
from speclsp.daemon import launch
from speclsp.errors import MAX_MESSAGE, EngineError, shortened
from speclsp.lsp.backend.engine_http import error_text

WORD = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=12)


@given(st.lists(WORD, min_size=1, max_size=40), st.integers(30, 200))
def test_a_message_is_cut_between_two_words_and_the_cut_is_marked(words: list[str], most: int):
    text = shortened("\n".join(words), most)
    assert len(text) <= most
    if len(" ".join(words)) <= most:
        assert text == " ".join(words)
    else:
        kept = text.removesuffix(" …").split(" ")
        assert text.endswith(" …") and kept == words[: len(kept)]


def test_the_fix_at_the_end_of_a_long_engine_error_is_kept():
    message = "x" * 500 + " is damaged. Repair: `speclsp models pull NAME`."
    assert error_text(503, json.dumps({"error": {"message": message}}).encode()) == message


def test_the_last_line_of_an_engine_that_did_not_start_is_its_error(monkeypatch: pytest.MonkeyPatch):
    long_error = "speclsp: " + "the model is damaged " * 20 + "and this is the fix."
    stderr = f"a warning of a library\n{long_error}\n".encode()

    def ended(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 2, b"", stderr)

    monkeypatch.setattr(launch.subprocess, "run", ended)
    with pytest.raises(EngineError) as caught:
        launch.start(Config())
    assert str(caught.value) == long_error.removeprefix("speclsp: ") and len(long_error) < MAX_MESSAGE
