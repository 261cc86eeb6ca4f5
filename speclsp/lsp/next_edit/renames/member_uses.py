"""Uses of a renamed member: a field, method, property or enum member, whose type the document proves.

    renamed identifier ─► its type, by syntax/expression_types.py ─► the types of one lineage that define the member
                       ─► definitions, accesses, keys and patterns with the old name that mean it

An access whose type is unknown means the member only if no other type of the document has a member of that name, and
what it is accessed in looks like the type: it has other members of the type and none else, or a name like its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

from speclsp.lsp.next_edit.changes.renamed_names import SUBWORD, Rename, are_alike
from speclsp.lsp.next_edit.renames.name_conflicts import NewName, spot_of
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import MAX_OCCURRENCES, MEMBER, SHORTHAND, Occurrence, word_starts
from speclsp.lsp.syntax.expression_types import ACCESS, FIELD, ExpressionTypes, Member
from speclsp.lsp.syntax.languages.type_texts import OTHER, UNKNOWN
from speclsp.lsp.syntax.text_windows import line_end, line_start
from speclsp.lsp.syntax.tree import SyntaxTree

MAX_OTHER_MEMBERS = 6  # of one object, which show its type
PATH = re.compile(r"\w+(?:\.\w+)?")


class MemberUses:
    """Finds the member that one rename is about, from a place where the user made it."""

    def __init__(
        self, rename: Rename, tree: SyntaxTree, name: NewName, bounds: tuple[int, int], is_late: Callable[[], bool]
    ) -> None:
        self._rename, self._tree, self._name, self._bounds, self._is_late = rename, tree, name, bounds, is_late
        self._types = ExpressionTypes(tree, (rename.old, rename.new), bounds, is_late)
        self.is_resolved, self.reason = False, ""
        self._family = set[str]()  # types that define the member

    def uses(self, at: int) -> tuple[list[Occurrence], list[Occurrence]]:
        """(the definition that is offered first, the uses) of the member at offset `at` under its new name."""
        spot = self._types.member(at, at + len(self._rename.new))
        new, old = (self._types.definitions(name) for name in (self._rename.new, self._rename.old))
        owner = self._owner(spot, new) if spot is not None else ""
        if not owner:
            return [], []
        self._family = self._related(owner, {member.owner for member in (*new, *old)})
        self.is_resolved = True
        former = [member for member in old if member.owner == owner]
        if not any(member.owner == owner for member in new):
            is_alone = len([*islice(word_starts(self._tree.text, self._rename.new, *self._bounds), 2)]) == 1
            is_alone = is_alone and self._rename.changes == 1 and are_alike(self._rename.old, self._rename.new)
            return [occurrence(member) for member in former[:is_alone]], []
        renamed = [member for member in new if member.owner in self._family]
        if any(member.kind == FIELD for member in former):
            self.reason = Reason.STILL_DEFINED
        elif self._name.takes_member(owner, [member.start for member in renamed if member.kind == FIELD]):
            self.reason = Reason.NAME_IN_USE
        elif self._rename.times > 1 or any(self._is_edited(member) for member in renamed):
            is_only = all(member.owner in self._family for member in (*new, *old))
            starts = [*word_starts(self._tree.text, self._rename.old, *self._bounds)]
            starts.sort(key=lambda start: (start < at, abs(start - at)))  # as they are offered, if time is short
            near = (start for start in starts[:MAX_OCCURRENCES] if not self._is_late())
            return [], [use for start in near for use in self._uses_at(start, is_only)]
        return [], []

    def means(self, name: Occurrence) -> bool:
        """True if a name is one of the renamed member too."""
        member = self._types.member(name.start, name.end)
        return member is not None and self._is_same(member)

    def owner_of(self, name: Occurrence) -> str:
        """The type of the member that a name means; OTHER if it is no member's name."""
        member = self._types.member(name.start, name.end)
        return member.owner if member is not None else OTHER

    def has_new(self, owner: str) -> bool:
        """True if a type has a member of the new name, and none of the old one."""
        declared = self._types.declared(owner, self._rename.old)
        old = (member.owner for member in self._types.definitions(self._rename.old))
        return declared is not None and declared.owner not in old

    def _owner(self, spot: Member, new: list[Member]) -> str:
        """The type that defines the member at a renamed place; "" if it is not known."""
        if spot.kind != ACCESS:
            return spot.owner if spot.owner != OTHER else ""
        if spot.owner == UNKNOWN:
            return next((member.owner for member in new if self._is_edited(member)), "")
        declared = self._types.declared(spot.owner, self._rename.old)
        renamed = (level for level in self._types.lineage(spot.owner) if any(member.owner == level for member in new))
        return next(renamed, declared.owner) if declared is not None else ""

    def _related(self, owner: str, owners: set[str]) -> set[str]:
        """The types that define the same member as one of them: above it, below it, and below those."""
        family, size = {owner}, 0
        while size < len(family):
            size, levels = len(family), {level for name in family for level in self._types.lineage(name)}
            family |= {other for other in owners if other in levels or family & {*self._types.lineage(other)}}
        return family & owners | {owner}

    def _uses_at(self, start: int, is_only: bool) -> list[Occurrence]:
        """The use at an offset, and what must change with it. `is_only`: no other type has a member of the name."""
        member = self._types.member(start, start + len(self._rename.old))
        if member is None or not (self._is_same(member) or (is_only and self._is_likely(member))):
            return []
        variable = bindings.at(self._tree, member.start, member.end) if member.is_destructured else None
        scope = variable.defines if variable is not None else None
        if scope is None or any(word_starts(self._tree.text, self._rename.new, scope.start, scope.end)):
            return [occurrence(member)]
        line = line_start(self._tree.text, start)
        starts = word_starts(self._tree.text, self._rename.old, line, line_end(self._tree.text, line))
        names = (bindings.at(self._tree, at, at + len(self._rename.old)) for at in starts if at != start)
        uses = [name for name in names if name is not None and name.is_variable and scope in name.visible_scopes()]
        return [Occurrence(member.start, member.end, frozenset({MEMBER}), ()), *uses]

    def _is_same(self, member: Member) -> bool:
        """True if a member is proven to be the renamed one."""
        if member.kind != ACCESS:
            return member.owner in self._family
        declared = self._types.declared(member.owner, self._rename.old)
        return declared is not None and declared.owner in self._family

    def _is_likely(self, member: Member) -> bool:
        """True if the object of an access, whose type is unknown, looks like a type that has the member."""
        if member.owner != UNKNOWN or not PATH.fullmatch(member.object):
            return False
        around = self._tree.enclosing(member.start)
        low, high = (around[-1].start, around[-1].end) if around else self._bounds
        accesses = re.compile(rf"(?<![\w.]){re.escape(member.object)}[?!]?\.(\w+)").finditer(self._tree.text, low, high)
        others = [*islice({match[1] for match in accesses} - {self._rename.old, self._rename.new}, MAX_OTHER_MEMBERS)]
        if others:
            return all(self._types.declared(owner, name) for name in others for owner in [*self._family][:1])
        name = member.object.rpartition(".")[2].lower().replace("_", "")
        return any(name == "".join(SUBWORD.findall(owner)[-n:]).lower() for owner in self._family for n in (0, 1, 2))

    def _is_edited(self, member: Member) -> bool:
        """True for a definition where an edit made this rename."""
        return spot_of(self._tree.text, member.start) in self._rename.written


def occurrence(member: Member) -> Occurrence:
    """A member's name as an occurrence, whose text a rename replaces."""
    return Occurrence(member.start, member.end, frozenset({MEMBER, SHORTHAND} if member.is_shorthand else {MEMBER}), ())
