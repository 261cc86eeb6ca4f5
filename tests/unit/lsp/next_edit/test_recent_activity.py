"""Recent edits: commits, limits, and secrets that are never recorded."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.next_edit import recent_activity as module
from speclsp.lsp.next_edit.recent_activity import APART_LINES, FORGET_AFTER_S, MAX_EDITS, MAX_LINES, RecentActivity

HERE, THERE, SECRET = "file:///project/here.py", "file:///project/there.py", "file:///project/.env"
LINES = "".join(f"line_{n} = {n}\n" for n in range(60))
AWS_KEY = "AKIA" + "Q7ZB3XK5M2VN8LPT"


class Desk:
    """A user's open documents, their recent activity, and a fake clock."""

    def __init__(self) -> None:
        self.kept_back: set[str] = {SECRET}
        self.now_s = 0.0
        self.documents = Documents()
        self.activity = RecentActivity(kept_back=lambda uri: uri in self.kept_back, clock=lambda: self.now_s)
        self.documents.follow_edits(self.activity.edited)

    def open(self, uri: str = HERE, text: str = LINES, language: str = "python") -> Document:
        return self.documents.open(uri, language, 1, text)

    def put(self, first: int, end: int, text: str, uri: str = HERE) -> None:
        """Replace the lines from `first` up to, but not including, `end` with `text`."""
        span = {"start": {"line": first, "character": 0}, "end": {"line": end, "character": 0}}
        self.documents.change(uri, None, [{"range": span, "text": text}], "utf-16")

    def recent(self) -> list[str]:
        """The recent edits, each as its removed and its added lines."""
        return [signed("-", edit.before) + signed("+", edit.after) for edit in self.activity.recent()]

    def commit(self) -> None:
        for uri in (HERE, THERE, SECRET):
            self.activity.closed(uri)

    def committed(self) -> int:
        """Number of the committed edits."""
        return len(self.activity.edits)

    def recorded(self) -> str:
        """All recorded text, for any purpose."""
        return repr(self.activity)


def signed(sign: str, text: str) -> str:
    return "".join(sign + line for line in text.splitlines(keepends=True))


@pytest.fixture
def desk() -> Desk:
    return Desk()


# ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edit_is_known_before_it_is_committed(desk: Desk):
    desk.open()
    desk.put(10, 11, "total = 10\n")
    assert desk.recent() == ["-line_10 = 10\n+total = 10\n"] and desk.committed() == 0


def test_an_edit_is_committed_when_the_next_one_is_made_elsewhere(desk: Desk):
    desk.open()
    desk.open(THERE)
    desk.put(10, 11, "total = 10\n")
    desk.put(10 + APART_LINES, 11 + APART_LINES, "")
    assert desk.committed() == 0, "near each other"
    desk.put(40, 41, "")
    assert desk.committed() == 1
    desk.put(0, 0, "import os\n", THERE)
    assert desk.committed() == 2
    assert desk.recent()[1:] == ["-line_41 = 41\n", "+import os\n"]


def test_an_edit_is_committed_and_kept_when_its_file_is_closed(desk: Desk):
    desk.open()
    desk.put(10, 11, "total = 10\n")
    desk.documents.close(HERE)
    desk.activity.closed(HERE)
    assert desk.recent() == ["-line_10 = 10\n+total = 10\n"] and desk.committed() == 1


# ── the file of a document ────────────────────────────────────────────────────────────────────────────────────────────

SAVED = ["-line_3 = 3\n+total = 3\n"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "here.py"


def recent_after_reload(desk: Desk, uri: str) -> list[str]:
    document = desk.documents.get(uri)
    assert document is not None
    asyncio.run(desk.activity.forget_reload(document))
    return desk.recent()


def save_an_edit(desk: Desk, file: Path) -> str:
    """Edit line 3 and save it. The result is the document's URI."""
    uri = file.as_uri()
    desk.activity.opened(desk.open(uri))
    desk.put(3, 4, "total = 3\n", uri)
    file.write_text(LINES.replace("line_3 = 3\n", "total = 3\n"), encoding="utf-8")
    desk.activity.saved(uri)
    return uri


@pytest.mark.parametrize("line", [3, 4, 50])
def test_a_saved_edit_is_kept_after_a_key_that_was_undone(desk: Desk, file: Path, line: int):
    uri = save_an_edit(desk, file)
    document = desk.documents.get(uri)
    assert document is not None
    (old,) = document.lines(line, line + 1)
    desk.put(line, line + 1, f"x{old}", uri)
    desk.put(line, line + 1, old, uri)
    assert recent_after_reload(desk, uri) == SAVED


@pytest.mark.parametrize("way", ["ranges", "whole text"])
def test_a_return_to_the_saved_text_forgets_only_the_unsaved_edits(desk: Desk, file: Path, way: str):
    uri = save_an_edit(desk, file)
    desk.put(20, 21, "a = 20\n", uri)
    desk.put(50, 51, "b = 50\n", uri)
    if way == "ranges":
        desk.put(50, 51, "line_50 = 50\n", uri)
        desk.put(20, 21, "line_20 = 20\n", uri)
    else:
        desk.documents.change(uri, None, [{"text": file.read_text(encoding="utf-8")}], "utf-16")
    assert recent_after_reload(desk, uri) == SAVED


# ── contents of an edit ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("versions", "recent"),
    [
        (["total = 10\n"], ["-line_10 = 10\n+total = 10\n"]),
        (["total_of_all = 10\n", "line_10 = 10\n"], []),
        (["total_of_all = 10\n", "total_of_some = 11\n"], ["-line_10 = 10\n+total_of_some = 11\n"]),
        (["    line_10 = 10\n\n"], []),
    ],
    ids=["changed", "undone", "continued", "only blanks"],
)
def test_edits_of_one_line_are_one_edit_of_its_words(desk: Desk, versions: list[str], recent: list[str], newline: str):
    desk.open(text=LINES.replace("\n", newline))
    for version in versions:
        desk.put(10, 11, version.replace("\n", newline))
        desk.commit()
    assert desk.recent() == recent


