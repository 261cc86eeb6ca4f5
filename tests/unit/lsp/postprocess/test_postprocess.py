"""Post-processing: the end of a suggestion, its fit with the text around it, and reasons for showing nothing."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.lsp.suggested import DEFAULT as CONFIG
from support.lsp.suggested import PARSER, applied, outcome, plan_at, plan_for, streamed
from support.rows import rows

from speclsp.config import CompletionConfig
from speclsp.lsp.documents.document import Snapshot, newline
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess import surroundings
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import hidden_characters

ROWS = rows(__file__)

LIBRARY = Path(sysconfig.get_path("stdlib"))


def complete(marked: str, output: str, language: str = "python", **options: Any) -> str | Reason:
    """The text after accepting the suggestion made of `output` at the ¦, or the reason for showing nothing."""
    plan = plan_for(marked.replace("¦", ""), marked.index("¦"), language, **options)
    if isinstance(plan, NoSuggestion):
        return plan.reason
    return outcome(marked, plan.to_suggestion(streamed(plan, output, 4)))


def reason_at(marked: str, **options: Any) -> Reason | None:
    """The reason for making no request at the ¦, if there is one."""
    plan = plan_for(marked.replace("¦", ""), marked.index("¦"), **options)
    return plan.reason if isinstance(plan, NoSuggestion) else None


def parses(text: str) -> bool:
    tree = PARSER.parse("python", text, 2000)
    return tree is not None and tree.count_errors() == 0


# ── one line or a block ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "multiline"),
    ROWS["a_block_start_gets_several_lines_and_any_other_position_one"],
)
def test_a_block_start_gets_several_lines_and_any_other_position_one(language: str, marked: str, multiline: bool):
    plan = plan_at(marked, language)
    assert plan.multiline is multiline
    several = multiline or plan.enclosed
    assert plan.max_tokens == (CONFIG.max_tokens if several else CONFIG.max_tokens_single_line)


def test_the_multiline_setting_decides_at_the_end_of_a_line():
    never, always = CompletionConfig(multiline="never"), CompletionConfig(multiline="always")
    for marked, on_always in (("def f():\n    ¦", True), ("x = ¦", True), ("x = ¦ + 1", False), ("# a ¦", False)):
        assert [plan_at(marked, config=config).multiline for config in (never, always)] == [False, on_always]


@pytest.mark.parametrize(
    ("marked", "reason"),
    [
        ("x = fo¦o", Reason.INSIDE_WORD),
        ("¦x = 1", Reason.INSIDE_WORD),
        ("x = 日¦本", Reason.INSIDE_WORD),
        ("x = 12¦_000", Reason.INSIDE_WORD),
        ("e¦\u0301", Reason.INSIDE_WORD),
        ("\0\1\2 ¦", Reason.BINARY),
    ],
)
def test_no_request_is_made_where_no_suggestion_could_be_shown(marked: str, reason: Reason):
    assert reason_at(marked) is reason


def test_every_reason_has_a_meaning_of_one_line():
    for reason in Reason:
        assert reason.meaning and "\n" not in reason.meaning
        assert reason == reason.value and reason.value.isidentifier()


# ── the end of a suggestion ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    ROWS["a_suggestion_ends_with_its_line_or_its_block"],
)
def test_a_suggestion_ends_with_its_line_or_its_block(language: str, marked: str, output: str, result: str):
    assert complete(marked, output, language) == result


@pytest.mark.parametrize(("language", "marked", "output", "result"), ROWS["a_block_ends_after_a_jump"])
def test_a_block_ends_after_a_jump(language: str, marked: str, output: str, result: str):
    assert complete(marked, output, language) == result


def test_the_stream_is_closed_as_soon_as_more_text_would_change_nothing():
    plan = plan_at("def f(x):\n    ¦")
    assert not plan.finished("return x")
    assert not plan.finished("return x\n")
    assert not plan.finished("return x\n    ")
    assert plan.finished("return x\n\n")
    assert plan.finished("return x\nd")
    line = plan_at("x = ¦")
    assert not line.finished("1") and not line.finished("\n") and line.finished("1\n")


def test_a_block_has_twelve_lines_at_most():
    text = complete("def f(x):\n    ¦", "".join(f"a{i * i} = {i}\n    " for i in range(40)))
    assert isinstance(text, str) and text.count("\n") == 12 and text.endswith("a121 = 11")


def test_a_truncated_last_line_is_dropped_from_a_block():
    plan = plan_at("def f(x):\n    ¦")
    truncated = "y = x.strip()\n    return y.re"
    assert plan.to_suggestion(truncated, complete=False) == Suggestion("y = x.strip()", 14, 14)
    assert plan.to_suggestion(truncated) == Suggestion(truncated, 14, 14)
    assert plan.to_suggestion("y = x.st", complete=False) == NoSuggestion(Reason.CUT_SHORT)


@pytest.mark.parametrize(
    ("marked", "output", "result"),
    [
        ("def f():\n    ¦", "a = b()\n    " * 9, "def f():\n    a = b()"),
        ("def f():\n    ¦", "a = b()\n    c = d()\n    " * 5, "def f():\n    a = b()\n    c = d()"),
        ("x = [¦", "0, 1, " * 30, Reason.LOOPS),
        ("x = ¦", "very very very very very very very very very very very very very good\n", Reason.LOOPS),
        ("# ¦", "-" * 76 + "\n", "# " + "-" * 76),
    ],
)
def test_a_model_that_repeats_itself_is_stopped(marked: str, output: str, result: str | Reason):
    assert complete(marked, output) == result


@pytest.mark.parametrize("output", [")" * 8000, ") " * 4000, ")]}\"'" * 1600, ")" * 4000 + " " * 4000 + "x"])
@pytest.mark.parametrize("language", ["python", "typescript"])
def test_endless_closing_brackets_cost_little_time(language: str, output: str, monkeypatch: pytest.MonkeyPatch):
    lengths: list[int] = []
    pair = surroundings.pair
    monkeypatch.setattr(
        surroundings, "pair", lambda text, by, **kinds: lengths.append(len(text)) or pair(text, by, **kinds)
    )
    plan = plan_at("x = f(a¦", language)
    lengths.clear()
    plan.to_suggestion(output)
    assert len(lengths) < 400, "of some milliseconds each"


# ── fit with the text around the cursor ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    ROWS["nothing_right_of_the_cursor_is_repeated_or_closed_twice"],
)
def test_nothing_right_of_the_cursor_is_repeated_or_closed_twice(
    language: str, marked: str, output: str, result: str | Reason
):
    assert complete(marked, output, language) == result


@pytest.mark.parametrize(("marked", "output", "result"), ROWS["repeated_and_trivial_text_is_not_shown"])
def test_repeated_and_trivial_text_is_not_shown(marked: str, output: str, result: str | Reason):
    assert complete(marked, output) == result


def test_with_multiline_never_no_suggestion_has_a_second_line():
    never = CompletionConfig(multiline="never")
    assert complete("x = foo(1)¦", "\ny = 2\n", config=never) is Reason.DOES_NOT_FIT
    assert complete("def f():¦", " return 1\n    x", config=never) == "def f(): return 1"


# ── the file's own style ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_newlines_are_those_of_the_file(end: str):
    text = complete("x = 1\ndef f():\n    ¦\n".replace("\n", end), "a = 1\n    return a\n")
    assert text == "x = 1\ndef f():\n    a = 1\n    return a\n".replace("\n", end)


def test_the_indent_follows_the_tabs_or_spaces_of_the_file():
    assert complete("class A:\n\tdef f(x):¦", "\n        y = x\n        return y\n") == (
        "class A:\n\tdef f(x):\n\t\ty = x\n\t\treturn y"
    )
    assert complete("if a:\n  if b:\n    c()\n  if d:¦", "\n\t\te()\n\t\tf()\n") == (
        "if a:\n  if b:\n    c()\n  if d:\n    e()\n    f()"
    )
    mixed = "if a:\n\tb()\nif c:\n    d()\n    e()\nif f:¦"
    assert complete(mixed, "\n\tg()\n") == mixed.replace("¦", "") + "\n\tg()", "no style to follow"


def test_trailing_blanks_are_dropped_unless_text_follows():
    assert complete("x = ¦", "y  \n") == "x = y"
    assert complete("x = ¦+ 1", "y \n") == "x = y + 1"


# ── the echo pair ────────────────────────────────────────────────────────────────────────────────────────────────────

ECHO = "E:1a2b3c4d:5e6f7a8b"


@given(st.text(max_size=60), st.data())
def test_the_text_of_the_echo_pair_is_never_changed(text: str, data: st.DataObject):
    cursor = data.draw(st.integers(0, len(text)))
    snapshot = Snapshot("file:///p/a", "python", 1, text, cursor)
    plan = postprocess.plan(snapshot, None, CONFIG, verbatim=True)
    assert isinstance(plan, SuggestionPlan)
    assert not any(plan.finished(ECHO[:end]) for end in range(len(ECHO) + 1))
    assert plan.to_suggestion(ECHO) == Suggestion(ECHO, cursor, cursor)


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

LANGUAGES = ["python", "javascript", "c", "ruby", "bash", "yaml", "html", "lua", "plaintext", "go"]
scraps = st.sampled_from(
    [
        *("def f(x):", "if x:", "    ", "\t", "return y", "{", "}", "(", ")", "[", "]", '"', "'", "x = ", "foo"),
        *("bar(", ", ", ";", ":", "end", "do", "then", "# c", "// c", "/* ", "*/", "`", '"""', "\n", "\n    "),
        *("\n\n", "\n\t", "</div>", "<div>", "- ", "else", "é", "日本", "\U0001f600", "\u202e", "\u200b"),
        *("<|fim_middle|>", "\\", "0, "),
    ]
)
codes = st.lists(scraps, max_size=30).map("".join)


