"""The source tree as data: modules, imports of every kind, packages, C headers, cycles, sizes and private names."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Modules that stand for themselves in the table of package edges: both sides of a boundary import them, or their own
# edges are more than those of their package.
SINGLE = (
    *("errors", "private_files", "process_resources"),
    *("lsp.reasons", "engine.api", "engine.truncation", "engine.model.gguf_tensors"),
)
PRIVATE_NAME = re.compile(r"_[A-Za-z]\w*")
IN_PROGRAM = re.compile(r"\b[A-Za-z]\w*\.(_[A-Za-z]\w*)")  # of a test that runs a text as a program
OURS = ("speclsp", "benchmarks")
PATCHING = ("setattr", "delattr", "getattr", "hasattr", "patch", "object")


@dataclass(frozen=True)
class Import:
    """One import statement: module `importer` imports `target`, a module or a name in one."""

    importer: str  # without the leading "speclsp."
    target: str
    line: int
    kind: str  # "module": at import time; "call": inside a function; "types": under TYPE_CHECKING

    def __str__(self) -> str:
        return f"speclsp/{self.importer.replace('.', '/')}.py:{self.line} imports {self.target}"


def modules(package: Path = ROOT / "speclsp") -> dict[str, Path]:
    """{dotted name without the package: file}; a package is named without __init__."""
    names = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imports_of(importer: str, source: str) -> Iterator[Import]:
    """Every import in a source text: module level, functions, TYPE_CHECKING, importlib.import_module("...")."""
    pending: list[tuple[ast.AST, str]] = [(ast.parse(source), "module")]
    while pending:
        node, kind = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, node.lineno, kind)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{importer}:{node.lineno}: write imports in full"
            for alias in node.names:
                yield Import(importer, f"{node.module}.{alias.name}", node.lineno, kind)
        elif isinstance(node, ast.Call) and _callee(node) in ("import_module", "__import__"):
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield Import(importer, argument.value, node.lineno, kind)
        if kind == "module" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            kind = "call"
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            kind = "types"
        pending += [(child, kind) for child in ast.iter_child_nodes(node)]


@functools.cache
def all_imports(package: str = "speclsp") -> tuple[Import, ...]:
    """Every import of every module in a top-level package."""
    return tuple(
        statement
        for name, file in modules(ROOT / package).items()
        for statement in imports_of(name, file.read_text(encoding="utf-8"))
    )


def own_module(statement: Import, names: Mapping[str, Path], package: str = "speclsp") -> str | None:
    """The module of `package` that a statement imports, without the package's name; None for a foreign library."""
    if statement.target != package and not statement.target.startswith(f"{package}."):
        return None
    name = statement.target.removeprefix(package).removeprefix(".")
    return name if name in names else name.rpartition(".")[0]


def package_of(module: str, names: Mapping[str, Path]) -> str:
    """The package a module belongs to, "" for speclsp itself; modules in SINGLE are their own package."""
    if module in SINGLE or names.get(module, Path("x.py")).name == "__init__.py":
        return module
    return module.rpartition(".")[0] or module


def graph_of(package: str, importing: Iterable[Import], names: Mapping[str, Path]) -> dict[str, set[str]]:
    """{module of `package`: the modules of it that it imports}, imports of every kind counted."""
    below: dict[str, set[str]] = defaultdict(set)
    for statement in importing:
        target = own_module(statement, names, package)
        if target and target != statement.importer:
            below[statement.importer].add(target)
    return below


def between_entries(graph: Mapping[str, set[str]], package: str) -> dict[str, set[str]]:
    """The graph between the entries of a package: its folders, and its files, each of which stands for itself."""

    def entry(module: str) -> str:
        return ".".join(module.split(".")[: package.count(".") + 2])

    below: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        if module.startswith(f"{package}."):
            inside = {entry(target) for target in targets if target.startswith(f"{package}.")}
            below[entry(module)] |= inside - {entry(module)}
    return below


# ── C headers: one file includes them in an order, and each relies on those before it ────────────────────────

_COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_FUNCTION = re.compile(r"^(?:[A-Z]+ )?(?:static|void|int32_t|double|Model) [^;{}=\n]*?\b(\w+)\([^;{}]*\) \{", re.M)
_NAME = re.compile(
    r"^#define (\w+)|^typedef [^;{}(]*?(\w+);|^typedef \w+ \(\*(\w+)\)|^(?:typedef .*)?\} ?(\w+);"
    r"|^static [^;(){}=]*?(\w+) = ",
    re.MULTILINE,
)


