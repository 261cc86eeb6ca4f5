"""Comments and docstrings cite files that exist: in this repository, or of others that are listed here."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from support.source_tree import ROOT

PACKAGES = ("speclsp", "benchmarks", "models")
CITED = re.compile(r"(?<![\w./*-])((?:[\w-]+/)*[\w-]+\.(?:py|md|h|c|lua|ts))\b")
ELSEWHERE = {
    "a/b.h": "made up: an include",
    "x.c": "made up: a member",
    "src/completion.ts": "of llama.vscode",
    "src/extra-context.ts": "of llama.vscode",
    "linux/mount.h": "of Linux",
    "sys/ucred.h": "of macOS",
    "sys/un.h": "of POSIX",
    "sysexits.h": "of BSD",
}


def prose(file: Path) -> Iterator[str]:
    """The comments and docstrings of a file."""
    source = file.read_text("utf-8")
    if not CITED.search(source):
        return
    if file.suffix != ".py":
        yield from re.findall(r"/\*.*?\*/", source, re.DOTALL)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        for suffix in ("py", "c", "h"):
            yield from (ROOT / package).rglob(f"*.{suffix}")


def missing(text: str, paths: set[str]) -> set[str]:
    """Files that a text cites, by name or by the end of their path, and that neither `paths` nor ELSEWHERE has."""
    return {name for name in CITED.findall(text) if name not in ELSEWHERE and name not in paths}


def ends(file: Path) -> Iterator[str]:
    """Each end of a file's path: c.py, b/c.py, a/b/c.py."""
    parts = file.relative_to(ROOT).parts
    yield from ("/".join(parts[at:]) for at in range(len(parts)))


def known_paths() -> set[str]:
    folders = (*PACKAGES, "docs", "editors", "tests", "examples", "release")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.*") if "node_modules" not in file.parts]
    return {end for file in [*files, *ROOT.glob("*.*")] for end in ends(file)}


def test_every_cited_file_exists():
    paths = known_paths()
    wrong = {
        str(file.relative_to(ROOT)): names for file in sources() if (names := missing("\n".join(prose(file)), paths))
    }
    assert wrong == {}


def test_a_file_that_does_not_exist_is_named():
    assert missing("see engine/nothing.py, http/routes.py and x.c", known_paths()) == {"engine/nothing.py"}