@settings(max_examples=600)
@given(
    codes,
    codes,
    codes,
    st.sampled_from(LANGUAGES),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["auto", "never", "always"]),
    st.booleans(),
    st.integers(1, 6),
)
def test_any_generated_text_becomes_a_valid_suggestion_or_none(
    before: str, after: str, output: str, language: str, end: str, multiline: str, with_tree: bool, step: int
):
    text, cursor = (before + after).replace("\n", end), len(before.replace("\n", end))
    plan = plan_for(text, cursor, language, CompletionConfig(multiline=multiline), tree=with_tree)
    if isinstance(plan, NoSuggestion):
        return
    suggestion = plan.to_suggestion(output)
    assert plan.to_suggestion(streamed(plan, output, step)) == suggestion, "closing the stream early costs nothing"
    if isinstance(suggestion, NoSuggestion):
        return
    assert suggestion.start == cursor <= suggestion.end
    assert not {"\r", "\n"} & set(text[suggestion.start : suggestion.end]), "the range stays on the cursor's line"
    assert {*newline(text)} >= {*suggestion.text} & {"\r", "\n"}, "the file's own newlines"
    for character in set(suggestion.text) - {"\r"}:
        assert not hidden_characters.NEVER.match(character)
        assert character in text or not hidden_characters.SOMETIMES.match(character)
    assert "<|fim_middle|>" in text or "<|fim_middle|>" not in suggestion.text
    assert suggestion.text.strip()
    assert multiline != "never" or "\n" not in suggestion.text
    assert plan.to_suggestion(suggestion.text + "\n\n") == suggestion, "cleaning what is clean changes nothing"


