"""Language ids of files, for languages with a grammar and without one."""

from __future__ import annotations

import pytest
from support.rows import rows

from speclsp.lsp.syntax import grammars

ROWS = rows(__file__)


@pytest.mark.parametrize(("name", "language"), ROWS["a_whole_name_comes_before_its_suffix"])
def test_a_whole_name_comes_before_its_suffix(name: str, language: str):
    assert grammars.language_id(name) == language
