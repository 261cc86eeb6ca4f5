"""Language law: docstrings open with a noun or a verb, and names say what they hold or do.

The rules are in CONTRIBUTING.md; these tests catch the worst violations.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.source_tree import ROOT

OPENERS = re.compile(r"(What|Which|Where|Who|Whoever|How|Whether|Why)\b")
PRIVATE = frozenset(
    [
        *("told", "said", "asked", "held", "found", "made", "given", "taken", "one", "each", "seen", "heard", "gone"),
        *("came", "keeper", "blame", "humble", "doing", "counting"),
    ]
)
SQL = re.compile(r"\b(SELECT|INSERT|CREATE TABLE|UPDATE|DELETE FROM)\b")
LOCAL, PARAMETER, FUNCTION = "a local of", "a parameter of", "a function"
MAX_PRIVATE = {  # (kind of name, top folder): so many such names, in all
    (LOCAL, "speclsp"): 0, (LOCAL, "benchmarks"): 30, (LOCAL, "tests"): 150,
    (PARAMETER, "speclsp"): 0, (PARAMETER, "benchmarks"): 45, (PARAMETER, "tests"): 60,
    (FUNCTION, "speclsp"): 0, (FUNCTION, "benchmarks"): 0, (FUNCTION, "tests"): 19,
}  # fmt: skip
EDITOR_COMMAND = re.compile(r":(Speclsp|Lsp\w+|checkhealth)\b|Try Again|[Cc]ommand [Pp]alette")
SENTENCE_WORDS = 40  # of a module docstring's first sentence


def sources(top: str) -> list[Path]:
    return sorted((ROOT / top).rglob("*.py"))


def private_names(source: str) -> Iterator[tuple[str, str, int, str]]:
    """(kind, function, line, name) of each local, parameter and function with a name from PRIVATE."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        function = getattr(node, "name", "lambda")
        stored = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        args = node.args
        arguments = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        parameters = {argument.arg for argument in arguments if argument is not None}
        for kind, names in ((LOCAL, stored), (PARAMETER, parameters), (FUNCTION, {function.strip("_")})):
            for name in sorted(names & PRIVATE):
                yield kind, function, node.lineno, name


@functools.cache
def places_of_private_names(top: str) -> tuple[tuple[str, str], ...]:
    """(kind, place) of each such name below a top folder."""
    return tuple(
        (kind, f"{path.relative_to(ROOT)}:{line} {function}: {name}")
        for path in sources(top)
        for kind, function, line, name in private_names(path.read_text("utf-8"))
    )


def words_of_sql_and_loggers(source: str) -> Iterator[tuple[int, str]]:
    """(line, word) of each SQL statement, and of the last part of each logger's name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value):
            yield from ((node.lineno, word) for word in re.findall(r"[a-z_]+", node.value))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "getLogger":
            names = [str(x.value) for x in node.args if isinstance(x, ast.Constant)]
            yield from ((node.lineno, name.rpartition(".")[2]) for name in names)


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


@pytest.mark.parametrize(("kind", "top"), MAX_PRIVATE)
def test_names_say_what_they_hold_or_do(kind: str, top: str):
    places = [place for name_kind, place in places_of_private_names(top) if name_kind == kind]
    assert len(places) <= MAX_PRIVATE[kind, top], f"{len(places)} places\n" + "\n".join(places)


def test_sql_and_loggers_speak_plainly():
    places = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in sources("speclsp")
        for line, word in words_of_sql_and_loggers(path.read_text("utf-8"))
        if word in PRIVATE
    ]
    assert places == []


def test_the_first_sentence_of_a_module_is_short():
    for path in sources("speclsp"):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        first = re.split(r"(?<=[.:])\s", text.partition("\n\n")[0].replace("\n", " "))[0]
        assert len(first.split()) <= SENTENCE_WORDS, f"{path.relative_to(ROOT)}: {first}"


def test_a_private_name_and_a_question_word_are_reported():
    source = '"""What it does."""\ndef seen(found):\n    told = 1\n    for each in told: pass\n    lambda one: one\n'
    assert {(kind, name) for kind, _, _, name in private_names(source)} == {
        *((LOCAL, "each"), (LOCAL, "told"), (PARAMETER, "found"), (PARAMETER, "one"), (FUNCTION, "seen"))
    }
    assert OPENERS.match(next(docstrings(source))[2])
    assert not OPENERS.match("Whatever"), "only whole words"
    assert ("told" in dict(words_of_sql_and_loggers("rows('SELECT value FROM told')")).values()) and not list(
        words_of_sql_and_loggers("print('told')")
    )
    assert list(words_of_sql_and_loggers("logging.getLogger('speclsp.doing')")) == [(1, "doing")]


def test_no_message_of_the_server_names_a_command_of_one_editor():
    for path in sources("speclsp"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            assert not EDITOR_COMMAND.search(text), f"{path.relative_to(ROOT)}:{node.lineno}: {text}"
