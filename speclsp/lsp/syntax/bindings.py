"""Name resolution within one document: what an identifier defines, or which definition it means.

    name ─► its occurrences in the text ─► section `locals` of queries/NAME.scm, at each of them ─► roles and scopes
         ─► the innermost scope around an occurrence that has a definition of the name

Captures of the section, at an identifier, and at what is around it:

    definition            defines the name in the innermost scope around it: a parameter, a variable
    definition.outer      defines it in the scope around that one: the name of a function or class, which is a scope
    definition.function   defines it in the innermost function: `var`
    definition.field      defines a member of the class around it
    assignment            defines it in the innermost scope, unless it is defined in a scope around that one: Ruby
    member, member.own    the member in `x.name`; in `self.name`
    shorthand             `{ name }`: the name is a key too
    exported              `export { name }`: other files import it by this name
    label                 the name of an argument or key; `@owner` in its match is what is called
    name                  any other identifier
    declared.outer        a name that its function has from the function around it: `nonlocal`
    declared.global       a name that its function has from the document: `global`
    quoted, unquoted      a text whose identifiers are uses, as of an annotation in quotes; a text in one that is none
    placeholders          a text with placeholders whose names are uses; the language's record finds them: Rust, Kotlin
    ignored               none of these, whatever else it is captured as
    namespace.NAME        its name is in a namespace of its own: C's tags, Java's methods. Of two, the first by name
    scope                 a node in which definitions hold; scope.function, scope.class: a function's and a class's
    scope.closed          a function in which no namespace.variable around it is visible
    scope.members         a class whose members are visible by name in its functions: each definition in it is a member
    outside               a part of a scope's node that belongs to the scope around it: a default value in Python
    after                 a definition in its match holds after the end of this node, and replaces one of its scope
    from                  the same, but a second definition in the scope assigns to the first one
    binds                 after and from are about all definitions within this node

A name in a scope.class is not visible in the functions of the class. Only the text near each occurrence is examined, so
the time does not depend on the size of the document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.tree import Captures, SyntaxTree

if TYPE_CHECKING:
    import tree_sitter

SECTION = "locals"
MAX_OCCURRENCES = 120  # of one name
CLOCK_EVERY = 8  # occurrences
WORD_CHARACTER = re.compile(r"\w")
AFTER_LABEL = re.compile(r"\s*[=:]")
DEFINITION, OUTER, FUNCTION, FIELD = "definition", "definition.outer", "definition.function", "definition.field"
MEMBER, OWN_MEMBER, LABEL, NAME = "member", "member.own", "label", "name"
SHORTHAND, EXPORTED, ASSIGNMENT, IGNORED = "shorthand", "exported", "assignment", "ignored"
OF_OUTER, OF_DOCUMENT = "declared.outer", "declared.global"
QUOTED, UNQUOTED, PLACEHOLDERS = "quoted", "unquoted", "placeholders"
ROLES = frozenset(
    {
        *(DEFINITION, OUTER, FUNCTION, FIELD, MEMBER, OWN_MEMBER, LABEL, NAME, SHORTHAND, EXPORTED, ASSIGNMENT),
        *(OF_OUTER, OF_DOCUMENT, IGNORED),
    }
)
VARIABLE_ROLES = frozenset({DEFINITION, OUTER, FUNCTION, NAME, EXPORTED})
SCOPE, FUNCTION_SCOPE, CLOSED_SCOPE = "scope", "scope.function", "scope.closed"
CLASS_SCOPE, MEMBERS_SCOPE = "scope.class", "scope.members"
SCOPES = (SCOPE, FUNCTION_SCOPE, CLOSED_SCOPE, CLASS_SCOPE, MEMBERS_SCOPE)
FUNCTIONS, CLASSES = (FUNCTION_SCOPE, CLOSED_SCOPE), (CLASS_SCOPE, MEMBERS_SCOPE)
NAMESPACE, VARIABLES = "namespace.", "namespace.variable"
MAX_PLACEHOLDERS = 4000  # characters of a node with placeholders


@dataclass(frozen=True, slots=True, order=True)
class NameScope:
    """A range of the document in which definitions of a namespace hold. `kind`: its capture; "" is the document."""

    start: int
    end: int
    kind: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class Occurrence:
    """An identifier at `[start, end)`. `scopes`: those around it, the innermost first; the last one is the document."""

    start: int
    end: int
    roles: frozenset[str]
    scopes: tuple[NameScope, ...]
    after: int = -1  # its definition holds from this offset on
    shadows: bool = False  # its definition replaces an earlier one of its scope
    owner: str = ""  # of a label: what is called
    declares: NameScope | None = None  # of `nonlocal` and `global`: the function for which it holds

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
            return next((scope for scope in self.scopes if scope.kind in FUNCTIONS), self.scopes[-1])
        return self.scopes[0] if DEFINITION in self.roles else None

    def is_defined_in(self, scope: NameScope) -> bool:
        """True if it defines its name in a scope, of any namespace."""
        return self.defines is not None and (self.defines.start, self.defines.end) == (scope.start, scope.end)

    @cached_property
    def own_class(self) -> NameScope | None:
        """The class of which it is a member, as far as the document tells."""
        if self.class_of_method:
            return self.class_of_method
        if self.defines is not None and self.defines.kind == MEMBERS_SCOPE:
            return self.defines
        if self.roles & {OWN_MEMBER, FIELD} or (
            self.roles & VARIABLE_ROLES - {OUTER} and self.scopes[0].kind == CLASS_SCOPE
        ):
            return next((scope for scope in self.scopes if scope.kind in CLASSES), None)
        return None

    @property
    def is_field_definition(self) -> bool:
        """True if it defines a member of its class."""
        is_direct = DEFINITION in self.roles and self.scopes[0].kind == CLASS_SCOPE
        is_visible = self.defines is not None and self.defines.kind == MEMBERS_SCOPE
        return FIELD in self.roles or self.class_of_method is not None or is_direct or is_visible

    def visible_scopes(self) -> Iterator[NameScope]:
        """The scopes whose definitions it can mean, the innermost first."""
        for level, scope in enumerate(self.scopes):
            if level == 0 or scope.kind != CLASS_SCOPE:
                yield scope
            if scope.kind == CLOSED_SCOPE and scope.namespace == VARIABLES:
                return


def word_starts(text: str, name: str, low: int, high: int) -> Iterator[int]:
    """The offsets of a whole word in `[low, high)`. It takes a tenth of the time of a regular expression."""
    start = text.find(name, low, high)
    while start >= 0:
        end = start + len(name)
        if not (WORD_CHARACTER.match(text, end) or (start and WORD_CHARACTER.match(text, start - 1))):
            yield start
        start = text.find(name, end, high)


def occurrences(
    tree: SyntaxTree,
    name: str,
    low: int,
    high: int,
    is_late: Callable[[], bool] = lambda: False,
    renamed_to: Sequence[Occurrence] = (),
) -> list[Occurrence]:
    """The occurrences of an identifier in `[low, high)` of the document, from top to bottom, as far as time allows.

    An occurrence in a comment or in a string is none. `_` has none: it stands for no name. `renamed_to`: those of its
    new name, in the middle of a rename: their `nonlocal` and `global` hold for the old name too.
    """
    result = list[Occurrence]()
    if not name.strip("_"):
        return result
    for start in word_starts(tree.text, name, low, high):
        if len(result) == MAX_OCCURRENCES or (len(result) % CLOCK_EVERY == 0 and is_late()):
            break
        occurrence = at(tree, start, start + len(name))
        if occurrence is not None and ASSIGNMENT in occurrence.roles:
            outer = set(occurrence.visible_scopes()) - {occurrence.scopes[0]}
            is_use = any(earlier.defines in outer for earlier in result)
            roles = occurrence.roles - {ASSIGNMENT} | {NAME if is_use else DEFINITION}
            occurrence = replace(occurrence, roles=roles)
        if occurrence is not None:
            result.append(occurrence)
    return list(of_declared_scopes(result, renamed_to))


def of_declared_scopes(names: Sequence[Occurrence], others: Sequence[Occurrence]) -> Iterator[Occurrence]:
    """The occurrences of a name, in the scopes that `nonlocal` and `global` give to it in their functions."""
    declared = {
        name.declares or name.scopes[0]: name.roles
        for name in (*names, *others)
        if name.roles & {OF_OUTER, OF_DOCUMENT}
    }
    for name in names:
        is_scope = OUTER in name.roles and len(name.scopes) > 1  # its first scope is its own
        function = name.scopes[is_scope]
        if function not in declared:
            around = tuple(scope for scope in name.scopes[is_scope + 1 :] if scope not in declared)
            yield replace(name, scopes=(*name.scopes[: is_scope + 1], *around)) if declared else name
            continue
        outer = [level for level, scope in enumerate(name.scopes) if level > is_scope and scope.kind in FUNCTIONS]
        level = outer[0] - is_scope if outer and OF_OUTER in declared[function] else len(name.scopes) - 1
        is_declaration = bool(name.roles & {OF_OUTER, OF_DOCUMENT})
        roles, declares = (name.roles | {NAME}, function) if is_declaration else (name.roles, None)
        yield replace(name, scopes=name.scopes[level:], roles=roles, declares=declares)


def renamed(name: Occurrence, old: str, new: str) -> str:
    """The text in place of an occurrence after a rename: a key, a value and an exported name stay."""
    if SHORTHAND in name.roles:
        return f"{new}: {old}" if MEMBER in name.roles else f"{old}: {new}"
    return f"{new} as {old}" if EXPORTED in name.roles else new


def labels(tree: SyntaxTree, name: str, low: int, high: int, is_late: Callable[[], bool]) -> list[Occurrence]:
    """The names of arguments and keys in `[low, high)` of the document, from top to bottom, as far as time allows."""
    result = list[Occurrence]()
    for start in word_starts(tree.text, name, low, high):
        if not AFTER_LABEL.match(tree.text, start + len(name)):
            continue
        if len(result) == MAX_OCCURRENCES or is_late():
            break
        occurrence = at(tree, start, start + len(name))
        if occurrence is not None and LABEL in occurrence.roles:
            result.append(occurrence)
    return result


def at(tree: SyntaxTree, start: int, end: int) -> Occurrence | None:
    """The identifier at `[start, end)`, or with `@` or `#` before it; None if there is none."""
    view = tree.view
    low, high = view.byte_of(start), view.byte_of(end)
    starts = (low, low - 1) if tree.text.startswith(("@", "#"), start - 1) else (low,)
    roles, namespaces, owner, texts = set[str](), set[str](), "", set[str]()
    after, shadows = -1, False
    matches = list(tree.matches(SECTION, low, high))
    kinds, outside = dict[tuple[int, int], str](), set[tuple[int, int]]()
    for captures in matches:
        here, is_around = set[str](), False
        for name, nodes in captures.items():
            for node in nodes:
                first, last = node.start_byte, node.end_byte
                if first > low or last < high:
                    continue
                if last == high and first in starts:
                    here.add(name)
                if name in SCOPES:
                    kinds[first, last] = name
                elif name == "outside":
                    outside.add((first, last))
                elif name in (QUOTED, UNQUOTED):
                    texts.add(name)
                is_around |= name == "binds"
        roles |= here & ROLES
        namespaces |= {name for name in here if name.startswith(NAMESPACE)}
        if here or is_around:
            for kind in ("after", "from"):
                if kind in captures:
                    after, shadows = view.to_document(captures[kind][0].end_byte, end=True), kind == "after"
        if LABEL in here and "owner" in captures:
            owner = tree.node_text(captures["owner"][0])
    if texts == {QUOTED} and not tree.text.startswith(".", start - 1):
        roles.add(NAME)
    if not roles and _is_placeholder(tree, matches, start, low, high):
        roles.add(NAME)
    if not roles or IGNORED in roles:
        return None
    if roles - {NAME, SHORTHAND}:
        roles -= {NAME}
    namespace = min(namespaces, default="")
    around = [
        NameScope(view.to_document(first), view.to_document(last, end=True), kind, namespace)
        for first, last, kind in _scopes(kinds, outside)
    ]
    scopes = (*around, NameScope(0, len(tree.text), namespace=namespace))
    return Occurrence(start, end, frozenset(roles), scopes, after, shadows, owner)


def _is_placeholder(tree: SyntaxTree, matches: Sequence[Captures], start: int, low: int, high: int) -> bool:
    """True if the word at offset `start`, the bytes `[low, high)`, is a name in a placeholder of a string."""
    nodes = [node for captures in matches for node in captures.get(PLACEHOLDERS, ()) if surrounds(node, low, high)]
    if not nodes:
        return False
    node = min(nodes, key=lambda node: node.end_byte - node.start_byte)
    first, last = tree.view.to_document(node.start_byte), tree.view.to_document(node.end_byte, end=True)
    return last - first <= MAX_PLACEHOLDERS and start in BY_NAME[tree.grammar].placeholders(tree.text, first, last)


def surrounds(node: tree_sitter.Node, low: int, high: int) -> bool:
    """True if a node contains the bytes `[low, high)`."""
    return node.start_byte <= low and high <= node.end_byte


def _scopes(kinds: Mapping[tuple[int, int], str], outside: set[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """(first byte, last byte, kind) of the scopes around an identifier, the innermost first."""
    scopes = sorted(((*around, kind) for around, kind in kinds.items()), key=lambda scope: scope[1] - scope[0])
    for first, last in outside:
        left = next(
            (scope for scope in scopes if scope[0] <= first and last <= scope[1] and scope[:2] != (first, last)), None
        )
        scopes = [scope for scope in scopes if scope != left]
    return scopes


def scope_of(occurrence: Occurrence, definitions: Sequence[Occurrence]) -> NameScope | None:
    """The scope of the definition that an occurrence means; None if none of `definitions` holds there."""
    definition = meaning(occurrence, definitions)
    return definition.defines if definition is not None else None


def meaning(occurrence: Occurrence, definitions: Sequence[Occurrence]) -> Occurrence | None:
    """The definition that an occurrence means, the first of equal ones; itself if it is a definition.

    Where a definition replaces an earlier one of its scope, it is the last one before the occurrence.
    """
    if occurrence.defines is not None:
        if occurrence.shadows:
            return occurrence
        scopes: Iterator[NameScope] = iter((occurrence.defines,))
    else:
        scopes = occurrence.visible_scopes()
    for scope in scopes:
        holding = [
            definition
            for definition in definitions
            if definition.defines == scope
            and (definition.after <= occurrence.start or definition.start == occurrence.start)
        ]
        replacing = [definition for definition in holding if definition.shadows]
        if replacing:
            return replacing[-1]
        if holding:
            return holding[0]
    return None