words = st.lists(st.sampled_from(["a", "foo", "x1", "+", "*", "=", ".b", "[0]", "(y)", '"s"']), min_size=1, max_size=5)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["a(1);", "b.c();", "if (d) {", "}", "e = [f];", "return g;"]), min_size=1, max_size=8),
    st.integers(1, 8),
    st.sampled_from(["", "\n", "\n  }\n", "\n}\n\n", "\n}", "\n  )", "\n  }\n});\n", "\n  ]"]),
    st.booleans(),
)
# With the bracket dropped, the repeated lines become the end of the text.
@example(["a(1);", "b.c();"], 2, "\n}\n\n", False)
def test_lines_below_the_cursor_are_not_repeated_before_closing_brackets(
    below: list[str], count: int, closed: str, own: bool
):
    head = "class F {\n  m() {\n    "
    text = head + "".join(f"\n      {line}" for line in below) + "\n    })\n  }\n}\n"
    plan = plan_for(text, len(head), "javascript")
    assert isinstance(plan, SuggestionPlan)
    repeated = below[:count]
    suggestion = plan.to_suggestion("\n    ".join([*(["own(2);"] if own else []), *repeated]) + closed)
    if isinstance(suggestion, Suggestion):
        lines = [line.strip() for line in suggestion.text.split("\n")]
        repeated_lengths = [length for length in range(1, len(below) + 1) if lines[-length:] == below[:length]]
        assert all(set(below[:length]) == {"}"} for length in repeated_lengths), suggestion


@settings(max_examples=300)
@given(words, words, st.sampled_from([")", "]", "}", '"', ");", "", " + 1", ", b)", "):", " else y"]))
@example(["foo"], ["(y)"], ")")
def test_the_rest_of_the_line_is_not_repeated(head: list[str], middle: list[str], rest: str):
    opener = {")": "(", "]": "[", "}": "{", '"': '"', ",": "("}.get(rest[:1], "")
    line, truth = "v = " + " ".join(head) + opener, " ".join(middle)
    assume(any(character.isalnum() for character in truth) and rest.strip() not in truth)
    assume(
        not any(truth.endswith(rest[:length].rstrip()) for length in range(1, len(rest)) if rest[:length].strip(" )]}"))
    )
    is_valid = parses(f"{line}{truth}{rest}\nnext()\n")  # if not, the syntax check could reject the true text
    plan = plan_for(line + rest + "\nnext()\n", len(line), tree=is_valid)
    assert isinstance(plan, SuggestionPlan)
    for text in (truth, truth + rest, truth + rest + "\n", truth + rest + "\nnext()\n"):
        suggestion = plan.to_suggestion(text)
        if isinstance(suggestion, NoSuggestion):
            assert suggestion.reason in (Reason.LOOPS, Reason.TRIVIAL)
        else:
            assert applied(line + rest, suggestion).split() == (line + truth + rest).split()


