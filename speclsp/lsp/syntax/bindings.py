"""Name resolution within one document: what an identifier defines, or which definition it means.

    name ─► its occurrences in the text ─► section `locals` of queries/NAME.scm, at each of them ─► roles and scopes
         ─► the innermost scope around an occurrence that has a definition of the name

Captures of the section, at an identifier, and at what is around it:

    definition            defines the name in the innermost scope around it: a parameter, a variable
    definition.outer      defines it in the scope around that one: the name of a function or class, which is a scope
    definition.function   defines it in the innermost function: `var`
    definition.field      defines a member of the class around it
    member, member.own    the member in `x.name`; in `self.name`
    shorthand             `{ name }`: the name is a key too
    label                 the name of an argument or key; `@owner` in its match is what is called
    name                  any other identifier
    scope                 a node in which definitions hold; scope.function, scope.class: a function's and a class's
    after                 a definition in its match holds only after the end of this node

A name in a scope.class is not visible in the functions of the class. A language where it is captures a plain scope, and
its members as both definition and definition.field. Only the text near each occurrence is examined, so the time does
not depend on the size of the document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from speclsp.lsp.syntax.tree import SyntaxTree, load_query

SECTION = "locals"
MAX_OCCURRENCES = 120  # of one name
CLOCK_EVERY = 8  # occurrences
DEFINITION, OUTER, FUNCTION, FIELD = "definition", "definition.outer", "definition.function", "definition.field"
MEMBER, OWN_MEMBER, LABEL, NAME = "member", "member.own", "label", "name"
SHORTHAND = "shorthand"
ROLES = frozenset({DEFINITION, OUTER, FUNCTION, FIELD, MEMBER, OWN_MEMBER, LABEL, NAME, SHORTHAND})
VARIABLE_ROLES = frozenset({DEFINITION, OUTER, FUNCTION, NAME})
SCOPE, FUNCTION_SCOPE, CLASS_SCOPE = "scope", "scope.function", "scope.class"


@dataclass(frozen=True, slots=True, order=True)
class NameScope:
    """A range of the document in which definitions hold. `kind`: one of the captures of a scope; "" is the document."""

    start: int
    end: int
    kind: str = ""


@dataclass(frozen=True)
class Occurrence:
    """An identifier at `[start, end)`. `scopes`: those around it, the innermost first; the last one is the document."""

    start: int
    end: int
    roles: frozenset[str]
    scopes: tuple[NameScope, ...]
    after: int = -1  # its definition holds from this offset on
    owner: str = ""  # of a label: what is called

    @property
    def is_variable(self) -> bool:
        """True for a definition or a use of a name that is resolved by scopes."""
        return bool(self.roles & VARIABLE_ROLES) and not (OUTER in self.roles and self.class_of_method)

    @property
    def is_definition(self) -> bool:
        return self.defines is not None

    @cached_property
    def class_of_method(self) -> NameScope | None:
        """The class whose method or inner class this name defines."""
        is_method = OUTER in self.roles and len(self.scopes) > 1 and self.scopes[1].kind == CLASS_SCOPE
        return self.scopes[1] if is_method else None

    @cached_property
    def defines(self) -> NameScope | None:
        """The scope in which it defines its name; None for a use, and for a member."""
        if OUTER in self.roles:
            return None if self.class_of_method else self.scopes[min(1, len(self.scopes) - 1)]
        if FUNCTION in self.roles:
            return next((scope for scope in self.scopes if scope.kind == FUNCTION_SCOPE), self.scopes[-1])
        return self.scopes[0] if DEFINITION in self.roles else None

    @cached_property
    def own_class(self) -> NameScope | None:
        """The class of which it is a member, as far as the document tells."""
        if self.class_of_method:
            return self.class_of_method
        if self.roles & {OWN_MEMBER, FIELD} or (self.roles & VARIABLE_ROLES and self.scopes[0].kind == CLASS_SCOPE):
            return next((scope for scope in self.scopes if scope.kind == CLASS_SCOPE), None)
        return None

    @property
    def is_field_definition(self) -> bool:
        """True if it defines a member of its class."""
        is_direct = DEFINITION in self.roles and self.scopes[0].kind == CLASS_SCOPE
        return FIELD in self.roles or self.class_of_method is not None or is_direct

    def visible_scopes(self) -> Iterator[NameScope]:
        """The scopes whose definitions it can mean, the innermost first."""
        for level, scope in enumerate(self.scopes):
            if level == 0 or scope.kind != CLASS_SCOPE:
                yield scope


def has_bindings(tree: SyntaxTree) -> bool:
    """True if the tree's language has a section `locals`."""
    return load_query(tree.grammar, SECTION) is not None


