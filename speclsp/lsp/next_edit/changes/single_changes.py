"""One change that is surely meant again: the same change elsewhere in the file.

    callee   a callee that was replaced once   changed_names.py
    type     a type that was replaced twice    f(a: List[int], b: List[str])    then other annotations

The tree says where a type stands. A line is offered with all types replaced that the user has replaced.

Precision comes first: benchmarks/editor/next_edit.py measures each kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from speclsp.lsp.next_edit.changes.changed_names import Change, Parse, Recent, callee_places
from speclsp.lsp.next_edit.changes.places import Place
from speclsp.lsp.next_edit.changes.substitutions import (
    NAME,
    TOKEN,
    Evidence,
    Origin,
    RecentEdit,
    Substitution,
)

TYPE = "type"  # the kind of these edits
MIN_TIMES = 2  # replaced types, on one line or several
MAX_NESTED = 3  # optional types inside of each other
INNER = (
    r"""(?:[^\[\]'"]|\[(?:[^\[\]'"]|\[(?:[^\[\]'"]|\[[^\[\]'"]*\])*\])*\])"""  # of a subscript, with three inside of it
)
OPTIONAL = re.compile(rf"(?<![\w.])(?:typing\.|t\.)?Optional\[({INNER}+)\]")
UNION = re.compile(rf"(?<![\w.])(?:typing\.|t\.)?Union\[({INNER}+)\]")
ITEM = re.compile(rf"(?:(?!,){INNER})+")

Replacement = tuple[str, str]  # the text before and after; its structure has its own function below


def places(
    recent: Sequence[RecentEdit],
    text: str,
    parse: Parse,
    cursor: int,
    is_late: Callable[[], bool],
) -> Iterator[Place]:
    """The places of all kinds. Of each kind, below the cursor first, then above, the nearest first."""
    state = Recent(recent, text, parse, cursor, is_late)
    yield from type_places(state)
    yield from callee_places(state)


# ── types in annotations ──────────────────────────────────────────────────────────────────────────────────────────────


def without_optional(line: str) -> str:
    """The line with `X | None` for each `Optional[X]`, unless X has a quote."""
    for _ in range(MAX_NESTED):
        line = OPTIONAL.sub(r"\1 | None", line)
    return line


def without_union(line: str) -> str:
    """The line with `X | Y` for each `Union[X, Y]`, unless it has a quote."""
    for _ in range(MAX_NESTED):
        line = UNION.sub(lambda match: " | ".join(item.strip() for item in ITEM.findall(match[1])), line)
    return line


STRUCTURES: dict[Replacement, Callable[[str], str]] = {
    ("Optional[", "| None"): without_optional,
    ("Union[", " | "): without_union,
}
FAMILIES = (  # replacements that one release of Python allows together
    frozenset(STRUCTURES),
    frozenset((name, name.lower()) for name in ("List", "Dict", "Set", "FrozenSet", "Tuple", "Type")),
)


def replacements(change: Change) -> Counter[Replacement]:
    """The types that a line's change has replaced, if it did nothing else, and how often."""
    line, counts = change.old, Counter[Replacement]()
    for key, structure in STRUCTURES.items():
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
    newest = Counter[Replacement]()
    for change in recent.newest:
        if recent.is_late():
            return
        newest += replacements(change)
    if not newest:
        return
    counts, origins = Counter[Replacement](), list[Origin]()
    for change in recent.changes:
        replaced = replacements(change)
        for key, number in replaced.items():
            counts[key] += number * change.times
        if replaced.keys() & newest.keys():
            origins.append(Origin(recent.edits[change.edit].uri, change.new))
    meant = [key for key in newest if counts[key] >= MIN_TIMES and (key[1], key[0]) not in counts]
    meant = [key for key in meant if all(other == key or other[0] != key[0] for other in counts)]
    if not meant or not _were_types(recent, meant, origins):
        return
    written = [*meant, *(other for family in FAMILIES if family & {*meant} for other in family - {*meant})]
    for key in meant:
        evidence = Evidence(counts[key], len(recent.edits) - 1, origins)
        pattern = _type_pattern(key)
        if any(_is_type(recent, at) for at in recent.passed(pattern, key[0], origins)):
            continue
        for start, line in recent.lines_with(pattern, key[0]):
            if recent.is_late():
                return
            new, match = _rewritten(line, written), pattern.search(line)
            if new != line and match is not None and _is_type(recent, start + match.start()):
                yield Place(start, start + len(line), new, Substitution(TYPE, *key), evidence)


def _type_pattern(key: Replacement) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(key[0])}" + ("" if key in STRUCTURES else r"(?!\w)"))


def _rewritten(line: str, meant: list[Replacement]) -> str:
    for key in meant:
        line = STRUCTURES[key](line) if key in STRUCTURES else _type_pattern(key).sub(key[1], line)
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
