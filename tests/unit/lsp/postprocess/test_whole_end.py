"""The end of a text that the model did not end: brackets are closed around whole statements, and lists stay open."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lsp.suggested import applied, outcome, plan_at
from support.rows import rows

from speclsp.config import CompletionConfig
from speclsp.lsp.completion.gate import GateDecision, apply_gate
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.lexical_rules import PAIRS, pair

ROWS = rows(__file__)
SUGGESTIONS = ROWS["suggestions"]
SEVERAL_LINES = CompletionConfig(multiline="always")
DRAWN = re.compile(
    r"(?:\s*(?:\}\)*|</\w+>\)*)[;,]?)*\s*(?:\"\"\")?\s*"
)  # ends of blocks, of elements, of documentation


def open_brackets(document: str, language: str) -> int:
    return sum(opener.mark in PAIRS for opener in pair(document, record(language).rules).openers)


def is_more_open(plan: SuggestionPlan, suggestion: Suggestion, language: str) -> bool:
    document = plan.around.document
    return open_brackets(applied(document, suggestion), language) > open_brackets(document, language)


def drawn(suggestion: Suggestion, text: str) -> str:
    """The end of a suggestion that is not a part of the model's text."""
    same = next((at for at, pair in enumerate(zip(suggestion.text, text)) if len({*pair}) > 1), len(text))  # noqa: B905
    return suggestion.text[same:]


places = st.tuples(st.sampled_from(SUGGESTIONS), st.booleans(), st.sampled_from([CompletionConfig(), SEVERAL_LINES]))


@settings(max_examples=400)
@given(places, st.data())
def test_a_text_cut_anywhere_ends_closed_or_visibly_open_and_no_list_is_closed(
    place: tuple[list[str], bool, CompletionConfig], data: st.DataObject
):
    (language, above, text, below), is_auto_closed, config = place
    plan = plan_at(f"{above}¦{below if is_auto_closed else ''}", language, config)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    suggestion = plan.to_suggestion(cut, complete=False)
    if isinstance(suggestion, NoSuggestion):
        return
    if is_more_open(plan, suggestion, language):
        is_whole_line = cut.lstrip().startswith(suggestion.text.strip() + "\n")
        assert not plan.around.rest.strip() and (suggestion.text.rstrip()[-1] in ",([{" or is_whole_line)
    elif not plan.around.rest.strip():
        assert DRAWN.fullmatch(drawn(suggestion, text)), suggestion.text


@settings(max_examples=400)
@given(places, st.data())
def test_the_gate_leaves_no_bracket_open_that_the_whole_suggestion_closes(
    place: tuple[list[str], bool, CompletionConfig], data: st.DataObject
):
    (language, above, text, below), is_auto_closed, config = place
    plan = plan_at(f"{above}¦{below if is_auto_closed else ''}", language, config)
    whole = plan.to_suggestion(text)
    line_ends = [match.start() for match in re.finditer(r"(?<=\S)\n", text)]
    shown = apply_gate(whole, plan, text, GateDecision(0.5, 0.1, data.draw(st.sampled_from(line_ends))))
    if isinstance(whole, Suggestion) and not is_more_open(plan, whole, language):
        assert isinstance(shown, Suggestion) and not is_more_open(plan, shown, language)
        assert DRAWN.fullmatch(drawn(shown, text)), shown.text


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"), ROWS["a_cut_list_stays_visibly_open_or_is_not_shown"]
)
def test_a_cut_list_stays_visibly_open_or_is_not_shown(language: str, marked: str, output: str, result: str):
    suggestion = plan_at(marked, language, SEVERAL_LINES).to_suggestion(output, complete=False)
    expected = Reason(result) if result in ("cut_short", "loops") else marked.replace("¦", result)
    assert outcome(marked, suggestion) == expected
