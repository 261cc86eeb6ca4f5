"""Uses of one module's name in a document that imports it, after the module has renamed it.

    from shapes import area               the name, and its uses as far as scopes decide that they mean it
    from shapes import area as surface    the name alone: the alias stays
    import shapes                         `shapes.area`
    export { area } from "./shapes"       `size as area`: this document still exports the old name

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

Means = Callable[[str], bool]  # True for a module, as the document writes it, that is the renamed name's


@dataclass(frozen=True, slots=True)
class NameUse:
    """One use of the old name at `[start, end)`, and the text that replaces it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class ImportedUses:
    """The uses of a name in one document, from top to bottom."""

    uses: tuple[NameUse, ...] = ()
    is_bound: bool = False  # an import defines the name in the document, under the old or the new name


@dataclass(frozen=True, slots=True)
class Names:
    """The occurrences of both names in a document."""

    old: list[Occurrence]
    new: list[Occurrence]

    @classmethod
    def of(cls, tree: SyntaxTree, old: str, new: str) -> Names:
        end = len(tree.text)
        of_new = bindings.occurrences(tree, new, 0, end)
        return cls(bindings.occurrences(tree, old, 0, end, renamed_to=of_new), of_new)


def imported_uses(tree: SyntaxTree, old: str, new: str, means: Means) -> ImportedUses:
    """The uses of a name that the document imports from a module for which `means` is true."""
    statements, prefixes = list[tuple[int, int, int, Import]](), dict[str, None]()
    for start, end in tree.imports():
        statement = tree.text[start:end]
        for entry in file_imports.read(tree.grammar, statement):
            if not {old, new} & {*entry.names}:
                prefixes |= dict.fromkeys(module_prefixes(tree.grammar, statement, entry, means))
            elif means(entry.module):
                statements.append((start, end, statement.find(entry.module), entry))
    uses, imported = list[NameUse](), list[Occurrence]()
    names = Names.of(tree, old, new) if statements else Names([], [])
    for start, end, module, entry in statements:
        inside = list(specifiers(names.old + names.new, start, end, module, entry))
        imported += [name for name in inside if name.is_definition]
        uses += [renamed_specifier(tree, name, old, new) for name in inside if is_fixed(name, names.old)]
    uses += [NameUse(use.start, use.end, bindings.renamed(use, old, new)) for use in of_definitions(names, imported)]
    for prefix in prefixes:
        uses += through_module(tree, prefix, old, new)
    unique = {use.start: use for use in uses}
    return ImportedUses(tuple(unique[start] for start in sorted(unique)), bool(imported))


def defined(tree: SyntaxTree, occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    """The definitions among some occurrences that hold in the whole document and are no imports."""
    imports = tree.imports()
    return [
        name for name in occurrences if is_global(name) and not any(start <= name.start < end for start, end in imports)
    ]


def is_global(name: Occurrence) -> bool:
    """True for a definition that holds in the whole document."""
    return name.defines is not None and name.defines == name.scopes[-1]


def specifiers(names: Sequence[Occurrence], start: int, end: int, module: int, entry: Import) -> Iterator[Occurrence]:
    """The names that an import statement in `[start, end)` takes from its module. `module`: its offset in there."""
    low, high = start + module, start + module + len(entry.module)
    for name in names:
        if start <= name.start < end and not low <= name.start < high and SHORTHAND not in name.roles:
            yield name


def is_fixed(name: Occurrence, old: Sequence[Occurrence]) -> bool:
    """True for an old name in an import that defines nothing: it has an alias, or is exported again."""
    return name in old and not name.is_definition


def renamed_specifier(tree: SyntaxTree, name: Occurrence, old: str, new: str) -> NameUse:
    """The new name before an alias; else the new name with the old one as its alias."""
    has_alias = ALIAS.match(tree.text, name.end) is not None
    return NameUse(name.start, name.end, new if has_alias else f"{new} as {old}")


def of_definitions(names: Names, definitions: Sequence[Occurrence]) -> list[Occurrence]:
    """The occurrences of the old name that mean one of these definitions, under either name; themselves included."""
    result = list[Occurrence]()
    old_definitions, new_definitions = ([name for name in of if name.is_definition] for of in (names.old, names.new))
    for scope in dict.fromkeys(definition.defines for definition in definitions):
        own = [definition for definition in definitions if definition.defines == scope]
        if any(other.defines == scope and other not in own for other in (*old_definitions, *new_definitions)):
            continue
        known = sorted({*old_definitions, *own}, key=lambda name: name.start)
        result += [
            name
            for name in names.old
            if name.is_variable
            and bindings.scope_of(name, known) == scope
            and bindings.scope_of(name, new_definitions) in (scope, None)
        ]
    return result


# ── names of an imported module ───────────────────────────────────────────────────────────────────────────────────────


def module_prefixes(grammar: str, statement: str, entry: Import, means: Means) -> Iterator[str]:
    """The names by which a document calls the module after an import statement: `shapes`, `lib.shapes`."""
    rules = BY_NAME[grammar].imports
    if not entry.names or entry.names == ("*",):
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
    definitions = [name for name in names if name.is_definition]
    imports = tree.imports()
    for definition in definitions:
        if is_global(definition) and not any(start <= definition.start < end for start, end in imports):
            return
    ending = re.compile(rf"{re.escape(prefix)}\.{re.escape(old)}(?!\w)")
    for name in names:
        match = ending.match(text, name.start)
        scope = bindings.scope_of(name, definitions) if match is not None and name.is_variable else None
        if match is not None and scope is not None and (scope.start, scope.end) == (0, len(text)):
            yield NameUse(match.end() - len(old), match.end(), new)
