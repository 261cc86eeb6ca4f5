"""The same item for a new name, where its siblings are listed too.

    newest edit ─► new_names.py: a name and its siblings ─► an item of the nearest sibling, of one form with the item
    before it or behind it ─► what the name is there ─► kind ─► the item again with the new name

    passed   a parameter is passed on by its own name      draw(width=width,         then depth=depth,
    case     an arm of an enum member                      case RED: return "red"    then case BLUE: return "blue"
    listed   an imported name in a list of names           "Width",                  then "Depth",

A variable is passed on only if the scope of its sibling defines it. Without two siblings of one form there is no offer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from speclsp.lsp.next_edit.changes.changed_names import Recent
from speclsp.lsp.next_edit.changes.list_items import (
    NO_ITEM,
    Form,
    form_of,
    has_name,
    is_spelled,
    item_end,
    item_of,
    items_above,
    items_below,
    spellings,
    without_comma,
)
from speclsp.lsp.next_edit.changes.new_names import NewNames, is_new_name, new_names
from speclsp.lsp.next_edit.changes.places import Place
from speclsp.lsp.next_edit.changes.substitutions import TOKEN, Evidence, Substitution, indentation
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import LABEL, MEMBER, OWN_MEMBER, Occurrence
from speclsp.lsp.syntax.tree import SyntaxTree

PASSED, CASE, LISTED = "passed", "case", "listed"  # the kinds of these edits
KINDS = (PASSED, CASE, LISTED)
VARIABLE, OUTER, STRING, OTHER = "variable", "outer", "string", "other"
PARAMETER = frozenset({":", "=", ",", ")"})  # behind the name of a parameter, or of a documented one
ENUM = re.compile(r"\b(?:\w*[Ee]num|\w*Flag|union|type|const|Literal)\b")
ARM = re.compile(r"\s*(?:case\b|when\b|[^\s=]+(?:\s*[({][^)}]*[)}])?\s*=>)")
NAMED = re.compile(r"""\s*["']\w+["']\Z""")


def sibling_places(recent: Recent) -> Iterator[Place]:
    """The items to write for the new names of the newest edit, the nearest first."""
    newest = recent.edits[-1]
    added = set(TOKEN.findall("\n".join(newest.after))) - set(TOKEN.findall("\n".join(newest.before)))
    if not any(map(is_new_name, added)):
        return
    lines = recent.text.replace("\r\n", "\n").split("\n")
    near = recent.text.count("\n", 0, recent.cursor)
    listed = list(new_names(newest, lines, near))
    if any(near in new.lines for new in listed):  # the user may be typing the name
        return
    added &= {name for new in listed for name in new.names}
    for edit in recent.edits[-2::-1] if added else ():  # the newest edit may be one of these items
        if edit.uri == newest.uri and added & set(TOKEN.findall("\n".join(edit.after))):
            listed += [new for new in new_names(edit, lines, near) if added.issuperset(new.names)]
    for new in listed:
        if new.above and all(is_private(name) == is_private(new.above[0]) for name in new.names):
            yield from SiblingItems(recent, lines, new).places()


def is_private(name: str) -> bool:
    return name.startswith("_")


@dataclass
class SiblingItems:
    """The lists of a document with the siblings of new names."""

    recent: Recent
    lines: Sequence[str]
    new: NewNames

    @property
    def tree(self) -> SyntaxTree:
        assert self._parsed is not None
        return self._parsed

    @cached_property
    def _parsed(self) -> SyntaxTree | None:
        """The tree; None where it does not tell what a name is. Most edits have no item, and need no tree."""
        tree = self.recent.parse(self.recent.cursor)
        is_known = tree is not None and bindings.has_bindings(tree) and not tree.raw.root_node.has_error
        return tree if is_known else None

    def places(self) -> Iterator[Place]:
        """The nearest sibling's items, each with the new ones behind it."""
        anchor = self.new.above[0]
        text, low, high = self.recent.text, self.recent.low, self.recent.high
        known = dict.fromkeys(spellings(anchor))
        offsets = sorted(at for spelling in known for at in bindings.word_starts(text, spelling, low, high))
        evidence = Evidence(times=1, newest=len(self.recent.edits) - 1)
        for start, line in self.recent.lines_at(offsets):
            if self.recent.is_late():
                return
            number = text.count("\n", 0, start)
            if self.new.first <= number < self.new.end or NO_ITEM.match(line):
                continue
            for kind, end, item in self._items(number, start):
                yield Place(start, end, item, Substitution(kind, anchor, ", ".join(self.new.names)), evidence)

    def _items(self, number: int, start: int) -> Iterator[tuple[str, int, str]]:
        """(kind, end offset, new lines) of the item at a line."""
        end = item_end(self.lines, number)
        item, comma = without_comma("\n".join(self.lines[number:end]))
        form = form_of(item, self.new.above[0])
        if form is None or not self._is_list(number, end, form):
            return
        if not all(is_spelled(form, self.new.above[0], name) for name in self.new.names):
            return
        item_end_offset = self._end(number, end, start)
        kind = self._kind(form, item, start, item_end_offset) if self._parsed is not None else ""
        if kind:
            between = "," if comma or self._ends_in_comma(number) else ""
            items = [item, *(item_of(form, name) for name in self.new.names)]
            yield kind, item_end_offset, f"{between}\n".join(items) + comma

    def _end(self, number: int, end: int, start: int) -> int:
        """The offset behind the lines `[number, end)`, of which the first begins at an offset."""
        for _ in range(number, end - 1):
            start = self.recent.text.index("\n", start) + 1
        return start + len(self.lines[end - 1])

    def _ends_in_comma(self, number: int) -> bool:
        """True if the item above ends in a comma."""
        indent = indentation(self.lines[number])
        above = next(items_above(self.lines, number, indent), None)
        return above is not None and self.lines[item_end(self.lines, above) - 1].rstrip().endswith(",")

    def _is_list(self, number: int, end: int, form: Form) -> bool:
        """True if the item before or behind has this form with a sibling's name, and none around has a new name."""
        indent = indentation(self.lines[number])
        above, below = (
            list(items(self.lines, at, indent)) for items, at in ((items_above, number), (items_below, end))
        )
        siblings = ((self.new.above[1:2], above), (self.new.below[:1], below))
        return any(
            names and numbers and form_of(self._item(numbers[0]), names[0]) == form for names, numbers in siblings
        ) and not any(has_name(self._item(at), self.new.names) for at in (*above, *below))

    def _item(self, number: int) -> str:
        return without_comma("\n".join(self.lines[number : item_end(self.lines, number)]))[0]

    # ── roles ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _kind(self, form: Form, item: str, start: int, end: int) -> str:
        """The kind of an item at the offsets `[start, end)`; "" for none of these."""
        roles = list(self._roles(start, end))
        if {*roles} == {LABEL, VARIABLE} and len(roles) == 2:
            return PASSED if self.new.right in PARAMETER else ""
        if roles == [STRING] and NAMED.match(item) and not self.new.left and self.new.right in (",", ""):
            return LISTED
        is_arm = len(roles) > 1 and ARM.match(item) and OWN_MEMBER not in roles
        return CASE if is_arm and self._is_enum else ""

    def _roles(self, start: int, end: int) -> Iterator[str]:
        """The role of the nearest sibling's name at each of its places in the document's text `[start, end)`."""
        known, at = spellings(self.new.above[0]), start
        for token in TOKEN.findall(self.recent.text[start:end]):
            if token in known:
                yield self._role(at, token)
            at += len(token)

    def _role(self, at: int, name: str) -> str:
        occurrence = bindings.at(self.tree, at, at + len(name))
        if occurrence is None:
            return STRING if self.tree.kind_at(at + 1) == "string" else OTHER
        if LABEL in occurrence.roles:
            return LABEL
        if occurrence.is_variable:
            return VARIABLE if self._is_defined(occurrence, name) else OUTER
        return OWN_MEMBER if OWN_MEMBER in occurrence.roles else MEMBER

    def _is_defined(self, occurrence: Occurrence, name: str) -> bool:
        """True if the function around a sibling defines both, the sibling and the new names."""
        scope = next((scope for scope in occurrence.visible_scopes() if scope.kind in bindings.FUNCTIONS), None)
        return scope is not None and all(
            any(
                other.defines == scope
                for other in bindings.occurrences(self.tree, word, scope.start, occurrence.end, self.recent.is_late)
            )
            for word in (name, *self.new.names)
        )

    @cached_property
    def _is_enum(self) -> bool:
        """True if the new names are members of an enumeration or of a union of types."""
        indent = len(indentation(self.lines[self.new.first]))
        above = range(self.new.first, -1, -1)
        heads = (at for at in above if len(indentation(self.lines[at])) < indent and self.lines[at].strip())
        head = next(heads, self.new.first)
        return ENUM.search(self.lines[head]) is not None
