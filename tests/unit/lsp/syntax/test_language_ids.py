"""Language ids of files, for languages with a grammar and without one."""

from __future__ import annotations

import pytest
from support.rows import rows

from speclsp.lsp.syntax import grammars
from speclsp.lsp.syntax.grammars import LANGUAGE_ID_OF_SUFFIX

ROWS = rows(__file__)


def test_every_suffix_of_a_grammar_keeps_its_language_id():
    for suffix, language in LANGUAGE_ID_OF_SUFFIX.items():
        assert grammars.language_id("a" + suffix) == language
        assert grammars.language_id("A" + suffix.upper()) == language


@pytest.mark.parametrize(("name", "language"), ROWS["a_whole_name_comes_before_its_suffix"])
def test_a_whole_name_comes_before_its_suffix(name: str, language: str):
    assert grammars.language_id(name) == language
