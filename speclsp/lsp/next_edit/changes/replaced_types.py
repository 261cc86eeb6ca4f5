"""A type that was replaced twice, in other annotations: f(a: List[int], b: List[str]) -> list[int], list[str].

The tree says where a type stands. A line is offered with all types replaced that the user has replaced. Replacements
that change the structure of a type are those of the language's record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from speclsp.lsp.next_edit.changes.recent_changes import Change, Recent
from speclsp.lsp.next_edit.changes.substitutions import NAME, TOKEN, Evidence, Origin, Place, Substitution
from speclsp.lsp.syntax.languages.record import Replacement, TypeRules

TYPE = "type"  # the kind of these edits
ANY = ("any", "Any", "unknown", "object", "Object")  # a type is left open at one place
MIN_TIMES = 2  # replaced types, on one line or several


def replacements(change: Change, rules: TypeRules) -> Counter[Replacement]:
    """The types that a line's change has replaced, if it did nothing else, and how often."""
    line, counts = change.old, Counter[Replacement]()
    for key, structure in rules.structures.items():
        less = line.count(key[0]) - change.new.count(key[0])
        if less > 0 and structure(line) != line:
            line = structure(line)
            counts[key] += less
    old, new = TOKEN.findall(line.strip()), TOKEN.findall(change.new.strip())
    if len(old) != len(new):
        return Counter()
    for before, after in zip(old, new, strict=True):
        if before != after:
            if not NAME.match(before) or not NAME.match(after) or before[0].islower():
                return Counter()
            counts[before, after] += 1
    return counts


def type_places(recent: Recent) -> Iterator[Place]:
    """Annotations with a type that was replaced twice, the nearest first."""
    rules, counts = recent.language.types, Counter[Replacement]()
    newest = dict.fromkeys(key for change in recent.newest for key in replacements(change, rules))
    if not newest or recent.is_late():
        return
    replaced_by = [(change, replacements(change, rules)) for change in recent.changes]
    for change, replaced in replaced_by:
        counts += Counter({key: number * change.times for key, number in replaced.items()})
    origins = recent.evidence([change for change, replaced in replaced_by if replaced.keys() & newest.keys()]).origins
    meant = [key for key in newest if key[1] not in ANY and counts[key] >= MIN_TIMES and (key[1], key[0]) not in counts]
    meant = [key for key in meant if all(other == key or other[0] != key[0] for other in counts)]
    if not meant or not _were_types(recent, meant, origins):
        return
    written = [*meant, *(other for family in rules.families if family & {*meant} for other in family - {*meant})]
    for key in meant:
        evidence = Evidence(counts[key], len(recent.edits) - 1, origins)
        pattern = _type_pattern(key, rules)
        if all(re.search(rf"(?<!\w){re.escape(key[1])}\s*\|", origin.line) for origin in origins):  # in unions alone
            pattern = re.compile(rf"{pattern.pattern}(?=\s*\|)")

        def rewritten(start: int, line: str, pattern: re.Pattern[str] = pattern) -> str:
            match = pattern.search(line)
            return _rewritten(line, written, rules) if match and _is_type(recent, start + match.start()) else line

        yield from recent.rewritten_lines(pattern, Substitution(TYPE, *key), evidence, rewritten, is_proven=False)


def _type_pattern(key: Replacement, rules: TypeRules) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(key[0])}" + ("" if key in rules.structures else r"(?!\w)"))


def _rewritten(line: str, meant: Sequence[Replacement], rules: TypeRules) -> str:
    for key in meant:
        structure = rules.structures.get(key)
        line = structure(line) if structure is not None else _type_pattern(key, rules).sub(key[1], line)
    return line


def _were_types(recent: Recent, meant: list[Replacement], origins: list[Origin]) -> bool:
    """True if the user has replaced types, as far as the changed lines stand in this document."""
    for origin in origins:
        at = recent.text.find(origin.line)
        if at >= 0:
            for _, new in meant:
                inside = origin.line.find(new.strip())
                if inside >= 0 and not _is_type(recent, at + inside):
                    return False
    return True


def _is_type(recent: Recent, offset: int) -> bool:
    tree = recent.parse(offset)
    return tree is not None and tree.is_type(offset)
