"""Uses of a renamed definition that still have its old name, as scopes decide.

    renamed identifier ─► its definition, by syntax/bindings.py ─► uses that still have its old name
                       └─► none: the old name's definition, if a use was renamed alone

One edit is enough, because the scope decides which uses mean the definition. A rename is left alone where

    the old name still has a definition in that scope: the edit made a second name
    no recent edit has changed the definition's own line: the edit chose another name that exists
    the new name has another meaning in that scope: a use would mean another definition after it (NAME_IN_USE)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from speclsp.lsp.next_edit.changes.recent_changes import REACH_CHARACTERS
from speclsp.lsp.next_edit.changes.renamed_names import Rename, are_alike
from speclsp.lsp.next_edit.renames.member_uses import MemberUses
from speclsp.lsp.next_edit.renames.name_conflicts import FreeName, NewName, spot_of
from speclsp.lsp.next_edit.renames.parameters import callee, class_at, documented, is_parameter
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import bindings, expression_types
from speclsp.lsp.syntax.bindings import LABEL, OUTER, OWN_MEMBER, SHORTHAND, NameScope, Occurrence
from speclsp.lsp.syntax.tree import SyntaxTree

ALIASED = re.compile(r"\s*[=\"`]")  # the path or the name that the alias stands for follows: Go, C#
IMPORTING = re.compile(r"\bimport\s+(?:\([\w\s,]*|[\w ,]*)\Z")  # below the top level, in Python
MIN_TIMES = 2  # without an edit of the definition's own line


class Resolver:
    """Finds what one rename is about, from one of the places where the user made it."""

    def __init__(
        self,
        rename: Rename,
        uri: str,
        tree: SyntaxTree,
        spots: Sequence[int],
        is_late: Callable[[], bool],
        free: set[FreeName],
    ) -> None:
        """`spots`: the offsets where the newest edit wrote the new name."""
        self.rename, self.tree = rename, tree
        self.is_resolved, self.reason = False, ""
        at = spots[0]
        piece = next((piece for piece in tree.view.pieces if piece[0] <= at < piece[1]), (at, at))
        low, high = max(piece[0], at - REACH_CHARACTERS), min(piece[1], at + REACH_CHARACTERS)
        self.new = bindings.occurrences(tree, rename.new, low, high, is_late)
        self.definitions = [occurrence for occurrence in self.new if occurrence.is_definition]
        self.name = NewName(uri, rename.old, rename.new, rename.written, tree, self.new, spots, free)
        has_members = tree.has_section(expression_types.SECTION)
        self.members = MemberUses(rename, tree, self.name, (low, high), is_late) if has_members else None
        patterns = [pattern.defines for pattern in self.definitions if SHORTHAND in pattern.roles]
        ranges = [scope for scope in (*map(self._range, spots), *patterns) if scope is not None]
        start = max(low, min(scope.start for scope in ranges))
        end = min(high, max(scope.end for scope in ranges))
        written = [name for name in self.new if self._is_edited(name)]
        self.old = bindings.occurrences(tree, rename.old, start, end, is_late, written)
        for first, last in ((low, start), (end, high)):
            self.old += bindings.labels(tree, rename.old, first, last, is_late)

    def _range(self, at: int) -> NameScope:
        """The scope in which the uses stand of what was renamed at an offset; the document, if that is not known."""
        whole = NameScope(0, len(self.tree.text))
        spot = self._at(at)
        if spot is None and self.members is not None and self.tree.kind_at(at + 1) == "code":  # a member alone
            return NameScope(at, at)
        if spot is None or LABEL in spot.roles:
            return whole
        definition = bindings.meaning(spot, self.definitions)
        scope = definition.defines if definition is not None and spot.is_variable else None
        if spot.own_class is not None:
            return spot.own_class if scope is None or scope.start >= spot.own_class.start else scope
        return scope or whole

    def _at(self, at: int) -> Occurrence | None:
        return next((occurrence for occurrence in self.new if occurrence.start == at), None)

    def uses(self, at: int) -> tuple[list[Occurrence], list[Occurrence]]:
        """(the definition that is offered first, the uses) of what stands at offset `at` under its new name."""
        first, uses = self._scoped(at)
        if self.members is None or self.reason == Reason.NAME_IN_USE:
            return first, uses
        definition, members = self.members.uses(at)
        self.is_resolved, reason = self.is_resolved or self.members.is_resolved, self.members.reason
        if reason:
            self.reason = reason
            return ([], []) if reason == Reason.NAME_IN_USE else (first, uses)
        for pattern in self.definitions if members else ():
            if SHORTHAND in pattern.roles and pattern.start != at and self.members.means(pattern):
                uses += self._variable(pattern)[1]
        return (first or definition), uses + members

    def _scoped(self, at: int) -> tuple[list[Occurrence], list[Occurrence]]:
        """(the definition that is offered first, the uses), as far as scopes tell."""
        spot = self._at(at)
        if spot is None and self.tree.kind_at(at + 1) == "code":  # a keyword, or no place for a name
            self.is_resolved = True
            return [], []
        if spot is None or LABEL in spot.roles:  # in documentation, or at a call: the definition's own edit decides
            spot = next((definition for definition in self.new if self._is_edited(definition)), None)
        if spot is None:
            return [], []
        first, uses = self._variable(spot) if spot.is_variable else ([], [])
        owner = spot.own_class or self._owner(spot)
        if owner is not None and self.reason != Reason.NAME_IN_USE:
            definition, members = self._field(spot, owner)
            first, uses = first + definition, uses + members
        return first, uses

    def _owner(self, spot: Occurrence) -> NameScope | None:
        """The class of the member that a bare name means."""
        definition = bindings.meaning(spot, self.definitions) if spot.is_variable else None
        return definition.own_class if definition is not None and definition.is_field_definition else None

    def _variable(self, spot: Occurrence) -> tuple[list[Occurrence], list[Occurrence]]:
        """The uses of a variable, function or class; its definition, if only a use was renamed."""
        old = [occurrence for occurrence in self.old if occurrence.is_definition]
        definition = bindings.meaning(spot, self.definitions)
        if definition is None:
            former = bindings.meaning(spot, old)
            self.is_resolved = self.is_resolved or former is not None
            self.reason = "" if former else Reason.UNRESOLVED
            return ([former] if former is not None and self._is_first(former) else []), []
        scope = definition.defines
        assert scope is not None
        is_meant = self.rename.times >= MIN_TIMES or are_alike(self.rename.old, self.rename.new)
        if self._is_imported(definition) and not is_meant:
            return [], []
        self.is_resolved = True
        if not (spot.defines == scope or self._is_ours(definition)):
            return [], []
        is_ordered = definition.after >= 0
        others = [occurrence for occurrence in old if occurrence.defines == scope]
        if not is_ordered and any(
            OUTER in other.roles or scope.kind == bindings.MEMBERS_SCOPE or other.start < definition.start
            for other in others
        ):
            self.reason = Reason.STILL_DEFINED
            return [], []
        known = sorted([*old, definition], key=lambda occurrence: occurrence.start)
        more = list[Occurrence]()
        if is_parameter(definition, scope, self.tree.text):
            more = [
                *(self._labels(callee(self.tree, scope)) if not self._is_typed_pattern(definition) else ()),
                *documented(self.tree, self.rename.old, scope),
            ]
        methods = {occurrence.class_of_method for occurrence in self.old}  # in the class's body their name means them
        uses = [
            occurrence
            for occurrence in self.old
            if occurrence.is_variable
            and (meaning := bindings.meaning(occurrence, known)) is not None
            and (meaning == definition if is_ordered else meaning.defines == scope)
            and occurrence.scopes[0] not in methods
        ]
        uses = [*map(self._shorthand, uses)]
        if self.name.changes_meanings(definition, scope, uses, more):
            self.reason = Reason.NAME_IN_USE
            return [], []
        return [], uses + more

    def _is_typed_pattern(self, definition: Occurrence) -> bool:
        """True for a destructured member of a type, whose other uses are those of the member."""
        return SHORTHAND in definition.roles and self.members is not None and self.members.owner_of(definition) != ""

    def _shorthand(self, use: Occurrence) -> Occurrence:
        """A use, without its key if the member has the new name too."""
        if SHORTHAND not in use.roles or self.members is None or not self.members.has_new(self.members.owner_of(use)):
            return use
        return replace(use, roles=use.roles - {SHORTHAND})

    def _field(self, spot: Occurrence, owner: NameScope) -> tuple[list[Occurrence], list[Occurrence]]:
        """The uses of a member through `self` or `this`; its definition, if only a use was renamed."""
        new, old = (
            [
                occurrence
                for occurrence in occurrences
                if occurrence.own_class == owner and occurrence.is_field_definition
            ]
            for occurrences in (self.new, self.old)
        )
        if not new:
            self.is_resolved = self.is_resolved or bool(old)
            return old[:1] if OWN_MEMBER in spot.roles and self._is_alike() else [], []
        self.is_resolved = True
        if not (spot == new[0] or self._is_ours(new[0])):
            return [], []
        if any(OWN_MEMBER not in other.roles or other.start < new[0].start for other in old):
            self.reason = Reason.STILL_DEFINED
            return [], []
        if self.name.is_another_member(new[0], owner):
            self.reason = Reason.NAME_IN_USE
            return [], []
        uses = [
            occurrence
            for occurrence in self.old
            if occurrence.own_class == owner and (OWN_MEMBER in occurrence.roles or occurrence.is_field_definition)
        ]
        if new[0].is_variable and not spot.is_variable:
            uses += self._variable(new[0])[1]
        is_record = owner.kind == bindings.CLASS_SCOPE and new[0].is_definition  # of Python
        is_parameter_too = "{" not in self.tree.text[owner.start : new[0].start]  # `class A(val width: Int)`
        is_declared = OWN_MEMBER not in new[0].roles and (is_parameter_too or is_record)
        return [], uses + (self._labels(class_at(self.tree, new[0].start)) if is_declared else [])

    def _is_ours(self, definition: Occurrence) -> bool:
        """True if the user renamed a definition: on its own line, or at so many uses that it must be meant."""
        return self.rename.times >= MIN_TIMES or self._is_edited(definition)

    def _is_edited(self, occurrence: Occurrence) -> bool:
        """True for a definition where an edit made this rename."""
        is_definition = occurrence.is_definition or occurrence.is_field_definition or occurrence.declares
        return bool(is_definition) and spot_of(self.tree.text, occurrence.start) in self.rename.written

    def _is_imported(self, definition: Occurrence) -> bool:
        """True for a name of another file, which an edit replaces and does not rename. An alias is the file's own."""
        text = self.tree.text
        is_alias = text.endswith("as ", 0, definition.start) or ALIASED.match(text, definition.end)
        is_nested = IMPORTING.search(text, max(0, definition.start - 2000), definition.start) is not None
        return not is_alias and (
            is_nested or any(start <= definition.start < end for start, end in self.tree.imports())
        )

    def _is_first(self, definition: Occurrence) -> bool:
        """True if a definition may follow a renamed use: the names are alike, and no more was changed."""
        return self._is_alike() and OUTER not in definition.roles

    def _is_alike(self) -> bool:
        """True if the new name is like the old one, and stands at the renamed place alone."""
        return are_alike(self.rename.old, self.rename.new) and len(self.new) == 1 == self.rename.changes

    def _labels(self, owner: str) -> list[Occurrence]:
        """Arguments by name at the calls of a function, or of a class whose field is one."""
        return [label for label in self.old if owner and LABEL in label.roles and label.owner == owner]
