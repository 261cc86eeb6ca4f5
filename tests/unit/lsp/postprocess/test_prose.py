"""Post-processing of prose: comments, docstrings, Markdown and its fences, and languages inside strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import outcome, plan_at, streamed
from support.rows import rows

from speclsp.lsp.postprocess import prose
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


# ── Markdown, and its fences elsewhere ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("marked", "output", "result"),
    ROWS["in_markdown_a_fence_holds_code_of_its_language_and_the_rest_is_prose"],
)
def test_in_markdown_a_fence_holds_code_of_its_language_and_the_rest_is_prose(
    marked: str, output: str, result: str | Reason
):
    assert complete(marked, output, "markdown") == result


def test_code_in_a_fence_starts_blocks_by_the_rules_of_its_language():
    assert plan_at("```python\ndef f(x):\n    ¦\n```\n", "markdown").multiline
    assert not plan_at("def f(x):\n    ¦\n", "markdown").multiline
    assert not plan_at("```\nx\n```\nSo: (¦\n", "markdown").multiline


def test_no_fence_is_shown_in_code():
    assert complete("def f():\n    ¦", "```python\nreturn 1\n", "python") is Reason.FORBIDDEN
    assert complete("def f():\n    ¦", "return 1\n```\nThat was it.\n", "python") == "def f():\n    return 1"
    assert complete("x = 1;\n¦", "y = `a`;\n```\n", "javascript") == "x = 1;\ny = `a`;"
    assert "```" in str(complete('def f():\n    """Do it.\n\n    ¦\n    """\n', "```python\n    f()\n", "python"))


@given(
    st.lists(st.sampled_from(["```py", "```", "~~~", "text", "x = 1", "````", "", "- ```js"]), max_size=8), st.data()
)
def test_fenced_code_is_found_for_every_cursor(lines: list[str], data: st.DataObject):
    text = "\n".join(lines)
    cursor = data.draw(st.integers(0, len(text)))
    code = prose.fenced(text, cursor)
    if code is not None:
        assert code.start <= cursor <= code.end or text[code.end : code.end + 1] in ("`", "~")
        assert text[: code.start].rstrip("\n").split("\n")[-1].lstrip()[:3] in ("```", "~~~")
        assert code.closed == (code.end < len(text))
