"""Duplicates: a definition of the same scope, a statement of the last three lines, and an entry of a list file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import inserted, plan_for
from support.rows import rows

from speclsp.lsp.postprocess.duplicates import list_file
from speclsp.lsp.postprocess.plan import SuggestionPlan
from speclsp.lsp.reasons import Reason

ROWS = rows(__file__)

# ── a definition that its scope has already ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["a_definition_that_its_scope_has_already_is_not_shown"])
def test_a_definition_that_its_scope_has_already_is_not_shown(language: str, marked: str, output: str):
    assert inserted(marked, output, language) is Reason.DEFINED


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_a_definition_is_found_with_any_line_ends(end: str):
    marked = "class A:\n    def f(self):\n        pass\n\n    ¦\n".replace("\n", end)
    assert inserted(marked, "def f(self, x):\n", "python") is Reason.DEFINED


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    ROWS["a_definition_of_another_scope_or_an_overload_is_shown"],
)
def test_a_definition_of_another_scope_or_an_overload_is_shown(language: str, marked: str, output: str):
    shown = inserted(marked, output, language)
    assert shown.split() == output.split(), shown


def test_a_block_ends_before_a_definition_that_its_scope_has_already():
    marked = "class A:\n    ¦\n\n    def close(self):\n        pass\n"
    output = "def open(self):\n        return 1\n    # Close it.\n    def close(self, force):\n        return 2\n"
    assert inserted(marked, output, "python") == "def open(self):\n        return 1"


# ── a statement of the last three lines ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        ("python", "self.x = x\nself.y = y\n¦", "self.x = x\n"),
        ("python", "self.x = x\nself.y = y\nself.z = z\nself.¦", "x = x\n"),
        ("javascript", "app.use(json());\n\napp.use(cors());\n¦\n", "app.use(json());\n"),
        ("c", "  a = b;\n  c = d;\n  ¦\n", "a = b;\n"),
    ],
)
def test_a_statement_of_the_last_three_lines_is_not_shown_again(language: str, marked: str, output: str):
    assert inserted(marked, output, language) is Reason.REPEATS_ABOVE


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["a_line_that_often_repeats_is_shown"])
def test_a_line_that_often_repeats_is_shown(language: str, marked: str, output: str):
    assert not isinstance(inserted(marked, output, language), Reason)


# ── an entry of a list file ──────────────────────────────────────────────────────────────────────────────────────────

WORDS = "".join(f"word{number}\n" for number in range(12))


@pytest.mark.parametrize(("name", "marked", "output"), ROWS["an_entry_that_a_list_file_has_is_not_shown"])
def test_an_entry_that_a_list_file_has_is_not_shown(name: str, marked: str, output: str):
    assert inserted(marked, output, "plaintext", f"file:///p/{name}") is Reason.LISTED


@pytest.mark.parametrize(("name", "marked", "output"), ROWS["an_entry_that_a_list_file_lacks_is_shown"])
def test_an_entry_that_a_list_file_lacks_is_shown(name: str, marked: str, output: str):
    assert not isinstance(inserted(marked, output, "plaintext", f"file:///p/{name}"), Reason)


names = st.lists(st.from_regex(r"[a-z]{1,8}(/|\.[a-z]{1,3})?", fullmatch=True), min_size=2, max_size=15, unique=True)


@given(names, st.data())
def test_no_entry_is_ever_listed_twice(entries: list[str], data: st.DataObject):
    entry = data.draw(st.sampled_from(entries))
    shown = inserted("\n".join(entries) + "\n¦", entry + "\n", "ignore", "file:///p/.gitignore")
    assert shown in (Reason.LISTED, Reason.REPEATS_ABOVE)
    typed = data.draw(st.integers(0, len(entry) - 1))
    shown = inserted(
        "\n".join(entries) + "\n" + entry[:typed] + "¦", entry[typed:] + "\n", "ignore", "file:///p/.gitignore"
    )
    assert isinstance(shown, Reason) or not entry[typed:].strip("/")


@given(st.text(max_size=200), st.sampled_from(["plaintext", "ignore", "python", ""]), st.text(max_size=20))
def test_any_file_is_a_list_file_or_none(text: str, language: str, name: str):
    entries = list_file(f"file:///p/{name}", language, text)
    assert entries is None or entries.entry(entries.entry(text)) == entries.entry(text)


scraps = st.lists(
    st.sampled_from(
        [
            *("def f():", "def g():", "class A:", "    ", "\t", "x = 1", "\n", "\n    ", "{", "}", "function f() {"),
            *("@overload", '"a": 1,', "a: 1", "#if x", "fn f() {", "\r\n", '"""', "const f = 1;", "[a]", "é"),
        ]
    ),
    max_size=16,
).map("".join)


@given(
    scraps,
    scraps,
    scraps,
    st.sampled_from(["python", "javascript", "rust", "json", "yaml", "toml", "c", "sql", "ignore"]),
)
def test_what_is_shown_has_no_duplicate_left(before: str, after: str, output: str, language: str):
    text = before + after
    plan = plan_for(text, len(before), language)
    if isinstance(plan, SuggestionPlan) and plan.duplicates is not None:
        length, reason = plan.duplicates.length_without(output)
        assert (length == len(output)) if reason is None else (length < len(output))
        again, reason = plan.duplicates.length_without(output[:length])
        assert reason is None and again == length
