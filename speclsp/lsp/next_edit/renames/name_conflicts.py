"""Conflicts of a rename's new name with other meanings that it has in the document.

    occurrences of the new name ─► written by an edit of the rename, or others ─► meanings before and after the rename

A rename has no conflict if each use means the renamed definition after it, and each other occurrence of the new name
means what it did. An edit is known while it is recent. So the producer keeps the renames that had no conflict when they
began, as long as the newest edit goes on with one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from speclsp.lsp.next_edit.changes.substitutions import indentation
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import LABEL, NameScope, Occurrence
from speclsp.lsp.syntax.text_windows import line_end, line_start
from speclsp.lsp.syntax.tree import SyntaxTree

# A free rename: it had no conflict when it began.
FreeName = tuple[str, ...]  # the document's URI, old name, new name, names of the scopes around the definition


@dataclass(frozen=True, slots=True)
class NewName:
    """The occurrences of a rename's new name in a document."""

    uri: str
    old: str
    new: str
    written: Counter[tuple[str, int]]  # (line, column), without indentation, where recent edits wrote it
    tree: SyntaxTree
    occurrences: Sequence[Occurrence]
    spots: Sequence[int]  # the offsets where the newest edit wrote it
    free: set[FreeName]

    def changes_meanings(
        self, definition: Occurrence, scope: NameScope, uses: Sequence[Occurrence], labels: Sequence[Occurrence]
    ) -> bool:
        """True if a rename of uses, and of arguments by name, changes the meaning of one or of another occurrence."""
        written = self._written(definition, scope)
        others = [name for name in self.occurrences if name.start not in written]
        if not others:
            return self._noted(scope, False)
        methods = {name.class_of_method for name in others}
        defined, used = [name for name in others if name.is_definition], [name for name in others if name.is_variable]
        known = (
            *(name for name in self.occurrences if name.is_definition),
            *(use for use in uses if use.is_definition),
        )
        after = sorted(known, key=lambda name: name.start)
        owners = {label.owner for label in labels if LABEL in label.roles}
        has_conflict = (
            any((meaning := bindings.meaning(use, after)) in defined or meaning is None for use in uses)
            or any(bindings.meaning(name, after) != bindings.meaning(name, defined) for name in used)
            or any(use.scopes[0] in methods for use in uses)
            or has_declaration(others, uses)
            or has_declaration(uses, used)
            or any(name.owner in owners for name in others if LABEL in name.roles)
        )
        return self._noted(scope, has_conflict)

    def is_another_member(self, definition: Occurrence, owner: NameScope) -> bool:
        """True if a class has another member of the new name than this one."""
        members = {name.start for name in self.occurrences if name.own_class == owner and not name.is_variable}
        return self._noted(owner, not members <= self._written(definition, owner))

    def takes_member(self, owner: str, definitions: Sequence[int]) -> bool:
        """True if a type and its relatives have a member of the new name that no edit of the rename wrote."""
        name = self.uri, self.old, self.new, owner
        if all(spot_of(self.tree.text, start) in self.written for start in definitions):
            self.free.add(name)
        return name not in self.free

    def _written(self, definition: Occurrence, scope: NameScope) -> set[int]:
        """The offsets of the occurrences in a scope, and as names of arguments, that edits of the rename wrote."""
        near = [name for name in self.occurrences if scope.start <= name.start < scope.end or LABEL in name.roles]
        near.sort(key=lambda name: (name != definition, name.start not in self.spots))
        left, result = self.written.copy(), set[int]()
        for name in near:
            spot = spot_of(self.tree.text, name.start)
            left[spot] -= 1
            if left[spot] >= 0:
                result.add(name.start)
        if len(result) < len(near) and definition.start not in self.spots and self._name_in(scope) in self.free:
            definitions = [name for name in self.occurrences if name.is_definition]
            result = {name.start for name in near if bindings.scope_of(name, definitions) in (scope, None)}
        return result

    def _noted(self, scope: NameScope, has_conflict: bool) -> bool:
        """Remember whether the rename has a conflict in a scope."""
        (self.free.discard if has_conflict else self.free.add)(self._name_in(scope))
        return has_conflict

    def _name_in(self, scope: NameScope) -> FreeName:
        names = (around.name for around in self.tree.enclosing(scope.start + 1))
        return self.uri, self.old, self.new, *names


def spot_of(text: str, offset: int) -> tuple[str, int]:
    """(the line of an offset, the column in it), without the line's indentation."""
    start = line_start(text, offset)
    line = text[start : line_end(text, start)]
    return line.strip(), offset - start - len(indentation(line))


def has_declaration(declared: Sequence[Occurrence], names: Sequence[Occurrence]) -> bool:
    """True if a function has one of the names, and `nonlocal` or `global` of a declared one."""
    functions = [name.declares for name in declared if name.declares is not None]
    return any(function.start <= name.start < function.end for function in functions for name in names)