def test_the_same_edit_made_twice_is_one_edit(desk: Desk):
    desk.open(text="old(1)\n" + LINES + "old(1)\n")
    desk.put(0, 1, "new(1)\n")
    desk.put(61, 62, "new(1)\n")
    desk.commit()
    assert desk.recent() == ["-old(1)\n+new(1)\n"] and desk.activity.edits[0].times == 2


def test_a_long_paste_or_a_branch_switch_is_no_edit(desk: Desk):
    desk.open()
    desk.put(10, 11, "pasted\n" * (MAX_LINES + 1))
    desk.commit()
    desk.documents.change(HERE, None, [{"text": "another branch\n" * 100}], "utf-16")
    desk.commit()
    assert desk.recent() == []
    assert "pasted" not in desk.recorded() and "branch" not in desk.recorded()


words = st.sampled_from(["a\n", "bb\n", "ccc\n", "dddd\n", "\n"])
texts = st.lists(words, max_size=8).map("".join)


@given(st.lists(words, max_size=8), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), texts), max_size=6))
def test_an_edit_applied_to_the_old_text_gives_the_new_text(
    start: list[str], changes: list[tuple[int, int, str]]
) -> None:
    desk = Desk()
    document = desk.open(text="".join(start))
    for first, count, text in changes:
        desk.put(first, first + count, text)  # past the end is the end
    after, before = document.text, "".join(start)
    desk.commit()
    assert len(desk.activity.edits) <= 1, "all of them are near each other"
    for edit in desk.activity.edits:
        matches = re.finditer(f"(?={re.escape(edit.before)})", before)
        results = [
            before[: match.start()] + edit.after + before[match.start() + len(edit.before) :] for match in matches
        ]
        assert after.strip("\n") in [text.strip("\n") for text in results]
    if not desk.activity.edits:
        assert before.split() == after.split() or len(after) > 100


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), texts), max_size=40))
def test_edits_stay_within_the_limits_of_number_length_and_age(changes: list[tuple[int, int, str]]) -> None:
    desk = Desk()
    desk.open()
    for first, count, text in changes:
        desk.put(first, first + count, text)
    desk.commit()
    assert len(desk.activity.edits) <= MAX_EDITS
    assert all(max(edit.before.count("\n"), edit.after.count("\n")) <= MAX_LINES + 1 for edit in desk.activity.edits)
    desk.now_s += FORGET_AFTER_S + 1
    assert desk.recent() == [] and desk.activity.edits == []


# ── text that is never recorded ───────────────────────────────────────────────────────────────────────────────────────


def test_a_secret_file_is_never_recorded(desk: Desk):
    desk.open(SECRET, "password = x\n" * 30)
    desk.put(3, 4, "password = y\n", SECRET)
    assert "password" not in desk.recorded()
    desk.commit()
    assert desk.recent() == []


def test_edits_of_a_file_that_becomes_hidden_are_left_out(desk: Desk):
    desk.open()
    desk.put(10, 11, "total = 10\n")
    desk.commit()
    desk.kept_back.add(HERE)
    assert desk.recent() == []


def test_a_key_removed_from_the_code_is_not_recorded(desk: Desk):
    desk.open(text=LINES + f'KEY = "{AWS_KEY}"\n')
    desk.put(60, 61, 'KEY = os.environ["KEY"]\n')
    desk.commit()
    desk.put(0, 1, f'KEY = "{AWS_KEY}"\n')
    desk.commit()
    assert AWS_KEY not in desk.recorded()


def test_an_internal_error_costs_an_edit_and_never_the_document(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    document = desk.open()
    monkeypatch.setattr(module, "PendingEdit", None)
    desk.put(10, 11, "total = 10\n")
    assert document.text == LINES.replace("line_10 = 10\n", "total = 10\n")