# ── real text ────────────────────────────────────────────────────────────────────────────────────────────────────────

MODULES = """
argparse bisect calendar cmd codecs configparser contextlib copy csv difflib dis enum fileinput fractions ftplib
functools getopt glob gzip heapq imaplib inspect ipaddress mailbox optparse pathlib pdb pickle platform plistlib pprint
queue random sched shelve shlex shutil socket statistics string subprocess tarfile tempfile textwrap threading tokenize
traceback types typing uuid wave weakref zipfile
"""
SOURCES = [
    file.read_text("utf-8")
    for name in MODULES.split()
    if (file := LIBRARY / f"{name}.py").exists()  # a package in some versions of Python
]


def hole(source: str, start: int, end: int) -> str | None:
    """The text after completing a hole in real code, when the model's output is the original text from there on."""
    rest, output = source[:start] + source[end:], source[start : start + 800]
    plan = plan_for(rest, start)
    if isinstance(plan, NoSuggestion):
        return None
    suggestion = plan.to_suggestion(streamed(plan, output, 4))
    if isinstance(suggestion, NoSuggestion) or suggestion != plan.to_suggestion(output):
        return None
    return applied(rest, suggestion)


@pytest.mark.slow
def test_the_true_text_survives_to_the_end_of_the_line(soak: bool):
    rng, survived, tries = random.Random(1), 0, 200 if soak else 80
    for _ in range(tries):
        source = rng.choice(SOURCES)
        rows = [row for row in source.split("\n") if len(row.strip()) >= 8 and row.strip()[0] != "#"]
        row = rng.choice(rows)
        row_start = source.index(row)
        start = row_start + rng.choice(
            [len(row) - len(row.lstrip()), rng.randrange(len(row) - len(row.lstrip()), len(row) - 3)]
        )
        result = hole(source, start, row_start + len(row))
        survived += result is not None and result[row_start:].split("\n")[0].rstrip() == row.rstrip()
    assert survived >= 0.96 * tries


# ── eagerness ────────────────────────────────────────────────────────────────────────────────────────────────────────

LOW, HIGH = CompletionConfig(eagerness="low"), CompletionConfig(eagerness="high")


def test_low_eagerness_suggests_nothing_in_mid_line_where_medium_does():
    assert reason_at("total = ¦ + tax\n") is None
    assert reason_at("total = ¦ + tax\n", config=LOW) is Reason.MID_LINE
    assert reason_at("print(¦)\n", config=LOW) is None, "a bracket that the editor closed is no text"
    assert reason_at("total = ¦\n", config=LOW) is None


def test_high_eagerness_suggests_inside_a_word_where_medium_does_not():
    assert reason_at("coun¦ter = 1") is Reason.INSIDE_WORD
    assert reason_at("coun¦ter = 1", config=HIGH) is None
    assert reason_at("a\0b¦") is reason_at("a\0b¦", config=HIGH) is Reason.BINARY


def test_high_eagerness_shows_trivial_text_where_medium_does_not():
    assert complete("f(a¦", ",") == Reason.TRIVIAL
    assert complete("f(a¦", ",", config=HIGH) == "f(a,"


def test_high_eagerness_suggests_several_lines_on_a_blank_line_unless_multiline_is_off():
    marked = "def f(x):\n    y = 1\n    ¦"
    assert not plan_at(marked).multiline
    assert plan_at(marked, config=HIGH).multiline
    assert not plan_at(marked, config=CompletionConfig(eagerness="high", multiline="never")).multiline
    assert not plan_at("x = ¦", config=HIGH).multiline


def test_high_eagerness_shows_longer_blocks_but_not_endless_ones():
    text = "".join(f"step_{number * number}(x)\n    " for number in range(60))
    shown = {name: complete("def f(x):\n    ¦", text, config=level) for name, level in (("m", CONFIG), ("h", HIGH))}
    assert 4 < shown["m"].count("\n") < shown["h"].count("\n") < 30
    assert plan_at("def f(x):\n    ¦", config=HIGH).max_tokens == 2 * plan_at("def f(x):\n    ¦").max_tokens
