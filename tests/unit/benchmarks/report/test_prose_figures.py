"""Figures in the prose of README and docs: each equals its result, and none is without one.

prose_figures.toml names the results of each page, one line for a text of the page:

    ["completes {} tokens in {:.2f} s", "FILE/path/to/value", "FILE/other/path / 1000"]

`{}` stands for the values, in Python's format. FILE is benchmarks/results/FILE.json, or a short name of `[files]`.
A part of the path with `*` takes the mean of all that match. `#FILE/path` is the length of a list. Values may be
combined by ` * `, ` / ` and ` − `. `A where B` is the share of ones in the text A, at the places where the text B has
a digit: columns of `by_task`.

A page's table `[without_result]` names its numbers that no result file holds, each with the reason.
"""

from __future__ import annotations

import decimal
import fnmatch
import functools
import json
import operator
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.markdown_pages import COMMENT, FENCE, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RESULTS = ROOT / "benchmarks/results"
TABLE = tomllib.loads((Path(__file__).parent / "prose_figures.toml").read_text("utf-8"))
FILES: dict[str, str] = TABLE.pop("files")  # short names of results
GENERATED = re.compile(r"<!-- table .*?<!-- /table -->", re.DOTALL)
FIGURE = re.compile(
    r"(?<![\w.`/-])[-+]?\d[\d,]*(?:\.\d+)?\s?(?:%|(?:ms|s|times|points|MiB|GiB|tokens a round)\b)"  # with a unit
    r"|(?<![\w.`/-])\d+\.\d+(?![\w.]*[\w/+])(?! GB)"  # or a decimal fraction, except a size of files
)
LIMITS_ONLY = ("configuration", "editors", "http-api", "install", "lsp-extensions", "privacy", "releasing")  # and sizes
TIED_ELSEWHERE = ("models", "reliability")  # test_cards.py: the table of models; test_promises.py: the whole page
VERSION = re.compile(r"[A-Z][\w.]*\**,? $")  # before a decimal fraction: "Neovim 0.12"
OPERATION = re.compile(r" ([*/−]|where) ")


def share_where(ones: str, measured: str) -> decimal.Decimal:
    """The share of ones, at the places where `measured`, which may be shorter, has a digit."""
    common = [one == "1" for one, other in zip(ones, measured, strict=False) if one.isdigit() and other.isdigit()]
    return decimal.Decimal(sum(common)) / len(common)


OPERATORS = {"*": operator.mul, "/": operator.truediv, "−": operator.sub, "where": share_where}


def prose(page: str) -> str:
    """The page without code blocks and generated tables, on one line."""
    text = FENCE.sub("", GENERATED.sub("", (ROOT / page).read_text("utf-8")))
    return re.sub(r"\s+", " ", COMMENT.sub("", text))


def figures(text: str) -> Iterator[re.Match[str]]:
    """The figures in a text, without version numbers."""
    for match in FIGURE.finditer(text):
        if not (match[0].replace(".", "").isdigit() and VERSION.search(text[: match.start()])):
            yield match


def value(source: str) -> Any:
    """The value that `source` names."""
    parts = OPERATION.split(source)
    result = term(parts[0])
    for sign, other in zip(parts[1::2], parts[2::2], strict=True):
        result = OPERATORS[sign](result, term(other))
    return result


def term(text: str) -> Any:
    """A number, or the value at FILE/path."""
    if re.fullmatch(r"[\d.]+", text):
        return decimal.Decimal(text)
    file, *path = text.removeprefix("#").split("/")
    found = at_path(json.loads(result_file(FILES.get(file, file)), parse_float=decimal.Decimal), path)
    return len(found) if text.startswith("#") else found


def at_path(node: Any, path: list[str]) -> Any:
    """The value at `path` below `node`."""
    if not path:
        return node
    key, *rest = path
    if "*" in key:
        return statistics.mean(at_path(node[name], rest) for name in fnmatch.filter(node, key))
    return at_path(node[int(key)] if isinstance(node, list) else node[key], rest)


@functools.cache
def result_file(name: str) -> str:
    return (RESULTS / f"{name}.json").read_text("utf-8")


def written(text: str, sources: list[str]) -> str:
    """The text with the values of its sources; a half is rounded up."""
    with decimal.localcontext() as context:
        context.rounding = decimal.ROUND_HALF_UP
        return text.format(*map(value, sources))


def entries() -> Iterator[tuple[str, str, list[str]]]:
    """(page, text, sources) of every line of the table."""
    for page, named in TABLE.items():
        yield from ((page, text, sources) for text, *sources in named["figures"])


@pytest.mark.parametrize(("page", "text", "sources"), entries(), ids=[f"{page} {text}" for page, text, _ in entries()])
def test_a_figure_of_a_page_is_that_of_its_result(page: str, text: str, sources: list[str]):
    assert sources and text.count("{") == len(sources)
    assert written(text, sources) in prose(page), f"{page} differs from {sources}"


@pytest.mark.parametrize("page", TABLE)
def test_no_figure_of_a_page_is_without_a_result(page: str):
    """Except those that `without_result` names: settings, limits, aims, and measurements of other people."""
    left = prose(page)
    for named, text, sources in entries():
        if named == page:
            left = left.replace(written(text, sources), "·")
    for text, why in TABLE[page].get("without_result", {}).items():
        assert why and text in left, f"{text!r} is not a number of {page} without a result"
        left = left.replace(text, "·")
    untied = [left[max(0, match.start() - 40) : match.end() + 20] for match in figures(left)]
    assert untied == [], f"name the results of these in prose_figures.toml: {untied}"


def test_every_page_with_measured_figures_is_in_the_table():
    pages = {"README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))}
    without = {page for page in pages - TABLE.keys() if any(figures(prose(page)))}
    assert without == {f"docs/{name}.md" for name in (*LIMITS_ONLY, *TIED_ELSEWHERE)}


def test_a_wrong_figure_is_found(monkeypatch: pytest.MonkeyPatch):
    page, text, sources = next(entry for entry in entries() if entry[0] == "README.md")
    right = written(text, sources)
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, *args: read(path, *args).replace(right.split()[-1], "9.9"))
    with pytest.raises(AssertionError):
        test_a_figure_of_a_page_is_that_of_its_result(page, text, sources)
