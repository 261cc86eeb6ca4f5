"""Every reason for showing nothing has a line that explains it."""

from __future__ import annotations

from speclsp.lsp import reasons
from speclsp.lsp.postprocess.plan import Reason


def test_every_reason_has_a_meaning_of_one_line():
    words = [value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)]
    assert set(words) == set(reasons.MEANINGS)
    lines = [reasons.meaning(word) for word in [*words, *(reason.value for reason in Reason)]]
    assert all(line and "\n" not in line for line in lines)
    assert len(set(lines)) == len(lines), "each says something of its own"


def test_what_was_shown_needs_no_explanation():
    assert reasons.meaning("") == ""
