"""Prompts of model-made next edits: the literal text, limits, and markers in the user's text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.backend import edit_prompt
from speclsp.lsp.backend.edit_prompt import EditInput, Hunk

EDIT = EditInput(
    path="pkg/user.py",
    before=("import db", ""),
    window=("def load(user):", "    return db.get(key)"),
    after=("", "load(1)"),
    first=3,
    earlier=("def load(key):", "    return db.get(key)"),
    cursor=(0, 13),
    hunks=(
        Hunk(old=("", "x = 1"), new=("", "x = 2"), path="pkg/other.py", first=4),
        Hunk(old=("", "def load(key):"), new=("", "def load(user):"), path="pkg/user.py", first=2),
    ),
)


def test_the_prompt_of_format_sweep():
    assert edit_prompt.format_sweep(EDIT) == (
        "<|file_sep|>pkg/user.py\nimport db\n\ndef load(user):\n    return db.get(key)\n\nload(1)\n"
        "<|file_sep|>pkg/other.py:4:5\noriginal:\n\nx = 1\nupdated:\n\nx = 2\n"
        "<|file_sep|>pkg/user.py:2:3\noriginal:\n\ndef load(key):\nupdated:\n\ndef load(user):\n"
        "<|file_sep|>original/pkg/user.py:3:4\ndef load(key):\n    return db.get(key)\n"
        "<|file_sep|>current/pkg/user.py:3:4\ndef load(user<|cursor|>):\n    return db.get(key)\n"
        "<|file_sep|>updated/pkg/user.py:3:4\n"
    )


def test_only_the_newest_hunks_that_fit_are_in_the_prompt():
    hunks = [Hunk(old=(f"old {number}",), new=("x" * 300,), path="a") for number in range(20)]
    kept = edit_prompt.newest_hunks(hunks)
    assert [hunk.old for hunk in kept] == [("old 16",), ("old 17",), ("old 18",), ("old 19",)]
    assert edit_prompt.newest_hunks(hunks[:1] * 9 + [Hunk(old=(), new=("x" * 1501,), path="a")]) == []
    assert len(edit_prompt.newest_hunks([Hunk(old=("a",), new=("b",), path="a")] * 9)) == edit_prompt.MAX_HUNKS


MARKERS = ["<|file_sep|>", "<|endoftext|>", "<|cursor|>"]
PIECES = st.sampled_from([*MARKERS, "<", "|", "file_sep|>", "｜", "a", " ", "\t"])
LINE = st.lists(PIECES, max_size=6).map("".join)
LINES = st.lists(LINE, max_size=4).map(tuple)
HUNKS = st.lists(st.builds(Hunk, old=LINES, new=LINES, path=LINE), max_size=2).map(tuple)
CURSORS = st.tuples(st.integers(0, 4), st.integers(0, 9))
EDITS = st.builds(
    EditInput,
    path=LINE, before=LINES, window=LINES, hunks=HUNKS, after=LINES, first=st.just(1), earlier=LINES, cursor=CURSORS,
)  # fmt: skip


@given(EDITS)
def test_no_text_of_the_user_becomes_a_marker(edit: EditInput):
    prompt = edit_prompt.format_sweep(edit)
    assert prompt.count("<|file_sep|>") == 4 + len(edit_prompt.newest_hunks(edit.hunks))
    assert prompt.count("<|endoftext|>") == 0


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_window_holds_its_line_and_has_the_same_length_everywhere(line: int, line_count: int):
    line = min(line, line_count - 1)
    first, end = edit_prompt.window_around(line, line_count)
    assert 0 <= first <= line < end <= line_count
    assert end - first == min(line_count, edit_prompt.LINES_ABOVE + 1 + edit_prompt.LINES_BELOW)