def occurrences(
    tree: SyntaxTree, name: str, low: int, high: int, is_late: Callable[[], bool] = lambda: False
) -> list[Occurrence]:
    """The occurrences of an identifier in `[low, high)` of the document, from top to bottom, as far as time allows.

    An occurrence in a comment or in a string is none.
    """
    result = list[Occurrence]()
    for match in re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])").finditer(tree.text, low, high):
        if len(result) == MAX_OCCURRENCES or (len(result) % CLOCK_EVERY == 0 and is_late()):
            break
        occurrence = at(tree, match.start(), match.end())
        if occurrence is not None:
            result.append(occurrence)
    return result


def at(tree: SyntaxTree, start: int, end: int) -> Occurrence | None:
    """The identifier at `[start, end)`; None if there is none."""
    view = tree.view
    low, high = view.to_byte(view.to_view(start)), view.to_byte(view.to_view(end))
    roles, scopes, after, owner = set[str](), dict[tuple[int, int], str](), -1, ""
    for captures in tree.matches(SECTION, low, high):
        here = {
            name
            for name, nodes in captures.items()
            for node in nodes
            if (node.start_byte, node.end_byte) == (low, high)
        }
        roles |= here & ROLES
        for kind in (SCOPE, FUNCTION_SCOPE, CLASS_SCOPE):
            for node in captures.get(kind, ()):
                if node.start_byte <= low and high <= node.end_byte:
                    scopes[node.start_byte, node.end_byte] = kind
        if here and "after" in captures:
            after = view.to_document(captures["after"][0].end_byte, end=True)
        if LABEL in here and "owner" in captures:
            owner = tree.node_text(captures["owner"][0])
    if not roles:
        return None
    ranges = sorted(scopes.items(), key=lambda item: item[0][1] - item[0][0])
    around = [
        NameScope(view.to_document(first), view.to_document(last, end=True), kind) for (first, last), kind in ranges
    ]
    if roles - {NAME, SHORTHAND}:
        roles -= {NAME}
    return Occurrence(start, end, frozenset(roles), (*around, NameScope(0, len(tree.text))), after, owner)


def scope_of(occurrence: Occurrence, definitions: Sequence[Occurrence]) -> NameScope | None:
    """The scope of the definition that an occurrence means; None if none of `definitions` holds there."""
    definition = meaning(occurrence, definitions)
    return definition.defines if definition is not None else None


def meaning(occurrence: Occurrence, definitions: Sequence[Occurrence]) -> Occurrence | None:
    """The definition that an occurrence means, the first of equal ones; itself if it is a definition.

    Where definitions hold only after their statement, it is the last one before the occurrence.
    """
    if occurrence.defines is not None:
        scopes: Iterator[NameScope] = iter((occurrence.defines,))
    else:
        scopes = occurrence.visible_scopes()
    for scope in scopes:
        local = [definition for definition in definitions if definition.defines == scope]
        before = [definition for definition in local if 0 <= definition.after <= occurrence.start]
        always = [definition for definition in local if definition.after < 0]
        if occurrence.defines is not None and occurrence.after >= 0:
            return occurrence
        if before:
            return before[-1]
        if always:
            return always[0]
    return None
