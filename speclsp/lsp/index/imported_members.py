"""Uses of a member of an imported type, after the type's module has renamed it, where a document proves the type.

from shapes import Box    box: Box    Box(1)    class Cube(Box)    ─►    box.area    Box(area=1)    def area(self)
import { Card } from "./card", whose properties have the type      ─►    <Card area={1} />
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from itertools import islice

from speclsp.lsp.index import file_imports
from speclsp.lsp.index.imported_uses import Means, NameUse, definitions
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import MAX_OCCURRENCES, word_starts
from speclsp.lsp.syntax.expression_types import ACCESS, SECTION, ExpressionTypes
from speclsp.lsp.syntax.incremental_parse import parse_clock_s
from speclsp.lsp.syntax.tree import SyntaxTree

BUDGET_S = 0.05  # of the processor, for one document; in a thread
CONSTRUCTOR = "__init__"  # a type with one has no arguments that are named like its members

# The start of a function, up to a parameter of a type; {owner} is its name.
COMPONENT = (
    r"(?m)^(?:export\s+)?(?:function|const)\s+(\w+)(?:(?!\n[^\s}}]|=>|\)\s*[:{{])[^;]){{0,400}}?[:<]\s*{owner}\b"
)
IsWritten = Callable[[str, int], bool]  # (text, offset) -> True for a definition that the user has renamed


def types_of(tree: SyntaxTree, old: str, new: str) -> ExpressionTypes:
    """The types in a document."""
    end_s = parse_clock_s() + BUDGET_S
    return ExpressionTypes(tree, (old, new), (0, len(tree.text)), lambda: parse_clock_s() > end_s)


def owners_of(tree: SyntaxTree, old: str, new: str, is_written: IsWritten) -> tuple[set[str], bool]:
    """(the types that have a member of the new name, which the user has written, and none of the old one, is argument).

    The second is True if arguments of the type's constructor may have the names of its members.
    """
    if not tree.has_section(SECTION):
        return set(), False
    types = types_of(tree, old, new)
    written = (new for new in types.definitions(new) if is_written(tree.text, new.start))
    owners = {new.owner for new in written} - {old.owner for old in types.definitions(old)}
    owners |= {match[1] for owner in owners for match in re.finditer(COMPONENT.format(owner=owner), tree.text)}
    return owners, not any(types.declared(owner, CONSTRUCTOR) for owner in owners)


def imported_types(tree: SyntaxTree, owners: Set[str], means: Means) -> set[str]:
    """The names by which a document calls the types that it imports from a module for which `means` is true."""
    names = {*owners} if means("") else set[str]()
    for start, end in tree.imports():
        statement = tree.text[start:end]
        for entry in file_imports.read(tree.grammar, statement):
            for owner in owners & {*entry.names} if means(entry.module) else ():
                alias = re.search(rf"\b{owner}\s+as\s+(\w+)", statement)
                names.add(alias[1] if alias is not None else owner)
    return {name for name in names if not definitions(tree, name)}


def member_uses(tree: SyntaxTree, old: str, new: str, names: Set[str], is_argument: bool) -> Iterator[NameUse]:
    """The uses of a member of the imported types with these names. `is_argument`: as in `owners_of`."""
    types = types_of(tree, old, new)
    for label in bindings.labels(tree, old, 0, len(tree.text), lambda: False):
        if label.owner in names and tree.text.startswith(f"<{label.owner}", tree.text.rfind("<", 0, label.start)):
            yield NameUse(label.start, label.end, new)
    for start in islice(word_starts(tree.text, old, 0, len(tree.text)), MAX_OCCURRENCES):
        member = types.member(start, start + len(old))
        if member is None or not names & {*types.lineage(member.owner)}:
            continue
        if is_argument or member.kind != ACCESS or tree.text.startswith(".", start - 1):
            yield NameUse(start, member.end, f"{new}: {old}" if member.is_shorthand else new)
