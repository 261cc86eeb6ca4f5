"""Identifiers that edits have renamed, and that do nothing else: def area(width) -> def area(breadth).

Their uses are those of renames/scoped_uses.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from speclsp.lsp.next_edit.changes.substitutions import NAME, TOKEN, Edit, Origin, differences, indentation

MAX_NAMES = 2  # of one edit: more new names mean that its lines were written anew
ALIASED = re.compile(r"(?<=[{,\s])(\w+) as (\w+)(?=\s*[,}])")
EXPANDED = re.compile(r"(?<=[{,\s])(\w+): (\w+)(?=\s*[,}])")
SUBWORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")


def is_rename(edit: Edit) -> bool:
    """True if an edit does nothing but rename one identifier, or MAX_NAMES of them.

    Two names in one line become names like theirs: else the line was written anew. Edits near each other are one edit,
    so a name is alone in its line without those that another line has alone.
    """
    if len(edit.old_lines) != len(edit.new_lines):
        return False
    names, lines = dict[str, str](), list[set[tuple[str, str]]]()
    for old_line, new_line in edit.changed_lines:
        old, new = TOKEN.findall(old_line), TOKEN.findall(without_keys(old_line, new_line))
        pairs = zip(old, new, strict=False)  # blanks align the lines of a struct
        changed = [pair for pair in pairs if pair[0] != pair[1] and not "".join(pair).isspace()]
        if len(old) != len(new) or not all(NAME.match(name) for pair in changed for name in pair):
            return False
        if any(names.setdefault(before, after) != after for before, after in changed):
            return False
        lines.append({*changed})
    alone = {pair for line in lines if len(line) == 1 for pair in line}
    are_alike = all(subwords(old) & subwords(new) for old, new in names.items())
    return 0 < len(names) <= MAX_NAMES and (
        len(names) == 1 or are_alike or all(len(line - alone) < 2 for line in lines)
    )


def without_keys(old_line: str, new_line: str) -> str:
    """The new line with `{ new }` for `{ name: new }`, `{ new: name }`, `{ new as name }` in place of `{ name }`."""

    def short(match: re.Match[str]) -> str:
        if f"{match[1]}:" in old_line:
            return match[0]
        is_value = re.search(rf"(?:[{{,]|^)\s*{match[2]}\s*(?:[,}}]|$)", old_line)
        is_key = re.search(rf"(?<!\w){match[1]}(?!\w|:)", old_line)
        return match[2] if is_key else match[1] if is_value else match[0]

    def without_alias(match: re.Match[str]) -> str:
        has_name = re.search(rf"(?<!\w){match[2]}(?!\w)", old_line) and not re.search(rf"\bas {match[2]}\b", old_line)
        return match[1] if has_name else match[0]

    return ALIASED.sub(without_alias, EXPANDED.sub(short, new_line))


def subwords(name: str) -> set[str]:
    """The words of an identifier, in lower case: `box_width`, `boxWidth` -> box, width."""
    return {word.lower() for word in SUBWORD.findall(name)}


def are_alike(old: str, new: str) -> bool:
    """True if two names share all but one word, and both or none of them are in capitals."""
    before, after = subwords(old), subwords(new)
    return bool(before & after) and max(len(before - after), len(after - before)) < 2 and old.isupper() == new.isupper()


def renamed_tokens(old_line: str, new_line: str) -> list[tuple[str, str, int]]:
    """(old name, new name, column in the new line) of each identifier that has another name in the new line."""
    old, new = TOKEN.findall(old_line), TOKEN.findall(new_line)
    return [
        (before, after, sum(map(len, new[:index])))
        for _, low, high, start, end in differences(old, new)
        if high - low == end - start
        for before, after, index in zip(old[low:high], new[start:end], range(start, end), strict=True)
        if before != after and NAME.match(before) and NAME.match(after)
    ]


@dataclass(slots=True)
class Rename:
    """One identifier that edits have renamed."""

    old: str
    new: str
    times: int = 0
    changes: int = 0  # of names, in the newest edit
    origins: list[Origin] = field(default_factory=list)
    spots: list[tuple[str, int]] = field(default_factory=list)  # (line, column) in the newest edit
    written: Counter[tuple[str, int]] = field(default_factory=Counter)  # (line, column) without indentation, of all


def repeated_names(edit: Edit) -> set[tuple[str, str]]:
    """(old, new) of the names that an edit renamed on several lines, on one of them alone, whatever else it changed."""
    counts, alone = Counter[tuple[str, str]](), set[tuple[str, str]]()
    for old_line, new_line in edit.changed_lines:
        pairs = {(old, new) for old, new, _ in renamed_tokens(old_line, new_line)}
        counts.update(pairs)
        alone |= {(old, new) for old, new in pairs if re.sub(rf"(?<!\w){old}(?!\w)", new, old_line) == new_line}
    return {pair for pair in alone if counts[pair] > 1}


def renamed(edits: Sequence[Edit]) -> list[Rename]:
    """The identifiers that the newest edit renamed, each with all recent edits that did the same."""
    listed: dict[tuple[str, str], Rename] = {}
    repeated = None if is_rename(edits[-1]) else repeated_names(edits[-1])
    if repeated == set():
        return []
    changes = sum(len(renamed_tokens(*pair)) for pair in edits[-1].changed_lines)
    for number, edit in enumerate(reversed(edits)):
        for old_line, new_line in edit.changed_lines:
            for old, new, before in renamed_tokens(old_line, without_keys(old_line, new_line)):
                column = max(before, new_line.find(new, before))
                if number == 0:
                    listed.setdefault((old, new), Rename(old, new, changes=changes)).spots.append((new_line, column))
                rename = listed.get((old, new))
                if rename is not None:
                    rename.written[new_line.strip(), column - len(indentation(new_line))] += edit.times
                    rename.times += edit.times
                    rename.origins.append(Origin(edit.uri, new_line))
    return [rename for pair, rename in listed.items() if repeated is None or pair in repeated]
