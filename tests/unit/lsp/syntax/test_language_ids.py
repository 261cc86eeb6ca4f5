"""Language ids of files and pipes, for languages with a grammar and without one."""

from __future__ import annotations

import pytest
from support.rows import rows

from speclsp.lsp.syntax import grammars
from speclsp.lsp.syntax.grammars import LANGUAGE_ID_OF_SUFFIX
from speclsp.lsp.syntax.languages import LANGUAGES

ROWS = rows(__file__)


@pytest.mark.parametrize("language", grammars.LANGUAGE_IDS)
def test_a_file_named_for_a_language_id_has_that_id(language: str):
    assert grammars.language_id(grammars.file_name(language, "stdin")) == language
    assert grammars.canonical_id(language) == language


def test_every_suffix_of_a_grammar_keeps_its_language_id():
    for suffix, language in LANGUAGE_ID_OF_SUFFIX.items():
        assert grammars.language_id("a" + suffix) == language
        assert grammars.language_id("A" + suffix.upper()) == language


def test_every_common_name_of_a_language_with_files_is_known():
    for language in LANGUAGES:
        for alias in (language.name, *language.aliases):
            known = grammars.canonical_id(alias)
            assert known in grammars.LANGUAGE_IDS, alias
            assert known in language.files or known == alias


@pytest.mark.parametrize(("name", "language"), ROWS["a_whole_name_comes_before_its_suffix"])
def test_a_whole_name_comes_before_its_suffix(name: str, language: str):
    assert grammars.language_id(name) == language


def test_an_unknown_language_has_no_id():
    assert grammars.canonical_id("pyton") == grammars.canonical_id("") == ""
