"""What the user is doing: which edits count and when, what is never kept, and that typing changes none of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.context import recent_activity as module
from speclsp.lsp.context.chunk import ChunkPlace
from speclsp.lsp.context.recent_activity import (
    APART_LINES,
    COPIED,
    EDIT,
    FORGET_AFTER_S,
    MOST_EDITS,
    MOST_LINES,
    VIEWED,
    RecentActivity,
)
from speclsp.lsp.documents.document import Document, Documents

HERE, THERE, SECRET = "file:///work/here.py", "file:///work/there.py", "file:///work/.env"
LINES = "".join(f"line_{n} = {n}\n" for n in range(60))
AWS_KEY = "AKIA" + "Q7ZB3XK5M2VN8LPT"


class Desk:
    """A user's documents, what is known of the user, and a clock to turn."""

    def __init__(self) -> None:
        self.off: set[str] = {SECRET}
        self.now_s = 0.0
        self.documents = Documents()
        self.doing = RecentActivity(
            kept_back=lambda uri: uri in self.off, path=lambda uri: uri.rpartition("/")[2], clock=lambda: self.now_s
        )
        self.documents.follow = self.doing.edited

    def open(self, uri: str = HERE, text: str = LINES, language: str = "python") -> Document:
        return self.documents.open(uri, language, 1, text)

    def put(self, first: int, end: int, text: str, uri: str = HERE) -> None:
        """`text` in place of the lines from `first` to before `end`."""
        span = {"start": {"line": first, "character": 0}, "end": {"line": end, "character": 0}}
        self.documents.change(uri, None, [{"range": span, "text": text}], "utf-16")

    def type(self, line: int, column: int, text: str, uri: str = HERE) -> None:
        """One key after the other."""
        for n, key in enumerate(text):
            at = {"line": line, "character": column + n}
            self.documents.change(uri, None, [{"range": {"start": at, "end": at}, "text": key}], "utf-16")

    def shown(self, source: str, uri: str = HERE, language: str = "python") -> list[str]:
        place = ChunkPlace(uri, uri.rpartition("/")[2], None, language, "", "")
        return [chunk.text for chunk in self.doing.candidates(place) if chunk.source == source]

    def held(self) -> str:
        """All text that is held, whatever it is for."""
        return repr(self.doing)


@pytest.fixture
def desk() -> Desk:
    return Desk()


# ── when an edit counts ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edit_counts_once_the_cursor_has_gone_some_lines_away(desk: Desk):
    desk.open()
    desk.put(10, 11, "total = 10\n")
    desk.doing.at(HERE, 10 + APART_LINES)
    assert desk.shown(EDIT) == []
    desk.doing.at(HERE, 10 + APART_LINES + 1)
    assert desk.shown(EDIT) == ["-line_10 = 10\n+total = 10\n"]


def test_an_edit_counts_once_the_cursor_is_in_another_file(desk: Desk):
    desk.open()
    desk.open(THERE)
    desk.put(10, 11, "total = 10\n")
    desk.doing.at(THERE, 10)
    assert len(desk.shown(EDIT, THERE)) == 1


def test_an_edit_counts_once_the_next_one_is_made_elsewhere(desk: Desk):
    desk.open()
    desk.open(THERE)
    desk.put(10, 11, "total = 10\n")
    desk.put(40, 41, "")
    assert desk.shown(EDIT) == ["-line_10 = 10\n+total = 10\n"]
    desk.put(0, 0, "import os\n", THERE)
    assert desk.shown(EDIT)[1:] == ["-line_40 = 40\n"]


def test_an_edit_counts_once_its_file_is_closed_and_is_still_what_the_user_did(desk: Desk):
    desk.open()
    desk.put(10, 11, "total = 10\n")
    desk.documents.close(HERE)
    desk.doing.closed(HERE)
    assert desk.shown(EDIT, THERE) == ["-line_10 = 10\n+total = 10\n"]


def test_typing_changes_nothing_that_is_shown(desk: Desk):
    desk.open()
    desk.put(10, 11, "total = 10\n")
    desk.doing.at(HERE, 40)
    before = desk.shown(EDIT)
    for n, key in enumerate("print(total)"):
        desk.type(40, n, key)
        desk.doing.at(HERE, 40)
        assert desk.shown(EDIT) == before
    desk.put(41, 41, "another\n")  # and the next line
    desk.doing.at(HERE, 41)
    assert desk.shown(EDIT) == before


def test_lines_above_an_edit_under_way_may_come_and_go(desk: Desk):
    desk.open()
    desk.put(30, 31, "total = 30\n")
    desk.put(0, 0, "import os\nimport sys\n")
    assert desk.shown(EDIT) == ["-line_30 = 30\n+total = 30\n"]


