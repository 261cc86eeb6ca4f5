"""Laws of incremental parses: the tree of an edited text is that of a whole parse."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclsp.lsp.syntax.parser import SyntaxParser

AMPLE_MS = 10_000.0
LINES = [f"def name_{number}(first, second):\n    return first + second * {number}\n\n\n" for number in range(120)]
EDITS = st.lists(
    st.tuples(
        st.integers(0, len(LINES) - 1), st.sampled_from(["", "x = 1\n", "ä = 'ö'\n", "def (:\n", "pass\r\n", LINES[7]])
    ),
    max_size=6,
)


def edited(edits: list[tuple[int, str]]) -> str:
    lines = list(LINES)
    for number, text in edits:
        lines[number] = text
    return "".join(lines)


@settings(deadline=None)
@given(EDITS, EDITS)
def test_a_tree_of_an_edited_text_is_that_of_a_whole_parse(older: list[tuple[int, str]], newer: list[tuple[int, str]]):
    parser = SyntaxParser()
    assert parser.parse("python", edited(older), AMPLE_MS) is not None
    tree = parser.parse("python", edited(newer), AMPLE_MS)
    plain = SyntaxParser().parse("python", edited(newer), AMPLE_MS)
    assert tree is not None and plain is not None
    assert tree.raw.root_node.has_error == plain.raw.root_node.has_error
    if not plain.raw.root_node.has_error:  # where the grammar fails, tree-sitter may repair in two ways
        assert str(tree.raw.root_node) == str(plain.raw.root_node)
        nodes, plain_nodes = (
            [(node.type, node.start_byte, node.end_byte) for node in of.raw.root_node.children] for of in (tree, plain)
        )
        assert nodes == plain_nodes


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_the_tree_of_the_same_text_is_kept(language: str):
    parser = SyntaxParser()
    first = parser.parse(language, "name = 1\n", AMPLE_MS)
    assert first is not None and parser.parse(language, "name = 1\n", AMPLE_MS) is first
