"""Examples to learn from: their answers are the text that stood there, and the product would request the same."""

from __future__ import annotations

import ast
import json
import random
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quality.tasks import packages as corpus
from models.training import data, fill_examples, function_examples, releases
from speclsp.engine.api import Extra

BODY = """def use_{n}(key):
    first = {n}
    second = first + 1
    third = second * 2
    print(third)
    return fetch_value(key)


"""
OLD = "import os\n\n\n" + "".join(BODY.format(n=n) for n in range(12))
NEW = OLD.replace("fetch_value(key)", "fetch_value(key, default)")
LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "  call(a)", "", "return b", "x"]), min_size=12, max_size=60)


@given(LINES, st.integers(0, 999))
def test_a_cut_takes_its_answer_out_of_the_text_and_nothing_else(lines: list[str], seed: int):
    text = "\n".join(lines)
    for cut in fill_examples.cuts(text, "python", random.Random(seed)):
        above, below = cut.text[: cut.cursor], cut.text[cut.cursor :]
        assert text.startswith(above + cut.answer) and text.endswith(below)
        between = text[len(above + cut.answer) : len(text) - len(below)]
        assert not cut.is_whole or not between.strip()


STATEMENTS = st.sampled_from(
    [
        "total = first % 3 + 'a, b'.count(name)",
        'if name == "it\'s" and first >= 2:\n        return (first, name)',
        "rows = [row * 2 ** 3 for row in [1, 2] if row]",
        'return f"{name} + {first}"',
        "while first > 0:\n        first -= 1  # a % b, 'c'",
        'text = """a + b, \'c\'\n    d % e"""',
        "call(name, *rows, key=1, other={'a': -1, 'b': not first})",
    ]
)


@given(st.lists(STATEMENTS, min_size=1, max_size=6), st.integers(0, 999))
def test_another_style_is_the_same_program_in_as_many_lines(statements: list[str], seed: int):
    text = "def run(name, first=0, *rows):\n" + "".join(f"    {statement}\n" for statement in statements)
    other = function_examples.restyled(text, random.Random(seed))
    assert ast.dump(ast.parse(other)) == ast.dump(ast.parse(text))
    assert len(other.split("\n")) == len(text.split("\n"))
    assert [line.lstrip()[:3] for line in other.split("\n")] == [line.lstrip()[:3] for line in text.split("\n")]


@pytest.fixture
def package(tmp_path: Path) -> releases.Learned:
    return package_in(tmp_path / "here")


def package_in(root: Path) -> releases.Learned:
    archives = tuple(
        corpus.Archive(ecosystem="pypi-wheel", name="p", version=v, file=f"p-{v}.whl", bytes=1, sha256="0" * 64)
        for v in ("1.0", "1.1")
    )
    for archive, text in zip(archives, (OLD, NEW), strict=True):
        folder = root / archive.folder / "p"
        folder.mkdir(parents=True)
        (folder / "use.py").write_text(text, "utf-8")
        (folder / "other.py").write_text("def fetch_value(key, default):\n    return default\n" * 10, "utf-8")
    roots = tuple(root / archive.folder for archive in archives)
    names = {"name": "p", "licence": "MIT", "languages": ("python",)}
    return releases.Learned(**names, folders=(), skip=(), archives=archives, roots=roots)


def rows_of(package: releases.Learned, encoder: data.Encoder) -> list[data.Row]:
    return data.mixed([*data.fill_rows(package, encoder), *islice(data.function_rows(package, encoder), 9)])


def test_examples_are_the_same_anywhere_and_in_the_models_own_tokens(package: releases.Learned, tmp_path: Path):
    encoder = data.Encoder("tiny")
    rows = rows_of(package, encoder)
    kinds = {row["kind"] for row in rows}
    assert kinds & {"line", "end", "block"}
    assert sum(row["kind"] == "function" for row in rows) == 9
    assert json.dumps(rows) == json.dumps(rows_of(package_in(tmp_path / "there"), encoder))
    for row in rows:
        assert len(row["answer"]) == len(row["weights"]) and any(row["weights"])
        assert encoder.end not in row["prompt"] + row["answer"][:-1]


def test_the_answer_of_a_fill_in_begins_with_the_half_typed_word_which_has_no_weight(package: releases.Learned):
    encoder = data.Encoder("tiny")
    at = OLD.index("fetch_value(key)") + len("fetch_v")
    cut = fill_examples.Cut("end", OLD[:at] + OLD[at + 4 :], at, "alue", True)
    request = fill_examples.request_of(cut, package.roots[0], "p/use.py", (), (256, 96, 128))
    assert request is not None and request.line_prefix == "    return fetch_v"
    row = encoder.fill(cut, request)
    spelled = [encoder.prompter.vocabulary.bytes[token].decode() for token in row["answer"][:-1]]
    assert "".join(spelled) == " fetch_value" or "".join(spelled) == "fetch_value"
    heal = len("".join(spelled)) - len("alue")
    ends = [len("".join(spelled[: n + 1])) for n in range(len(spelled))]
    assert row["weights"] == [*(1.0 if end > heal else 0.0 for end in ends), 1.0]


def test_an_example_needs_another_file_if_its_answer_has_a_name_that_only_that_file_shows():
    def needs(answer: str, line: str = "    return ", suffix: str = "") -> bool:
        extra = (Extra(filename="p/other.py", text="def fetch_value(key): ..."),)
        request = fill_examples.Request(prefix="import os\n", line_prefix=line, suffix=suffix, extra=extra)
        return fill_examples.has_name_of_other_files(fill_examples.Cut("end", "", 0, answer, True), request)

    assert needs("fetch_value(3)")
    assert needs("tch_value(3)", line="    return fe")  # half-typed
    assert not needs("fetch_values(3)")
    assert not needs("key")  # too short to tell
    assert not needs("fetch_value(3)", suffix="fetch_value(4)")