# ── what an edit is ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_edits_close_together_are_one(desk: Desk):
    desk.open()
    desk.put(10, 11, "ten = 10\n")
    desk.put(12, 13, "twelve = 12\n")
    desk.doing.at(THERE, 0)
    (one,) = desk.shown(EDIT)
    assert one == "-line_10 = 10\n+ten = 10\n line_11 = 11\n-line_12 = 12\n+twelve = 12\n"


def test_what_is_typed_key_by_key_is_one_edit(desk: Desk):
    desk.open()
    desk.type(10, 12, "0 + line_9")
    desk.doing.at(THERE, 0)
    assert desk.shown(EDIT) == ["-line_10 = 10\n+line_10 = 100 + line_9\n"]


def test_an_edit_taken_back_leaves_nothing(desk: Desk):
    desk.open()
    desk.put(10, 11, "total_of_all = 10\n")
    desk.doing.at(HERE, 40)
    assert desk.shown(EDIT)
    desk.put(10, 11, "line_10 = 10\n")
    desk.doing.at(HERE, 40)
    assert desk.shown(EDIT) == []


def test_an_edit_that_goes_on_where_another_was_joins_it(desk: Desk):
    desk.open()
    desk.put(10, 11, "total_of_all = 10\n")
    desk.doing.at(HERE, 40)
    desk.put(10, 11, "total_of_some = 11\n")
    desk.doing.at(HERE, 40)
    assert desk.shown(EDIT) == ["-line_10 = 10\n+total_of_some = 11\n"]


def test_the_same_edit_made_again_is_shown_once(desk: Desk):
    desk.open(text="old(1)\n" + LINES + "old(1)\n")
    desk.put(0, 1, "new(1)\n")
    desk.put(61, 62, "new(1)\n")
    desk.doing.at(THERE, 0)
    assert desk.shown(EDIT) == ["-old(1)\n+new(1)\n"]


def test_blanks_are_no_edit(desk: Desk):
    desk.open()
    desk.put(10, 11, "    line_10 = 10\n\n")
    desk.doing.at(THERE, 0)
    assert desk.shown(EDIT) == []


def test_a_paste_or_another_branch_is_no_edit(desk: Desk):
    desk.open()
    desk.put(10, 11, "pasted\n" * (MOST_LINES + 1))
    desk.doing.at(THERE, 0)
    desk.documents.change(HERE, None, [{"text": "another branch\n" * 100}], "utf-16")
    desk.doing.at(THERE, 0)
    assert desk.shown(EDIT) == []
    assert "pasted" not in desk.held() and "branch" not in desk.held()


def test_a_client_that_sends_whole_texts_makes_the_same_edits(desk: Desk):
    desk.open()
    text = LINES.replace("line_10 = 10\n", "total = 10\n")
    desk.documents.change(HERE, None, [{"text": text}], "utf-16")
    desk.doing.at(THERE, 0)
    assert desk.shown(EDIT) == ["-line_10 = 10\n+total = 10\n"]


def test_newlines_are_the_models(desk: Desk):
    desk.open(text=LINES.replace("\n", "\r\n"))
    desk.put(10, 11, "total = 10\r\n")
    desk.doing.at(THERE, 0)
    assert desk.shown(EDIT) == ["-line_10 = 10\n+total = 10\n"]


words = st.sampled_from(["a\n", "bb\n", "ccc\n", "dddd\n", "\n"])
texts = st.lists(words, max_size=8).map("".join)


@given(st.lists(words, max_size=8), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), texts), max_size=6))
def test_an_edit_turns_the_lines_that_were_into_the_lines_that_are(
    start: list[str], made: list[tuple[int, int, str]]
) -> None:
    desk = Desk()
    document = desk.open(text="".join(start))
    for first, count, text in made:
        desk.put(first, first + count, text)  # past the end is the end
    after, before = document.text, "".join(start)
    desk.doing.at(THERE, 0)
    assert len(desk.doing.edits) <= 1, "they are all near one another"
    for edit in desk.doing.edits:
        found = re.finditer(f"(?={re.escape(edit.before)})", before)
        results = [before[: at.start()] + edit.after + before[at.start() + len(edit.before) :] for at in found]
        assert after.strip("\n") in [text.strip("\n") for text in results]
    if not desk.doing.edits:
        assert before.split() == after.split() or len(after) > 100


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), texts), max_size=40))
def test_no_edit_is_longer_or_older_or_one_more_than_agreed(made: list[tuple[int, int, str]]) -> None:
    desk = Desk()
    desk.open()
    for first, count, text in made:
        desk.put(first, first + count, text)
    desk.doing.at(THERE, 0)
    assert len(desk.doing.edits) <= MOST_EDITS
    assert all(max(edit.before.count("\n"), edit.after.count("\n")) <= MOST_LINES + 1 for edit in desk.doing.edits)
    desk.now_s += FORGET_AFTER_S + 1
    assert desk.shown(EDIT) == [] and desk.doing.edits == []


