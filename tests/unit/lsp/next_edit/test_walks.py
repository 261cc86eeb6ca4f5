"""Walks through next edits in eight languages, through the text store and the next edits as the server has them.

The walks are files in the folder `walks`; tests/support/lsp/edit_walks.py describes their format. A walk must be met
unless its file says "not offered yet". Nothing wrong is offered in any of them, or its file says what.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from support.lsp.edit_walks import Walk, Walker, walks

from speclsp.lsp.syntax.grammars import known_id

WALKS = walks()


@pytest.mark.parametrize("by_key", [False, True], ids=["replaced", "typed"])
@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: f"{known_id(walk.file)}: {walk.title}")
def test_a_walk_is_offered_edit_by_edit_and_nothing_else_is(walk: Walk, by_key: bool):
    with pytest.raises(AssertionError) if walk.wrong else nullcontext():  # a walk that passes has a stale member
        Walker(walk, by_key).go()
