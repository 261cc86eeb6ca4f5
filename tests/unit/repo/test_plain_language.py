"""Language law: docstrings open with a noun or a verb, and locals say what they hold.

The rules are in CONTRIBUTING.md; these tests catch the worst violations.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.source_tree import ROOT

OPENERS = re.compile(r"(What|Which|Where|Who|Whoever|How|Whether|Why)\b")
PRIVATE = frozenset(
    ["told", "said", "asked", "held", "found", "made", "given", "taken", "one", "each", "seen", "heard", "gone", "came"]
)
MOST_PRIVATE = {"speclsp": 30, "benchmarks": 30, "tests": 150}  # functions with such a local, in all
SENTENCE_WORDS = 40  # of a module docstring's first sentence


def sources(top: str) -> list[Path]:
    return sorted((ROOT / top).rglob("*.py"))


def private_locals(source: str) -> Iterator[tuple[str, int, str]]:
    """(function, line, name) for each function that stores into a local with a name from PRIVATE."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            stored = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
            for name in sorted(stored & PRIVATE):
                yield node.name, node.lineno, name


def docstrings(source: str) -> Iterator[tuple[str, int, str]]:
    """(name, line, docstring) of a module, its classes and its functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "module"), getattr(node, "lineno", 1), text


@pytest.mark.parametrize("top", ["speclsp", "benchmarks", "tests"])
def test_every_module_has_a_docstring_that_opens_with_its_subject(top: str):
    for path in sources(top):
        source = path.read_text("utf-8")
        text = ast.get_docstring(ast.parse(source)) or ""
        assert text or not source, f"{path.relative_to(ROOT)} has no docstring"
        assert not OPENERS.match(text), f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"


@pytest.mark.parametrize("top", ["speclsp", "benchmarks"])
def test_no_docstring_of_the_product_opens_with_a_question_word(top: str):
    places = [
        f"{path.relative_to(ROOT)}:{line} {name}: {text.splitlines()[0]}"
        for path in sources(top)
        for name, line, text in docstrings(path.read_text("utf-8"))
        if OPENERS.match(text)
    ]
    assert places == [], "\n".join(places)


@pytest.mark.parametrize("top", sorted(MOST_PRIVATE))
def test_locals_are_named_for_what_they_hold(top: str):
    places = [
        f"{path.relative_to(ROOT)}:{line} {function}: {name}"
        for path in sources(top)
        for function, line, name in private_locals(path.read_text("utf-8"))
    ]
    assert len(places) <= MOST_PRIVATE[top], f"{len(places)} places\n" + "\n".join(places)


def test_the_first_sentence_of_a_module_is_short():
    for path in sources("speclsp"):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        first = re.split(r"(?<=[.:])\s", text.partition("\n\n")[0].replace("\n", " "))[0]
        assert len(first.split()) <= SENTENCE_WORDS, f"{path.relative_to(ROOT)}: {first}"


def test_a_private_local_and_a_question_word_are_reported():
    source = '"""What it does."""\ndef f():\n    told = 1\n    for each in told: pass\n'
    assert [name for _, _, name in private_locals(source)] == ["each", "told"]
    assert OPENERS.match(next(docstrings(source))[2])
    assert not OPENERS.match("Whatever"), "only whole words"
