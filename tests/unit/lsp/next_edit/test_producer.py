"""Laws of the deterministic producer: what is learned, what is offered, and what never is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.lsp.edited_document import AMPLE_MS, EditDesk

from speclsp.lsp.next_edit.changes.recent_changes import Change
from speclsp.lsp.next_edit.changes.shapes.shape_places import line_change
from speclsp.lsp.next_edit.changes.substitutions import LINES, Edit
from speclsp.lsp.next_edit.producer import Proposal
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.parser import SyntaxParser

URI = "file:///project/app.py"
AWS_KEY = "AKIA" + "Q7ZB3XK5M2VN8LPT"
CALL = "    client.open_session(address)\n"
KEYS = "".join(f"read_{n} = lib.read(open_file, {n})\n" for n in range(5))


class Desk(EditDesk):
    """A document that is changed on named lines."""

    def change(self, old: str, new: str, line: int) -> None:
        """Replace `old` on a line; the cursor stays before it."""
        start = self.offset(line, self.document.lines(line, line + 1)[0].index(old))
        self.replace(start, start + len(old), new)
        self.cursor = start


def test_whitespace_and_long_lines_teach_nothing():
    for old, new in (("a = 1", "a  =  1"), ("value = 1" + " + 1" * 200, "other = 1" + " + 1" * 200)):
        assert Edit(URI, "python", f"{old}\n", f"{new}\n").changed_lines == ()


@given(st.lists(st.tuples(st.sampled_from(["Node", "next_of", "b"]), st.sampled_from("*&(=."), st.integers(0, 8))))
def test_moved_blanks_have_no_shape(pieces: list[tuple[str, str, int]]):
    old = "".join(f"{name} {mark} " for name, mark, _ in pieces)
    new = "".join(f"{name}{' ' * (at & 1)}{mark}{' ' * (at >> 1)}" for name, mark, at in pieces)
    assert line_change(Change(old, new, 0, 2)) is None


def test_a_shape_is_offered_at_the_next_place_after_its_second_change():
    desk = Desk(KEYS)
    assert desk.propose() == Reason.NO_RECENT_EDIT
    desk.change("open_file", "shared.file", 0)
    assert desk.propose() == Reason.NO_REPEAT
    desk.change("open_file", "shared.file", 1)
    proposal = desk.propose()
    assert isinstance(proposal, Proposal)
    assert desk.applied(proposal).split("\n")[2] == "read_2 = lib.read(shared.file, 2)"
    assert desk.document.text[proposal.start : proposal.end] == "open_file"
    assert desk.propose(budget_ms=-1.0) == Reason.OUT_OF_TIME


def test_the_same_line_is_offered_wherever_it_stands_once_the_cursor_has_left_it():
    text = CALL + "    print(port)\n" + CALL
    desk = Desk(text)
    desk.change("address)", "address, retry)", 0)
    assert desk.propose() == Reason.NO_REPEAT, "the line may still be typed"
    desk.cursor = desk.offset(1)
    proposal = desk.propose()
    assert isinstance(proposal, Proposal) and proposal.kind == LINES
    assert desk.applied(proposal) == text.replace("address)", "address, retry)")


def test_one_change_of_tokens_is_no_rule():
    desk = Desk(KEYS)
    desk.change("open_file", "shared.file", 0)
    desk.cursor = desk.offset(2)
    assert desk.propose() == Reason.NO_REPEAT


def test_a_place_that_the_user_passed_means_that_the_change_is_no_rule():
    desk = Desk(KEYS)
    for line in (0, 3):
        desk.change("open_file", "shared.file", line)
    assert desk.propose() == Reason.NO_REPEAT


def test_code_is_not_changed_in_a_comment_or_string():
    first, second, *_ = KEYS.splitlines(keepends=True)
    desk = Desk(first + second + "# see lib.read(open_file, 1)\ns = '(open_file, 2)'\n")
    for line in (0, 1):
        desk.change("open_file", "shared.file", line)
    assert desk.propose() in (Reason.NO_REPEAT, Reason.UNLIKELY)


def test_an_edit_never_adds_a_secret():
    desk = Desk("".join(f"connect(some_key, {n})\n" for n in range(4)))
    for line in (0, 1):
        desk.change("some_key", f"'{AWS_KEY}'", line)
    assert isinstance(desk.propose(), str)


NAMES = st.sampled_from(["alpha", "beta", "gamma", "open_file", "total", "items"])
LINES_OF_CODE = st.builds("{} = call({}, {})".format, NAMES, NAMES, NAMES)
LINES_OF_CODE |= st.builds("if {}: {}()".format, NAMES, NAMES)
NEW_TEXT = st.sampled_from(["delta", "shared.file", "wrap(item)", "", "(", "'text'", "x\ny = 1", "  "])


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES_OF_CODE, min_size=4, max_size=12), NAMES, NEW_TEXT, st.sampled_from(["\n", "\r\n"]))
def test_an_applied_edit_parses_no_worse_changes_words_and_undoes_nothing(
    code: list[str], old: str, new: str, newline: str
):
    text = newline.join([*code, ""])
    desk = Desk(text)
    lines = [n for n, line in enumerate(code) if old in line][:2]
    for line in lines:
        if old in desk.document.lines(line, line + 1)[0]:
            desk.change(old, new, line)
    before, proposal = desk.document.text, desk.propose()
    if isinstance(proposal, Proposal):
        after = desk.applied(proposal)
        assert after.split() != before.split() and after != text
        trees = [SyntaxParser().parse("python", version, AMPLE_MS) for version in (before, after)]
        assert trees[0] is not None and trees[1] is not None
        assert trees[1].count_errors() <= trees[0].count_errors()
        assert after.count("\n") - before.count("\n") <= 20


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300), st.text(max_size=30), st.text(max_size=30), st.integers(0, 300))
def test_any_text_and_any_edits_are_survived(text: str, old: str, new: str, cursor: int):
    desk = Desk(text)
    desk.document.apply([{"text": text + old}], "utf-32")
    desk.document.apply([{"text": text + new}], "utf-32")
    desk.cursor = min(cursor, desk.document.characters)
    assert isinstance(desk.propose(), Proposal | str)
