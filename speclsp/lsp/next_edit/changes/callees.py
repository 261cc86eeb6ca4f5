"""A callee that was replaced once, in other calls: print(a) -> show(a).

The file defines or imports the new callee, and does not define the old one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from speclsp.lsp.next_edit.changes.places import Place
from speclsp.lsp.next_edit.changes.recent_changes import Change, Recent
from speclsp.lsp.next_edit.changes.substitutions import Evidence, Origin, Substitution
from speclsp.lsp.syntax.languages.keywords import declaration_before

CALLEE = "callee"  # the kind of these edits
CALLED = re.compile(r"(?<![\w.$])([^\W\d]\w{2,}(?:\.\w+)*)\(")


def replaced_callee(change: Change, declares: re.Pattern[str]) -> tuple[str, str] | None:
    """(old, new) if one call of a line got another callee, and nothing else changed; else None."""
    for old, new in product(CALLED.finditer(change.old), CALLED.finditer(change.new)):
        same_head = change.old[: old.start()] == change.new[: new.start()]
        if old[1] != new[1] and same_head and change.old[old.end() :] == change.new[new.end() :]:
            return None if declares.search(change.old[: old.start()]) else (old[1], new[1])
    return None


def callee_places(recent: Recent) -> Iterator[Place]:
    """Lines that call the old callee, if the file defines the new one and not the old one."""
    declares = declaration_before(recent.language.keywords)
    for old, new in filter(None, (replaced_callee(change, declares) for change in recent.newest)):
        others = [(change, *callees) for change in recent.changes if (callees := replaced_callee(change, declares))]
        contradicted = any(before == new or (before == old and after != new) for _, before, after in others)
        if contradicted or "." in old or not recent.defines(new.split(".")[0]) or recent.defines(old):
            continue
        same = [change for change, before, _ in others if before == old]
        origins = [Origin(recent.edits[change.edit].uri, change.new) for change in same]
        evidence = Evidence(sum(change.times for change in same), len(recent.edits) - 1, origins)
        pattern = re.compile(rf"(?<![\w.$]){old}\(")
        for start, line in recent.lines_with(pattern, f"{old}("):
            match = pattern.search(line)
            if recent.is_late() or match is None:
                return
            is_method = not line[: match.start()].strip() and line.rstrip().endswith("{")  # its definition
            if (
                not is_method
                and not declares.search(line[: match.start()])
                and recent.kind_at(start + match.start()) == "code"
            ):
                place = Substitution(CALLEE, old, new)
                yield Place(start, start + len(line), pattern.sub(f"{new}(", line), place, evidence)
