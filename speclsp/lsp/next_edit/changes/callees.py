"""A callee that was replaced, in other calls: print(a) -> show(a), console.log(a) -> logger.debug(a).

After one time the file defines or imports the new callee, and does not define the old one or the object that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from speclsp.lsp.next_edit.changes.places import Place
from speclsp.lsp.next_edit.changes.recent_changes import Change, Recent
from speclsp.lsp.next_edit.changes.substitutions import Substitution
from speclsp.lsp.syntax.languages.keywords import declaration_before

CALLEE = "callee"  # the kind of these edits
MIN_TIMES = 2  # where the file does not show that the new callee stands for the old one
BEFORE = r"(?<![\w.$])(?<!::)"
CALLED = re.compile(BEFORE + r"([^\W\d]\w{2,}(?:(?:\.|::)\w+)*!?)\(")  # `!`: a macro of Rust


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
    for old, new in dict.fromkeys(filter(None, (replaced_callee(change, declares) for change in recent.newest))):
        others = [(change, *callees) for change in recent.changes if (callees := replaced_callee(change, declares))]
        contradicted = any(before == new or (before == old and after != new) for _, before, after in others)
        same = [change for change, before, _ in others if before == old]
        times, owner = sum(change.times for change in same), re.split(r"\W", old)[0]
        is_of_module = owner != old and recent.imports(owner)
        is_known = recent.defines(re.split(r"\W", new)[0]) and (is_of_module or not recent.defines(owner))
        if contradicted or (times < MIN_TIMES and not is_known):
            continue
        evidence, pattern = recent.evidence(same), re.compile(rf"{BEFORE}{re.escape(old)}\(")
        is_proven = times >= MIN_TIMES and not recent.passed(pattern, f"{old}(", evidence.origins)
        tree, name = recent.parse(recent.cursor), re.findall(r"\w+", new)[-1]
        defines = re.compile(rf"\b{name}\s*(?:[=(<]|:\s*(?:async\s*)?(?:\(|function))")
        for start, line in recent.lines_with(pattern, f"{old}("):
            match = pattern.search(line)
            if recent.is_late() or match is None:
                return
            is_method = not line[: match.start()].strip() and line.rstrip().endswith("{")  # its definition
            scopes = tree.enclosing(start + match.start()) if tree is not None else []
            headers = [*(scope.header for scope in scopes), *re.findall(r".*(?:=>|\blambda\b)", line[: match.start()])]
            if (
                not is_method
                and not any(map(defines.search, headers))  # the new callee may call the old one
                and not declares.search(line[: match.start()])
                and recent.kind_at(start + match.start()) == "code"
            ):
                place = Substitution(CALLEE, old, new)
                yield Place(
                    start, start + len(line), pattern.sub(f"{new}(", line), place, evidence, is_proven=is_proven
                )
