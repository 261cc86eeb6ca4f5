"""Parser of import statements: the module, the imported names, and their local names.

It reads the statement's own text, which the grammar has delimited: Python, JavaScript and TypeScript, Rust, Go, C and
C++, Java, and languages with a similar syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_LONGEST = 4000  # characters of one statement
_MOST = 200  # imports in one statement


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module."""

    module: str  # as the language writes it: "a.b", "..a", "./a.js", "crate::a::b", "a/b.h"
    names: tuple[tuple[str, str], ...] = ()  # of the module: (its name there, its name here); ("*", "*") for all
    alias: str = ""  # what the module itself is called here; "" where it is not
    line: int = 0


def read(grammar: str, statement: str, line: int = 0) -> list[Import]:
    """The imports of one statement."""
    reader = _READERS.get(grammar)
    if reader is None or len(statement) > _LONGEST:
        return []
    imports = []
    for statement_import in reader(statement):
        imports.append(Import(statement_import.module, statement_import.names, statement_import.alias, line))
        if len(imports) >= _MOST:
            break
    return imports


def _pairs(written: str, word: str) -> tuple[tuple[str, str], ...]:
    """(name there, name here) of "a, b as c"."""
    pairs = []
    for part in written.split(","):
        there, _, here = part.strip().partition(word)
        there, here = there.strip().removeprefix("type "), here.strip()
        if there:
            pairs.append((there, here or there))
    return tuple(pairs)


def _python(statement: str) -> Iterator[Import]:
    bare = re.sub(r"#[^\n]*|\\\n", " ", statement)
    named = re.match(r"\s*from\s+(\.*\s*[\w.]*)\s+import\s+\(?([^)]*)", bare)
    if named:
        yield Import(named[1].replace(" ", ""), _pairs(named[2], " as "))
        return
    for there, here in _pairs(re.sub(r"^\s*import\s+", "", bare), " as "):
        yield Import(there, alias=here)


def _javascript(statement: str) -> Iterator[Import]:
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", statement, flags=re.DOTALL)
    source = re.search(r"""(?:from|import|require\s*\()\s*(["'])([^"'\n]+)\1""", bare)
    if source is None:
        return
    head = bare[: source.start()]
    braces = re.search(r"\{([^}]*)\}", head)
    names = _pairs(braces[1].replace(":", " as ") if braces else "", " as ")
    everything = re.search(r"\*\s*as\s+([\w$]+)", head)
    if re.match(r"\s*export\s*\*\s*$", head):
        names = (("*", "*"),)
    default = re.match(r"\s*(?:import|const|let|var)\s+(?:type\s+)?([\w$]+)\s*(?:,|=|\Z|from)", head)
    if default and default[1] != "type":
        required = "require" in source[0]
        if not required:
            names = (("default", default[1]), *names)
        yield Import(source[2], names, everything[1] if everything else default[1] if required else "")
        return
    yield Import(source[2], names, everything[1] if everything else "")


def _rust(statement: str) -> Iterator[Import]:
    module = re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", statement)
    if module:
        yield Import(f"self::{module[1]}", alias=module[1])
        return
    used = re.match(r"\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?use\s+(.*?);?\s*\Z", statement, re.DOTALL)
    if used:
        yield from _rust_tree(re.sub(r"\s+", " ", used[1]).strip())


def _rust_tree(tree: str) -> Iterator[Import]:
    """`a::{b, c::{d, e as f}}`, level by level."""
    todo = [("", tree)]
    while todo:
        above, part = todo.pop()
        opened = part.find("{")
        if opened < 0:
            path, _, here = part.partition(" as ")
            *way, name = [piece for piece in (above + path.strip()).split("::") if piece] or [""]
            if name == "self" and way:
                name = way.pop()
            if name:
                yield Import("::".join(way) or name, ((name, here.strip() or name),))
            continue
        head, inner, depth, start = above + part[:opened].strip(), part[opened + 1 :].rstrip(), 0, 0
        inner = inner[:-1] if inner.endswith("}") else inner
        pieces = []
        for at, character in enumerate(inner):
            depth += (character == "{") - (character == "}")
            if character == "," and depth == 0:
                pieces.append(inner[start:at])
                start = at + 1
        pieces.append(inner[start:])
        todo += [(head, piece.strip()) for piece in reversed(pieces) if piece.strip()]


def _go(statement: str) -> Iterator[Import]:
    for match in re.finditer(r'([\w.]+)?[ \t]*"([^"\n]+)"', statement.removeprefix("import")):
        yield Import(match[2], alias=match[1] or match[2].rpartition("/")[2])


def _c(statement: str) -> Iterator[Import]:
    match = re.match(r'\s*#\s*include\s*["<]([^">\n]+)[">]', statement)
    if match:
        yield Import(match[1])


def _java(statement: str) -> Iterator[Import]:
    match = re.match(r"\s*(?:import|using)\s+(static\s+)?([\w.]+?)(?:\.(\*))?\s*;", statement)
    if match and match[2]:
        module, _, name = match[2].rpartition(".")
        yield Import(match[2], (("*", "*"),)) if match[3] else Import(module, ((name, name),))


def _php(statement: str) -> Iterator[Import]:
    for match in re.finditer(r"([\\\w]+\\\w+)(?:\s+as\s+(\w+))?", statement):
        module, _, name = match[1].rpartition("\\")
        yield Import(module, ((name, match[2] or name),))


def _quoted(statement: str) -> Iterator[Import]:
    match = re.search(r"""(?:require\w*|dofile|source|\.)\s*\(?\s*["']([^"'\n]+)["']""", statement)
    if match:
        yield Import(match[1])


_READERS: dict[str, Callable[[str], Iterator[Import]]] = {
    "python": _python,
    **dict.fromkeys(("javascript", "typescript", "tsx"), _javascript),
    "rust": _rust,
    "go": _go,
    **dict.fromkeys(("c", "cpp"), _c),
    **dict.fromkeys(("java", "c_sharp"), _java),
    "php": _php,
    **dict.fromkeys(("ruby", "lua", "bash"), _quoted),
}
