"""Duplicates: a definition of the same scope, and a statement of the last three lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import inserted, plan_for
from support.rows import rows

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
    st.sampled_from(["python", "javascript", "rust", "json", "yaml", "toml", "c", "sql"]),
)
def test_what_is_shown_has_no_duplicate_left(before: str, after: str, output: str, language: str):
    text = before + after
    plan = plan_for(text, len(before), language)
    if isinstance(plan, SuggestionPlan) and plan.duplicates is not None:
        length, reason = plan.duplicates.length_without(output)
        assert (length == len(output)) if reason is None else (length < len(output))
        again, reason = plan.duplicates.length_without(output[:length])
        assert reason is None and again == length
