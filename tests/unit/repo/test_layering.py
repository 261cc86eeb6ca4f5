"""The house has two wings on one ground floor and one door to each foreign library; this reads the imports and looks.

top     cli, once, demo, doctor, terminal, tune, stats_page, verify, bench/     may import everything
wings   lsp/    |    engine/                          never each other, never the top
ground  config, errors, cards, weights, ...           never a wing, never torch at import time
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "speclsp"
TOP = {"__main__", "cli", "once", "demo", "doctor", "terminal", "tune", "bench", "stats_page", "verify"}
DOORS = {  # foreign library -> the modules that may import it
    "pygls": {"lsp.server", "lsp.protocol"},
    "tree_sitter": {"lsp.syntax"},
    "httpx": {"lsp.wire", "lsp.far"},
    "starlette": {"engine.service", "engine.leases", "engine.process"},
    "uvicorn": {"engine.guard", "engine.process"},
    "keyring": {"secret"},
    "transformers": {"engine.reading"},
    "bitsandbytes": {"engine.reading"},
    "tokenizers": {"engine.reading", "convert"},
    "huggingface_hub": {"hub"},
    "triton": {"engine.kernels"},
    "matplotlib": {"bench.plots"},
    "tomlkit": {"config_file"},
    "pathspec": {"lsp.ignored"},
}
HEAVY = {"torch", "transformers", "bitsandbytes"}


@dataclass(frozen=True)
class Import:
    """One import statement: `who` imports `what` (a module or a name in one)."""

    who: str  # without the leading "speclsp."
    what: str
    line: int
    when: str  # "import": as the module is imported; "call": in a function; "types": for the type checker alone

    def __str__(self) -> str:
        return f"speclsp/{self.who.replace('.', '/')}.py:{self.line} imports {self.what}"


def modules() -> dict[str, Path]:
    """{dotted name without "speclsp.": file}; a package is named without __init__."""
    names = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imports_of(who: str, source: str) -> Iterator[Import]:
    """Every import in a module's source, wherever it stands, importlib.import_module("...") included."""
    pending: list[tuple[ast.AST, str]] = [(ast.parse(source), "import")]
    while pending:
        node, when = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(who, alias.name, node.lineno, when)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{who}:{node.lineno}: write imports in full"
            for alias in node.names:
                yield Import(who, f"{node.module}.{alias.name}", node.lineno, when)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            named = node.args[0] if node.args else None
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                yield Import(who, named.value, node.lineno, when)
        if when == "import" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            when = "call"
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            when = "types"
        pending += [(child, when) for child in ast.iter_child_nodes(node)]


def all_imports() -> list[Import]:
    return [found for who, file in modules().items() for found in imports_of(who, file.read_text(encoding="utf-8"))]


def floor(name: str) -> str:
    """ "lsp" | "engine" | "top" | "ground" for a module name without "speclsp."."""
    room = name.partition(".")[0]
    return room if room in ("lsp", "engine") else "top" if room in TOP else "ground"


def ours(found: Import) -> str | None:
    """The module of speclsp that is imported, without "speclsp."; None for a foreign one."""
    if found.what != "speclsp" and not found.what.startswith("speclsp."):
        return None
    name = found.what.removeprefix("speclsp").removeprefix(".")
    return name if name in modules() else name.rpartition(".")[0]


def offences(found: Import) -> Iterator[str]:
    """What is wrong with one import."""
    here, target = floor(found.who), ours(found)
    if target:
        there = floor(target)
        if {here, there} == {"lsp", "engine"}:
            yield f"{found}: the wings do not know each other"
        if here == "ground" and there != "ground" and found.who:
            yield f"{found}: the ground floor does not know the rooms above"
        if here in ("lsp", "engine") and there == "top":
            yield f"{found}: a wing does not know what stands on it"
        return
    library = found.what.partition(".")[0]
    library = "tree_sitter" if library.startswith("tree_sitter") else library
    if library in DOORS and found.who not in DOORS[library] and found.when != "types":
        yield f"{found}: the door to {library} is {' and '.join(sorted(DOORS[library]))}"
    if library in HEAVY and here == "lsp":
        yield f"{found}: the editor wing is light"
    if library in HEAVY and here != "engine" and found.when == "import":
        yield f"{found}: outside engine/, torch is imported inside functions only"


def test_every_import_stays_in_its_wing_or_goes_down_through_the_one_door():
    found = [offence for found in all_imports() for offence in offences(found)]
    assert found == [], "\n".join(found)


def test_no_module_imports_itself_by_a_detour():
    below: dict[str, set[str]] = {name: set() for name in modules()}
    for found in all_imports():
        target = ours(found)
        if target in below and target != found.who and found.when == "import":
            below[found.who].add(target)
    done: set[str] = set()

    def descend(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, "imports in a circle: " + " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in sorted(below[name]):
                descend(target, (*path, name))
            done.add(name)

    for name in below:
        descend(name, ())


def test_files_and_classes_are_named_for_what_they_are():
    for name, file in modules().items():
        assert not {"utils", "util", "common", "helpers", "misc"} & set(name.split(".")), f"{file}: name it for its job"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith(("Manager", "Factory", "Service")), f"{file}: class {node.name}"


def test_every_module_says_what_it_is_for():
    for name, file in modules().items():
        source = file.read_text(encoding="utf-8")
        assert not source or ast.get_docstring(ast.parse(source)), f"{name or 'speclsp'} has no docstring"


@pytest.mark.parametrize(
    ("who", "source", "complaint"),
    [
        ("lsp.session", "from speclsp.engine import seam", "wings"),
        ("engine.draft", "def f():\n    import speclsp.lsp.context.build", "wings"),
        ("weights", "from speclsp.lsp.documents.document import Snapshot", "rooms above"),
        ("lsp.server", "from speclsp import cli", "stands on it"),
        ("lsp.session", "import pygls.server", "door to pygls"),
        ("lsp.context", "import tree_sitter_python", "door to tree_sitter"),
        ("lsp.context", "import importlib\nimportlib.import_module('tree_sitter_rust')", "door to tree_sitter"),
        ("lsp.context", "import torch", "light"),
        ("weights", "import torch", "inside functions"),
        ("weights", "try:\n    import torch\nexcept ImportError:\n    pass", "inside functions"),
        ("cards", "from huggingface_hub import hf_hub_download", "door to huggingface_hub"),
    ],
)
def test_the_check_itself_sees(who: str, source: str, complaint: str):
    assert any(complaint in offence for found in imports_of(who, source) for offence in offences(found))


@pytest.mark.parametrize(
    ("who", "source"),
    [
        ("weights", "def convert():\n    import torch"),
        ("weights", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("lsp.server", "from pygls import server\nfrom speclsp.lsp import session\nfrom speclsp.config import Config"),
        ("engine.decoder", "import torch"),
        ("engine.prompt", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tokenizers import Tokenizer"),
        ("once", "from speclsp.lsp import context\nfrom speclsp.engine import seam"),
    ],
)
def test_the_check_lets_through(who: str, source: str):
    assert [offence for found in imports_of(who, source) for offence in offences(found)] == []
