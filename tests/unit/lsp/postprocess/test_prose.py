"""Post-processing of prose: comments, docstrings, fences, and languages inside strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import outcome, plan_at, streamed
from support.rows import rows

from speclsp.lsp.postprocess.plan import NoSuggestion
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import record

ROWS = rows(__file__)


def complete(marked: str, output: str, language: str) -> str | Reason:
    """The text after accepting the suggestion made of `output` at the ¦, or the reason for showing nothing."""
    plan = plan_at(marked, language)
    suggestion = plan.to_suggestion(output)
    assert plan.to_suggestion(streamed(plan, output)) == suggestion, "closing the stream early costs nothing"
    if not isinstance(suggestion, NoSuggestion):
        again = plan.to_suggestion(suggestion.text)
        assert not isinstance(again, NoSuggestion) and again.text == suggestion.text, "cleaned twice as once"
    return outcome(marked, suggestion)


# ── comments, docstrings, a language inside a string, tags, templates ────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    [
        *ROWS["a_comment_ends_with_its_line_and_is_closed_once"],
        *ROWS["a_string_a_template_and_a_tag_are_closed_once_and_not_too_early"],
        *ROWS["a_string_that_is_closed_right_of_the_cursor_is_not_ended_before"],
    ],
)
def test_a_text_is_closed_once_and_not_too_early(language: str, marked: str, output: str, result: str | Reason):
    assert complete(marked, output, language) == result


@given(
    language=st.sampled_from(["python", "javascript", "go", "ruby", "terraform", "nix"]),
    left=st.text("ab (", max_size=4),
    right=st.text(" )", max_size=4),
    output=st.text('ab "\\(),', min_size=1, max_size=12),
)
def test_a_suggestion_inside_a_string_adds_no_string(language: str, left: str, right: str, output: str):
    marked = f'f("{left}¦{right}", "c")\n'
    result = outcome(marked, plan_at(marked, language).to_suggestion(output))
    if isinstance(result, Reason):
        return
    strings = [token for token in lexical_rules.tokens(result, record(language).rules) if token.kind == "string"]
    assert len(strings) == 2


# ── block ends without brackets, and values ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    ROWS["the_end_of_a_block_or_value_is_not_repeated"],
)
def test_the_end_of_a_block_or_value_is_not_repeated(language: str, marked: str, output: str, result: str):
    assert complete(marked, output, language) == result


# ── fences of Markdown ───────────────────────────────────────────────────────────────────────────────


def test_no_fence_is_shown_in_code():
    assert complete("def f():\n    ¦", "```python\nreturn 1\n", "python") is Reason.FORBIDDEN
    assert complete("def f():\n    ¦", "return 1\n```\nThat was it.\n", "python") == "def f():\n    return 1"
    assert complete("x = 1;\n¦", "y = `a`;\n```\n", "javascript") == "x = 1;\ny = `a`;"
    assert "```" in str(complete('def f():\n    """Do it.\n\n    ¦\n    """\n', "```python\n    f()\n", "python"))
