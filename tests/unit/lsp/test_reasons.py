"""Reasons for showing nothing: each has one sentence that explains it."""

from __future__ import annotations

from speclsp.lsp import reasons
from speclsp.lsp.reasons import CUTS, MEANINGS, Reason, meaning


def test_every_reason_has_a_meaning_of_one_line():
    codes = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert codes - set(CUTS) | {reason.value for reason in Reason} == set(MEANINGS)
    lines = list(MEANINGS.values())
    assert all(line and "\n" not in line for line in lines)
    assert len(set(lines)) == len(lines), "two reasons have the same sentence"


def test_a_reason_of_post_processing_is_found_by_its_member_and_by_its_value():
    assert all(meaning(reason) == meaning(reason.value) == reason.meaning for reason in Reason)


def test_the_empty_reason_of_a_shown_suggestion_has_no_meaning():
    assert meaning("") == ""