# ── what is never kept ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_no_model_may_see_leaves_no_trace(desk: Desk):
    desk.open(SECRET, "password = x\n" * 30)
    desk.put(3, 4, "password = y\n", SECRET)
    desk.doing.viewed(desk.documents.get(SECRET), 0, 20)
    desk.doing.copied("password = z", SECRET)
    assert "password" not in desk.held()
    desk.doing.at(HERE, 0)
    assert [desk.shown(source) for source in (EDIT, VIEWED, COPIED)] == [[], [], []]


def test_a_file_that_no_model_may_see_any_more_is_not_shown(desk: Desk):
    desk.open()
    desk.put(10, 11, "total = 10\n")
    desk.doing.viewed(desk.documents.get(HERE), 0, 20)
    desk.doing.at(THERE, 0)
    desk.off.add(HERE)
    assert desk.shown(EDIT, THERE) == desk.shown(VIEWED, THERE) == []


def test_a_key_that_was_taken_out_of_the_code_is_kept_nowhere(desk: Desk):
    document = desk.open(text=LINES + f'KEY = "{AWS_KEY}"\n')
    desk.put(60, 61, 'KEY = os.environ["KEY"]\n')
    desk.doing.at(THERE, 0)
    desk.put(0, 1, f'KEY = "{AWS_KEY}"\n')
    desk.doing.at(THERE, 0)
    desk.doing.viewed(document, 0, 5)
    desk.doing.copied(AWS_KEY)
    assert AWS_KEY not in desk.held()


def test_a_bug_in_here_costs_an_edit_and_never_the_text(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    document = desk.open()
    monkeypatch.setattr(module, "UnderWay", None)
    desk.put(10, 11, "total = 10\n")
    assert document.text == LINES.replace("line_10 = 10\n", "total = 10\n")


# ── looked at, copied ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_looked_at_is_shown_in_other_files_its_middle_where_it_is_long(desk: Desk):
    document = desk.open()
    desk.doing.viewed(document, 0, 60)
    (seen,) = desk.shown(VIEWED, THERE)
    assert seen.startswith("line_18 ") and seen.count("\n") == 24
    assert desk.shown(VIEWED, HERE) == []


def test_scrolling_along_keeps_one_region(desk: Desk):
    document = desk.open()
    for first in range(0, 20, 4):
        desk.doing.viewed(document, first, first + 20)
    assert len(desk.shown(VIEWED, THERE)) == 1


def test_copied_text_is_shown_the_last_of_it(desk: Desk):
    for text in ("first_thing()", "second_thing()", "first_thing()", "third_thing()\n"):
        desk.doing.copied(text)
    assert desk.shown(COPIED) == ["first_thing()\n", "third_thing()\n"]


@pytest.mark.parametrize("text", ["", "x", " \n" * 20, "word " * 1000, "line\n" * 100])
def test_a_word_or_a_book_is_not_kept_when_copied(desk: Desk, text: str):
    desk.doing.copied(text)
    assert desk.shown(COPIED) == []


def test_a_text_far_too_long_is_not_even_looked_through(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    document, looked_through = desk.open(), []
    desk.put(3, 4, f"line_3 = {'x' * 20_000}\n")
    monkeypatch.setattr(module, "clean", lambda text: looked_through.append(len(text)) or text)
    desk.doing.at(THERE, 0)  # the edit is done
    desk.doing.viewed(document, 0, 5)
    desk.doing.copied("word " * 10_000)
    assert looked_through == [] and desk.shown(EDIT) + desk.shown(VIEWED, THERE) + desk.shown(COPIED) == []


def test_only_the_language_at_hand_is_shown(desk: Desk):
    document = desk.open(THERE, language="typescript")
    desk.put(10, 11, "total = 10\n", THERE)
    desk.doing.viewed(document, 0, 20)
    desk.doing.at(HERE, 0)
    assert desk.shown(EDIT) == desk.shown(VIEWED) == []
    assert len(desk.shown(EDIT, HERE, "typescript")) == 1


def test_the_newest_is_worth_most_and_stands_last(desk: Desk):
    desk.open()
    for line in (5, 25, 45):
        desk.put(line, line + 1, f"changed_{line}\n")
    desk.doing.at(THERE, 0)
    chunks = desk.doing.candidates(ChunkPlace(HERE, "here.py", None, "python", "", ""))
    assert [chunk.score for chunk in chunks] == sorted(chunk.score for chunk in chunks)
    assert "changed_45" in chunks[-1].text and chunks[-1].score == 1.0
