"""Reasons for showing nothing: each has one sentence that explains it."""

from __future__ import annotations

import json

import pytest

from speclsp.lsp.reasons import MEANINGS, Reason, meaning


def test_every_reason_has_a_meaning_of_one_line():
    lines = list(MEANINGS.values())
    assert all(line and "\n" not in line for line in lines)
    assert len(set(lines)) == len(lines), "two reasons have the same sentence"


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_its_code_in_every_text(reason: Reason):
    assert f"{reason}" == str(reason) == "%s" % reason == reason.value == json.loads(json.dumps(reason))  # noqa: UP031


def test_a_reason_is_found_by_its_member_and_by_its_value():
    assert all(meaning(reason) == meaning(reason.value) == reason.meaning for reason in Reason)


def test_the_empty_reason_of_a_shown_suggestion_has_no_meaning():
    assert meaning("") == ""
