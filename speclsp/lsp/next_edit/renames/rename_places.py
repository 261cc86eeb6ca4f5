"""Places of renames: the uses of a definition that has another name since the newest edit.

newest edit ─► renamed identifiers ─► their uses, by scoped_uses.py ─► lines with uses, the nearest first
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from speclsp.lsp.next_edit.changes.renamed_names import Rename
from speclsp.lsp.next_edit.changes.substitutions import MAX_LINE_CHARACTERS, RENAME, Evidence, Place, Substitution
from speclsp.lsp.next_edit.renames.name_conflicts import FreeName
from speclsp.lsp.next_edit.renames.scoped_uses import Resolver
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import Occurrence
from speclsp.lsp.syntax.parser import is_reserved
from speclsp.lsp.syntax.text_windows import line_end, line_start, nearest_line
from speclsp.lsp.syntax.tree import SyntaxTree

NEAR = 20_000  # characters that are searched for a longer word, which the user may be typing


@dataclass(slots=True)
class Renames:
    """The places of the newest edit's renames, in the order in which they are offered."""

    places: list[Place] = field(default_factory=list)
    resolved: list[tuple[str, str]] = field(default_factory=list)  # (old, new) whose definition is in the document
    reason: str = Reason.NO_REPEAT  # why a rename has no place

    def explains(self, substitution: Substitution) -> bool:
        """True if a substitution does nothing but the resolved renames: the scope has decided about its places."""
        renamed = substitution.old
        for old, new in self.resolved:
            renamed = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, renamed)
        return renamed == substitution.new


def renames(
    listed: Sequence[Rename],
    newest: int,
    uri: str,
    text: str,
    tree: SyntaxTree,
    cursor: int,
    is_late: Callable[[], bool],
    free: set[FreeName],
) -> Renames:
    """The places of renames: below the cursor first, then above, the nearest first. `newest`: the last edit's index.

    `free`: the free renames of earlier calls and, after it, of this one.
    """
    result, pairs = Renames(), {(rename.old, rename.new) for rename in listed}
    free.intersection_update([name for name in free if name[1:3] in pairs])
    for rename in listed:
        spots = list(spots_of(rename, text, cursor))
        if not spots or is_late():
            continue
        if is_reserved(tree.grammar, rename.new) or any(other.new == rename.old for other in listed):
            result.resolved.append((rename.old, rename.new))
            result.reason = Reason.NAME_IN_USE
            continue
        resolver = Resolver(rename, uri, tree, spots, is_late, free)
        first, uses = list[Occurrence](), dict[int, Occurrence]()
        for spot in spots:
            definition, more = resolver.uses(spot)
            first += definition
            uses |= {use.start: use for use in more}
        if resolver.is_resolved:
            result.resolved.append((rename.old, rename.new))
        result.reason = resolver.reason or result.reason
        evidence = Evidence(rename.times, newest, rename.origins)
        places = list(places_of(uses.values(), rename, evidence, text))
        places.sort(key=lambda place: (place.end < cursor, abs(place.start - cursor)))
        result.places += [*places_of(first, rename, evidence, text), *places]
    return result


def spots_of(rename: Rename, text: str, cursor: int) -> Iterator[int]:
    """The offsets where the newest edit wrote the new name, unless the user is typing there, or may go on."""
    for line, column in rename.spots:
        start = nearest_line(text, line, cursor)
        at = start + column if start is not None else -1
        end, longer = at + len(rename.new), re.compile(rf"(?<!\w){re.escape(rename.new)}\w")
        is_typed = at < cursor < end - 1 or (cursor == end and longer.search(text, max(0, end - NEAR), end + NEAR))
        if at >= 0 and not is_typed:
            yield at


def places_of(uses: Iterable[Occurrence], rename: Rename, evidence: Evidence, text: str) -> Iterator[Place]:
    """The lines with uses, each with all its uses renamed."""
    replaced = ((use.start, use.end, bindings.renamed(use, rename.old, rename.new)) for use in uses)
    return replaced_lines(replaced, Substitution(RENAME, rename.old, rename.new), evidence, text)


def replaced_lines(
    replaced: Iterable[tuple[int, int, str]], substitution: Substitution, evidence: Evidence, text: str
) -> Iterator[Place]:
    """The lines with replacements (start, end, new text), each with all of its own."""
    by_line: dict[int, dict[int, tuple[int, str]]] = {}
    for start, end, new in replaced:
        by_line.setdefault(line_start(text, start), {})[start] = end, new
    for low, of_line in by_line.items():
        high = line_end(text, low)
        pieces, done = list[str](), low
        for start, (end, new) in sorted(of_line.items()):
            pieces += [text[done:start], new]
            done = end
        if high - low <= MAX_LINE_CHARACTERS:
            yield Place(low, high, "".join([*pieces, text[done:high]]), substitution, evidence, is_proven=True)
