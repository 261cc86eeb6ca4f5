"""Outline of a file for the index: its definitions that others can use, one line each, and its imports.

Functions, methods, classes, types, constants, fields; nothing that is local to a function. A signature is the source
up to the body on one line: types and defaults stay. Lines count from 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from speclsp.lsp.index import import_statements
from speclsp.lsp.syntax import tree as syntax
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.languages.record import OutlineRules
from speclsp.lsp.visibility import secret_text

MAX_SYMBOLS = 2000  # of one file
_LOOKED_AT = 4 * MAX_SYMBOLS  # locals are among them
_SIGNATURE_CHARS = 240
_VALUE_CHARS = 120
_MAX_AROUND = 40

_BLANKS = re.compile(r"\s+")
_NAME = re.compile(r"(?:[^\W\d]|[$~#@])[\w$]*(?:(?:::|\.)~?\w+)*[?!=]?")
_POINTED = re.compile(r"\(\s*[*&^]+\s*(\w+)")
_OPENED = re.compile(r"(?:\s|=>|[:{=(\[;,]|\bwhere\b)+\Z")  # opens a body, or a value that continues
_ANNOTATIONS = re.compile(r"\A(?:@[\w.]+(?:\([^()]*\))?\s+)+(?=\w|@|<)")
_VALUES = frozenset({"variable", "constant", "field", "macro"})
_MAY_BE_SECRET = re.compile(r"\d|://|PRIVATE KEY")
_IN_ANGLES = re.compile(r"<[^<>]*>")
_HOLDERS = frozenset({"class", "interface", "enum", "scope", "module", "type"})


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition."""

    path: str  # of its file, in the workspace folder
    name: str
    container: str  # the class, trait or namespace it is a member of: "Outer.Inner"; "" at the top
    kind: str  # "function" "method" "property" "class" "interface" "enum" "type" "constant" "variable" "field" ...
    signature: str  # one line, without the body and what opens it
    line: int


@dataclass(frozen=True, slots=True)
class Outline:
    """One file."""

    symbols: tuple[Symbol, ...]
    imports: tuple[Import, ...]


def outline(tree: syntax.SyntaxTree, path: str = "") -> Outline:
    """Definitions and imports of the file at `path`."""
    rules = BY_NAME[tree.grammar].outline
    by_key: dict[tuple[str, str, str], tuple[int, Symbol]] = {}  # last line, and the symbol
    lines = tree.text.split("\n")
    around: list[tuple[int, str, str]] = []  # (end, kind, name) of what the next one may lie in, outermost first
    for item in tree.definitions(_LOOKED_AT):
        while around and around[-1][0] <= item.start:
            around.pop()
        name, owner = _named(item.name)
        written = bool(owner) or bool(item.container)
        local = any(kind == "function" for _, kind, _ in around)
        if item.init:  # self.x, in __init__, or this.x in a constructor
            local = [kind for _, kind, _ in around][-2:] != ["class", "function"] or len(around) > _MAX_AROUND
        holders = [holder for _, kind, holder in around if kind in _HOLDERS]
        in_class = bool(around) and around[-1][1] != "module"
        if (item.kind == "function" or item.kind in _HOLDERS) and len(around) <= _MAX_AROUND:
            around.append((item.end, item.kind, name))
        if local or not name or item.kind == "scope" or (item.kind == "field" and not holders and not item.init):
            continue
        if item.kind in _HOLDERS and holders and holders[-1] == name:  # typedef struct s { … } s
            continue
        owner = owner or _named(item.container)[0] or ".".join(holders[-3:])
        kind = _kind(item, name, lines, rules, bool(owner) and (in_class or written))
        signature = _without_secrets(_signature(tree, item, rules))
        if "= require(" in signature:
            continue
        symbol = Symbol(path, name, owner, kind, signature, item.line)
        end_line, before = by_key.setdefault((name, owner, kind), (item.end_line, symbol))
        if end_line - before.line < item.end_line - item.line and item.kind == "function":
            by_key[name, owner, kind] = item.end_line, symbol  # a definition says more than its declaration
        if len(by_key) >= MAX_SYMBOLS:
            break
    ordered = sorted(by_key.values(), key=lambda entry: (entry[1].line, -entry[0]))
    return Outline(tuple(symbol for _, symbol in ordered), tuple(imports(tree)))


def imports(tree: syntax.SyntaxTree) -> list[Import]:
    """Imports of the file, in order."""
    result: list[Import] = []
    for start, end in tree.imports():
        result += import_statements.read(tree.grammar, tree.text[start:end])
    return result


def _kind(item: syntax.Definition, name: str, lines: list[str], rules: OutlineRules, member: bool) -> str:
    if item.kind in ("function", "prototype"):
        if rules.property_decorator and _is_property(lines, item.line, rules.property_decorator):
            return "property"
        return "method" if member else "function"
    if item.kind == "field" and item.callable:
        return "method"
    return "constant" if item.kind == "variable" and name.isupper() else item.kind


def _named(written: str) -> tuple[str, str]:
    """(name, what it is a member of) from a name, or from a C declarator with its stars and parameters."""
    pointer = _POINTED.search(written)
    if pointer:
        return pointer[1], ""
    plain = _IN_ANGLES.sub("", _IN_ANGLES.sub("", written)) if "<" in written else written
    words = _NAME.findall(re.split(r"[(<\[={;]", plain, maxsplit=1)[0])
    if not words:
        return "", ""
    *owners, name = re.split(r"::|\.|:", words[-1])
    return name, ".".join(owners)


def _signature(tree: syntax.SyntaxTree, item: syntax.Definition, rules: OutlineRules) -> str:
    """The source up to the body, on one line. A value is kept as far as its first line goes."""
    written = tree.text[item.start : min(item.body, item.end, item.start + 4 * _SIGNATURE_CHARS)]
    most = _SIGNATURE_CHARS
    if item.body >= item.end and (item.kind in _VALUES or rules.first_line_only):
        written, most = written.split("\n", 1)[0], _VALUE_CHARS
    line = _ANNOTATIONS.sub("", _BLANKS.sub(" ", written).strip())
    line = _OPENED.sub("", line)[:most]
    return f"{rules.kind_words[item.kind]} {line}" if item.kind in rules.kind_words else line


def _without_secrets(line: str) -> str:
    """The line without what looks like a key or a password in it."""
    if _MAY_BE_SECRET.search(line):
        for secret in secret_text.secrets(line):
            line = line.replace(secret, "…")
    return line


def _is_property(lines: list[str], row: int, decorator: str) -> bool:
    """True if a decorator above the line `row` makes a function a property."""
    for above in range(row - 1, max(row - 5, -1), -1):
        line = lines[above].strip()
        if not line.startswith("@"):
            return False
        if line.endswith(decorator):
            return True
    return False
