"""Name resolution: which definition each identifier of a text means, in every language with functions."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import Occurrence
from speclsp.lsp.syntax.languages import LANGUAGES
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.tree import SyntaxTree, load_query

WITHOUT_SCOPES = {"bash", "css", "html", "json", "sql", "svelte", "toml", "yaml"}
MARKS, LABEL = "¹²³⁴⁵⁶⁷⁸⁹⁼", "⁼"
MARKED = re.compile(rf"(\w+?)([{MARKS}])")
# Of each language: `=== NAME`, and a text in which marks say which definition an identifier means. Identifiers with
# the same name and mark mean the same one. Of a name with a mark, an identifier without one means none of the text's.
# The mark ⁼ is on the name of an argument or key: the thing called decides about it, not a scope.
SAMPLES = dict(
    re.findall(
        r"(?ms)^=== (\w+)\n(.*?)(?=^=== |\Z)", Path(__file__).with_name("binding_samples.txt").read_text("utf-8")
    )
)


def tree_of(language: str, text: str) -> SyntaxTree:
    tree = SyntaxParser().parse(language, text, budget_ms=2000)
    assert tree is not None
    return tree


def unmarked(sample: str) -> tuple[str, dict[str, dict[int, str]]]:
    """The text without marks, and for each name with marks their offsets."""
    text, marks = "", defaultdict[str, dict[int, str]](dict)
    end = 0
    for match in MARKED.finditer(sample):
        text += sample[end : match.start()]
        marks[match[1]][len(text)] = match[2]
        text += match[1]
        end = match.end()
    return text + sample[end:], dict(marks)


def resolved(occurrence: Occurrence, occurrences: list[Occurrence]) -> int | None:
    """The offset of the definition that an occurrence means."""
    if occurrence.is_variable:
        definition = bindings.meaning(occurrence, [other for other in occurrences if other.is_definition])
        return definition.start if definition else None
    if occurrence.own_class:
        members = (
            other.start
            for other in occurrences
            if other.is_field_definition and other.own_class == occurrence.own_class
        )
        return next(members, None)
    return None


def marked_again(tree: SyntaxTree, marks: dict[str, dict[int, str]]) -> str:
    """The text with the marks of the resolved occurrences: a definition has the mark that it has in the sample."""
    places = dict[int, str]()
    for name, marks_of_name in marks.items():
        occurrences = bindings.occurrences(tree, name, 0, len(tree.text))
        for occurrence in occurrences:
            definition = resolved(occurrence, occurrences)
            if bindings.LABEL in occurrence.roles and not occurrence.is_variable:
                places[occurrence.end] = LABEL
            elif definition is not None:
                places[occurrence.end] = marks_of_name.get(definition, "?")
    ends = [0, *sorted(places), len(tree.text)]
    pieces = [tree.text[start:end] + places.get(end, "") for start, end in pairwise(ends)]
    return "".join(pieces)


def test_every_language_with_functions_has_the_section_and_a_sample():
    languages = {language.name for language in LANGUAGES}
    assert {name for name in languages if load_query(name, bindings.SECTION)} == languages - WITHOUT_SCOPES
    assert set(SAMPLES) == languages - WITHOUT_SCOPES


@pytest.mark.parametrize("language", SAMPLES)
def test_each_identifier_means_the_definition_with_its_mark(language: str):
    text, marks = unmarked(SAMPLES[language])
    tree = tree_of(language, text)
    assert marked_again(tree, marks) == SAMPLES[language]
    assert tree.count_errors() == 0


def test_a_blank_identifier_means_nothing():
    text = "for _ in rows:\n    _ = 1\n"
    assert bindings.occurrences(tree_of("python", text), "_", 0, len(text)) == []


HOSTILE = {
    "50,000 nested parentheses": "(" * 50_000 + "width" + ")" * 50_000,
    "50,000 nested brackets": "[" * 50_000 + "width" + "]" * 50_000,
    "50,000 nested blocks": "{" * 50_000 + "width" + "}" * 50_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("language", SAMPLES)
def test_deep_nesting_costs_little_time(language: str, name: str):
    text = HOSTILE[name]
    tree = SyntaxParser().parse(language, text, budget_ms=2000)
    if tree is not None:
        load_query(language, bindings.SECTION)
        started = time.process_time()
        bindings.occurrences(tree, "width", 0, len(text))
        assert time.process_time() - started < 0.25