def header_edges(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """{header: the headers that it includes, and those that define a function, macro, type or constant that it uses}.

    `sources`: {path: text}. A macro that a file undefines is a parameter of a template, and a name that several files
    define belongs to one kind of processor each: neither makes an edge.
    """
    bare = {path: _COMMENT_OR_TEXT.sub(" ", text) for path, text in sources.items()}
    parameters = {name for text in bare.values() for name in re.findall(r"^#undef (\w+)", text, re.MULTILINE)}
    owners: dict[str, set[str]] = defaultdict(set)  # by name; a function's ends with a bracket
    for path, text in bare.items():
        constants = " ".join(re.findall(r"^enum \{(.*?)\}", text, re.MULTILINE | re.DOTALL))
        names = {name for groups in _NAME.findall(text) for name in groups if name}
        names |= {f"{name}(" for name in _FUNCTION.findall(text)} | set(re.findall(r"[A-Z]\w*", constants))
        for name in names - parameters:
            owners[name].add(path)
    below: dict[str, set[str]] = {}
    for path, text in bare.items():
        used = {*re.findall(r"\w+", text), *re.findall(r"(?<![.>\w])\w+\(", text)}
        below[path] = {file for name in used if len(owners[name]) == 1 for file in owners[name]} - {path}
        below[path] |= {
            str(Path(path).parent / name) for name in re.findall(r'^#include "([^"]+)"', sources[path], re.MULTILINE)
        }
    return below


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components of two nodes or more)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in number:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], number[target])
        if low[node] == number[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1 or node in graph.get(node, ()):
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return groups


def long_functions(source: str, most_lines: int) -> Iterator[tuple[str, int]]:
    """(name, lines) of each function longer than `most_lines`, docstring and decorators included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > most_lines:
                yield node.name, lines


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """The number of lines that hold code: no blank lines, comments, docstrings or imports. A text's lines are code."""
    written = (line.strip() for line in source.splitlines())
    code = {number for number, line in enumerate(written, 1) if line and not line.startswith("#")}
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            code.update(lines_of(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(lines_of(node))
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            left_out.update(lines_of(node.body[0]))
    return len(code - left_out)


def lines_of(node: ast.stmt | ast.expr) -> range:
    """The numbers of the lines of a statement or an expression."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def entries_of(folder: Path) -> list[str]:
    """What `ls` shows of a source folder: files and folders, without __init__.py, caches and build products."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in ("__init__.py", "__pycache__") and path.suffix not in (".so", ".dll", ".pyc")
    )


def _callee(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


# ── private names ────────────────────────────────────────────────────────────────────────────────────────────────────


def private_definitions(source: str) -> set[str]:
    """Private names that a source defines: functions, classes, variables, fields and attributes of `self`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and receiver(node) == "self":
            names.add(node.attr)
    return {name for name in names if PRIVATE_NAME.fullmatch(name)}


def private_uses(source: str, product: set[str], tests: set[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of each use of a private name in `product`. `tests`: private names that tests define.

    A test's own class may use its own names, also where the product has the same. It may not override the product's.
    """
    imported = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            imported |= {alias.asname or alias.name for alias in node.names}
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from ((node.lineno, part) for part in parts if PRIVATE_NAME.fullmatch(part))
        elif isinstance(node, ast.Attribute) and node.attr in product:
            if receiver(node) not in ("self", "cls", "super()") or node.attr not in tests:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ClassDef) and {ast.unparse(base).split(".")[0] for base in node.bases} & imported:
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from ((method.lineno, method.name) for method in methods if method.name in product)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(PATCHING):
            texts = (text.value for text in node.args if isinstance(text, ast.Constant) and isinstance(text.value, str))
            yield from ((node.lineno, last) for text in texts if (last := text.rpartition(".")[2]) in product)
        elif isinstance(node, ast.keyword) and node.arg in product:
            yield node.value.lineno, node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value:
            yield from ((node.lineno, name) for name in IN_PROGRAM.findall(node.value) if name in product)


def receiver(node: ast.Attribute) -> str:
    """The expression before the dot."""
    return ast.unparse(node.value)
