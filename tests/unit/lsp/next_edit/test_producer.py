"""Laws of the deterministic producer: what is learned, what is offered, and what never is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lsp.edited_document import AMPLE_MS, EditDesk

from benchmarks.editor import next_edit as bench
from benchmarks.editor.edit_replay.replayed_file import Rules
from benchmarks.quality import edits
from speclsp.lsp.next_edit.changes.substitutions import ARGUMENT, LINES, PHRASE, RENAME, RecentEdit, Substitution, learn
from speclsp.lsp.next_edit.producer import Producer, Proposal
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.parser import SyntaxParser

URI = "file:///work/app.py"
AWS_KEY = "AKIA" + "Q7ZB3XK5M2VN8LPT"
KEYS = "".join(f"read_{n} = lib.read(open_file, {n})\n" for n in range(5))


class Desk(EditDesk):
    """A document that is changed on named lines."""

    def change(self, old: str, new: str, line: int) -> None:
        """Replace `old` on a line; the cursor stays before it."""
        start = self.offset(line, self.document.lines(line, line + 1)[0].index(old))
        self.replace(start, start + len(old), new)
        self.cursor = start


def learned(*lines: tuple[str, str]) -> set[Substitution]:
    return set(learn([RecentEdit(URI, (old,), (new,)) for old, new in lines]).substitutions)


@pytest.mark.parametrize(
    ("old", "new", "substitution"),
    [
        ("total = add(price)", "total = sum_of(price)", Substitution(RENAME, "add", "sum_of")),
        ("x = open_file", "x = shared.file", Substitution(PHRASE, "open_file", "shared.file")),
        ("y = fetch(a)", "y = fetch(a, timeout=5)", Substitution(ARGUMENT, "", "timeout=5", callee="fetch")),
        (
            "do_it(now_or_never)",
            "log(now_or_never, 3)",
            Substitution(LINES, "do_it(now_or_never)", "log(now_or_never, 3)"),
        ),
    ],
)
def test_a_changed_line_teaches_its_substitution(old: str, new: str, substitution: Substitution):
    assert substitution in learned((old, new))


def test_a_change_that_was_reversed_teaches_nothing():
    assert Substitution(RENAME, "price", "cost") not in learned(("a = price", "a = cost"), ("b = cost", "b = price"))


def test_whitespace_and_long_lines_teach_nothing():
    assert learned(("a = 1", "a  =  1")) == set()
    assert learned(("value = 1" + " + 1" * 200, "other = 1" + " + 1" * 200)) == set()


@given(st.lists(st.tuples(st.sampled_from(["Node", "next_of", "b"]), st.sampled_from("*&(,)=."), st.integers(0, 8))))
def test_moved_blanks_teach_at_most_blanks(pieces: list[tuple[str, str, int]]):
    blanks = [(" " * (at & 1), " " * (at >> 1 & 1), " " * (at >> 2 & 1)) for *_, at in pieces]
    old = "".join(
        f"{name}{before}{mark}{after}" for (name, mark, _), (before, after, _) in zip(pieces, blanks, strict=True)
    )
    new = "".join(f"{name}{mark}{after}" for (name, mark, _), (*_, after) in zip(pieces, blanks, strict=True))
    for substitution in learned((old, new)):
        assert substitution.old.replace(" ", "") == substitution.new.replace(" ", "")


def test_a_change_beside_blanks_that_move_is_learned():
    taught = learned(("Node *first = root;", "Node* first = top_node;"))
    assert Substitution(RENAME, "root", "top_node") in taught
    assert not any(substitution.old == "Node" for substitution in taught)


def test_without_an_edit_and_after_one_change_there_is_no_edit():
    desk = Desk(KEYS)
    assert desk.propose() == Reason.NO_RECENT_EDIT
    desk.change("open_file", "shared.file", 0)
    assert desk.propose() == Reason.NO_REPEAT


def test_after_the_second_change_the_next_place_is_offered():
    desk = Desk(KEYS)
    for line in (0, 1):
        desk.change("open_file", "shared.file", line)
    proposal = desk.propose()
    assert isinstance(proposal, Proposal)
    assert desk.applied(proposal).split("\n")[2] == "read_2 = lib.read(shared.file, 2)"
    assert desk.document.text[proposal.start : proposal.end] == "open_file"


CASE = (
    "def test_{0}(self):\n    client = Client({0})\n    client.open_session(address)\n    assert client.is_open\n\n\n"
)
CASES = "".join(map(CASE.format, ("http", "https")))


def test_a_small_change_of_a_whole_line_is_offered_after_one_time_in_like_surroundings():
    desk = Desk(CASES)
    desk.change("address)", "address, retry)", 2)
    assert desk.propose() == Reason.NO_REPEAT, "the line may still be typed"
    desk.cursor = desk.offset(3)
    proposal = desk.propose()
    assert isinstance(proposal, Proposal) and proposal.kind == LINES
    assert desk.applied(proposal) == CASES.replace("address)", "address, retry)")


FIRST = CASE.format("http")
ELSEWHERE = "for port in range(9):\n    client.open_session(address)\n    print(port)\n"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("address)", "address, retry)", FIRST + ELSEWHERE),
        ("client.open_session(address)", "self.connect_again()", CASES),
    ],
    ids=["other surroundings", "most characters changed"],
)
def test_the_same_line_is_offered_wherever_it_stands(old: str, new: str, text: str):
    desk = Desk(text)
    desk.change(old, new, 2)
    assert desk.propose() == Reason.NO_REPEAT, "the line may still be typed"
    desk.cursor = desk.offset(3)
    proposal = desk.propose()
    assert isinstance(proposal, Proposal) and desk.applied(proposal) == text.replace(old, new)


def test_a_part_of_another_line_is_unlikely_after_one_time():
    desk = Desk(FIRST + CASE.format("https").replace("address)", "address, 5)"))
    desk.change("address)", "address, retry)", 2)
    desk.cursor = desk.offset(3)
    assert desk.propose() == Reason.UNLIKELY


def test_a_place_that_the_user_passed_means_that_the_change_is_no_rule():
    desk = Desk(KEYS)
    for line in (0, 3):
        desk.change("open_file", "shared.file", line)
    assert desk.propose() == Reason.NO_REPEAT


def test_a_renamed_variable_is_offered_in_its_own_function_only():
    body = "def {0}(items):\n    count = len(items)\n    check(count)\n    return count + 1\n\n\n"
    desk = Desk(body.format("first") + body.format("second"))
    for line in (1, 2):
        desk.change("count", "total", line)
    proposal = desk.propose()
    assert isinstance(proposal, Proposal) and desk.applied(proposal).split("\n")[3] == "    return total + 1"
    desk.change("count", "total", 3)
    assert desk.propose() == Reason.NO_REPEAT


def test_a_name_is_no_rename_while_its_definition_keeps_the_old_name():
    desk = Desk("def load():\n    pass\n\n\n" + "".join(f"value_{n} = load()\n" for n in range(4)))
    for line in (4, 5):
        desk.change("load", "read", line)
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


def test_nothing_is_offered_when_the_time_is_spent():
    desk = Desk(KEYS)
    for line in (0, 1):
        desk.change("open_file", "shared.file", line)
    assert desk.propose(budget_ms=-1.0) == Reason.OUT_OF_TIME


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


def test_the_benchmark_counts_right_exact_and_quiet_states():
    before = KEYS
    after = KEYS.replace("open_file", "shared.file").replace("read_3", "other_3")
    after = "\n".join(line if n % 2 else line + "\n" for n, line in enumerate(after.split("\n")))
    count = bench.Count()
    shown = list(bench.replay("app.py", before, after, Rules(Producer(clock_s=lambda: 0.0)), count))
    assert count.shown + count.half_typed_shown == len(shown) and count.right <= count.shown
    assert count.quiet == count.quiet_states > 0
    assert count.states == len(edits.hunks(before, after)) - 1


# ── members beside their siblings ─────────────────────────────────────────────────────────────────────────────────────

CALLS = "".join(f"job_{n} = Job(\n    name='{n}',\n    retries=default_retries,\n)\n" for n in range(4))
SIBLING, MEMBER_LINE = "    retries=default_retries,\n", "    timeout=default_timeout,\n"


def with_members(text: str, *jobs: int, apart: bool = True) -> Desk:
    """A document in which the user has added the keyword to some of the calls, below the same sibling.

    `apart` false: without a commit between them, so that the additions are one edit.
    """
    desk = Desk(text)
    for job in jobs:
        line = [at for at, other in enumerate(desk.document.text.splitlines(True)) if other == SIBLING][job]
        desk.change(",", ",\n" + MEMBER_LINE.rstrip(), line)
        if apart:
            desk.activity.closed(URI)  # commits the edit
    return desk


@pytest.mark.parametrize("apart", [True, False])
def test_a_member_is_offered_beside_the_next_sibling(apart: bool):
    desk = with_members(CALLS, 0, 1, apart=apart)
    proposal = desk.propose()
    assert isinstance(proposal, Proposal) and proposal.kind == "member"
    assert desk.applied(proposal) == CALLS.replace(SIBLING, SIBLING + MEMBER_LINE, 3)


@pytest.mark.parametrize("jobs", [(0,), (0, 2), (0, 1, 2, 3)])
def test_no_member_is_offered_after_one_addition_past_a_place_left_out_or_twice(jobs: tuple[int, ...]):
    assert with_members(CALLS, *jobs).propose() == Reason.NO_REPEAT


def test_no_member_is_offered_where_it_stands_already_or_beside_a_statement():
    below = CALLS.replace(")\n", "    more=0,\n    timeout=default_timeout,\n)\n").replace(
        "    more=0,\n    timeout=default_timeout,\n", "", 2
    )
    assert with_members(below, 0, 1).propose() == Reason.NO_REPEAT
    statements = "".join(f"def f_{n}(x):\n    return compute_it(x)\n\n\n" for n in range(3))
    desk = Desk(statements)
    for line in (1, 6):
        desk.change(")", ")\n    unreachable_call(here)", line)
        desk.activity.closed(URI)  # commits the edit
    assert desk.propose() == Reason.NO_REPEAT
