"""Uses of one module's name in a document that imports it, after the module has renamed it.

    from shapes import area               the name, and its uses as far as scopes decide that they mean it
    from shapes import area as surface    the name alone: the alias stays
    import shapes                         `shapes.area`, `shapes::area`
    export { area } from "./shapes"       `size as area`: this document still exports the old name
    package shapes                        a file of the same package: uses that no scope of its own defines

A document is left alone where the name has a second definition in the scope of the import, or where that scope
defines the new name. Imports below the top level are not examined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from speclsp.lsp.index import file_imports
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import SHORTHAND, Occurrence
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.tree import SyntaxTree

ALIAS = re.compile(r"\s+as\b")
ALL_AS = re.compile(r"\*\s*as\s+(\w+)")
PATH = re.compile(r"(?<![\w:])((?:\w+::)*\w+)::\Z")
ROOTS = ("crate", "self", "super")  # of such a path
MAX_PATH = 200  # characters left of a name that are looked at

Names = Sequence[Occurrence]
Means = Callable[[str], bool]  # True for a module, as the document writes it, that is the renamed name's


@dataclass(frozen=True, slots=True)
class NameUse:
    """One use of the old name at `[start, end)`, and the text that replaces it."""

    start: int
    end: int
    text: str


def imported_uses(tree: SyntaxTree, old: str, new: str, means: Means, package: str) -> tuple[list[NameUse], bool]:
    """(the uses of a name that the document imports from a module for which `means` is true, it imports the name).

    `package`: the name of the module's package, in a language that has them. "" means the document's own one.
    """
    statements, prefixes, paths = list[tuple[int, int, int, Import]](), dict[str, None](), dict[str, str]()
    for start, end in tree.imports():
        statement = tree.text[start:end]
        for entry in file_imports.read(tree.grammar, statement):
            paths |= {name: f"{entry.module}::{name}" for name in entry.names}
            if not {old, new} & {*entry.names}:
                prefixes |= dict.fromkeys(module_prefixes(tree.grammar, statement, entry, means, package))
            elif means(entry.module):
                statements.append((start, end, statement.find(entry.module), entry))
    uses, imported, olds, news = list[NameUse](), list[Occurrence](), list[Occurrence](), list[Occurrence]()
    if statements or package or "::" in tree.text:
        news = bindings.occurrences(tree, new, 0, len(tree.text))
        olds = bindings.occurrences(tree, old, 0, len(tree.text), renamed_to=news)
    for start, end, module, entry in statements:
        low, high = start + module, start + module + len(entry.module)  # names in there are parts of the module's
        inside = [name for name in olds + news if start <= name.start < end and not low <= name.start < high]
        bound = [name for name in inside if name.is_definition and not tree.text.startswith("pub ", start)]
        imported += bound  # not where it has an alias, or is exported again
        others = [name for name in inside if name in olds and name not in bound and SHORTHAND not in name.roles]
        uses += [NameUse(name.start, name.end, specifier(tree, name, old, new)) for name in others]
    plain = [*(of_package(tree, olds, news) if means("") else behind_path(tree, olds, paths, means))]
    imported += [use for use in plain if use.is_definition]  # by an import below the top level
    uses += [NameUse(use.start, use.end, bindings.renamed(use, old, new)) for use in of_imports(olds, news, imported)]
    uses += [NameUse(use.start, use.end, new) for use in plain]
    for prefix in prefixes:
        uses += through_module(tree, prefix, old, new)
    unique = {use.start: use for use in uses}
    return [unique[start] for start in sorted(unique)], bool(imported)


def defined(tree: SyntaxTree, names: Names) -> list[Occurrence]:
    """The definitions among some occurrences that hold in the whole document and are no imports."""
    imports, definitions = tree.imports(), [name for name in names if name.is_definition]
    in_document = [name for name in definitions if name.defines == name.scopes[-1]]
    return [name for name in in_document if not any(start <= name.start < end for start, end in imports)]


def definitions(tree: SyntaxTree, name: str) -> list[Occurrence]:
    """The definitions of a name that hold in the whole document and are no imports."""
    return defined(tree, bindings.occurrences(tree, name, 0, len(tree.text)))


def specifier(tree: SyntaxTree, name: Occurrence, old: str, new: str) -> str:
    """The new name before an alias; else the new name with the old one as its alias."""
    return new if ALIAS.match(tree.text, name.end) else f"{new} as {old}"


def of_imports(olds: Names, news: Names, imported: Names) -> list[Occurrence]:
    """The occurrences of the old name that mean one of these definitions, under either name; themselves included."""
    result = list[Occurrence]()
    old_definitions, new_definitions = ([name for name in names if name.is_definition] for names in (olds, news))
    for scope in dict.fromkeys(definition.defines for definition in imported):
        own = [definition for definition in imported if definition.defines == scope]
        if any(other.defines == scope and other not in own for other in (*old_definitions, *new_definitions)):
            continue
        known = sorted({*old_definitions, *own}, key=lambda name: name.start)
        result += [
            name
            for name in olds
            if name.is_variable
            and bindings.scope_of(name, known) == scope
            and bindings.scope_of(name, new_definitions) in (scope, None)
        ]
    return result


def of_package(tree: SyntaxTree, olds: Names, news: Names) -> list[Occurrence]:
    """The occurrences of the old name that another file of the package defines."""
    local = [name for name in (*olds, *news) if name.is_definition]
    uses = [name for name in olds if name.is_variable and not tree.text.startswith(".", name.start - 1)]
    return [] if defined(tree, local) else [name for name in uses if bindings.scope_of(name, local) is None]


# ── names of an imported module ───────────────────────────────────────────────────────────────────────────────────────


def module_prefixes(grammar: str, statement: str, entry: Import, means: Means, package: str) -> Iterator[str]:
    """The names by which a document calls the module after an import statement: `shapes`, `lib.shapes`."""
    rules = BY_NAME[grammar].imports
    if package:
        match = re.search(rf'(?:\b(?!import\b)(\w+)\s+)?"{re.escape(entry.module)}"', statement)
        yield from [match[1] or package] if match is not None and means(entry.module) else ()
        return
    if not entry.names:
        whole = re.search(rf"(?<![\w.\"']){re.escape(entry.module)}(?![\w.\"'])(?:\s+as\s+(\w+))?", statement)
        match = ALL_AS.search(statement) or whole
        if match is not None and means(entry.module):
            yield match[1] or entry.module
    elif rules is not None and rules.names_can_be_files:
        package = f"{entry.module}." if entry.module.strip(".") else entry.module
        for name in entry.names:
            if means(package + name):
                alias = re.search(rf"\b{re.escape(name)}\s+as\s+(\w+)", statement)
                yield alias[1] if alias is not None else name


def through_module(tree: SyntaxTree, prefix: str, old: str, new: str) -> Iterator[NameUse]:
    """The uses of a module's name behind the module: `shapes.area`."""
    text, first = tree.text, prefix.partition(".")[0]
    names = bindings.occurrences(tree, first, 0, len(text))
    local = [name for name in names if name.is_definition]
    if defined(tree, local):
        return
    ending = re.compile(rf"{re.escape(prefix)}\.{re.escape(old)}(?!\w)")
    for name in names:
        match = ending.match(text, name.start)
        scope = bindings.scope_of(name, local) if match is not None else None
        is_module = scope is None or (scope.start, scope.end) == (0, len(text))
        if match is not None and name.is_variable and is_module:
            yield NameUse(match.end() - len(old), match.end(), new)


def behind_path(tree: SyntaxTree, olds: Names, paths: dict[str, str], means: Means) -> Iterator[Occurrence]:
    """The occurrences behind a module's path: `crate::shapes::area`. `paths`: of imported names."""
    for name in olds:
        match = PATH.search(tree.text, max(0, name.start - MAX_PATH), name.start)
        if match is not None and not any(start <= name.start < end for start, end in tree.imports()):
            first, separator, rest = match[1].partition("::")
            path = first if first in ROOTS else paths.get(first, f"self::{first}")
            if means(path + separator + rest):
                yield name
