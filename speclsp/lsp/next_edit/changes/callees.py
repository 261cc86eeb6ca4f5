"""A callee that was replaced, in other calls: print(a) -> show(a), console.log(a) -> logger.debug(a).

After one time the file defines or imports the new callee, and does not define the old one or the object that has it.
Where it defines the old one, a call has to share the words that all changed lines had: other calls keep it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from speclsp.lsp.next_edit.changes.recent_changes import Change, Recent
from speclsp.lsp.next_edit.changes.substitutions import Place, Substitution
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.languages.keywords import declaration_before
from speclsp.lsp.syntax.text_windows import WORD

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
        is_kept = not is_of_module and recent.defines(owner)
        is_known = recent.defines(re.split(r"\W", new)[0]) and not is_kept
        if contradicted:
            continue
        if times < MIN_TIMES and not is_known:
            recent.report(CALLEE, Reason.MADE_ONCE)
            continue
        shared = set[str].intersection(*({*WORD.findall(change.old)} for change in same))
        evidence, pattern = recent.evidence(same), re.compile(rf"{BEFORE}{re.escape(old)}\(")
        is_proven = times >= MIN_TIMES and not recent.passed(pattern, f"{old}(", evidence.origins)
        tree, name = recent.parse(recent.cursor), re.findall(r"\w+", new)[-1]
        defines = re.compile(rf"\b{name}\s*(?:[=(<]|:\s*(?:async\s*)?(?:\(|function))")
        for start, line in recent.lines_with(pattern, f"{old}("):
            match = pattern.search(line)
            if recent.is_late() or match is None or tree is None:
                return
            is_method = not line[: match.start()].strip() and line.rstrip().endswith("{")  # its definition
            headers = [scope.header for scope in tree.enclosing(start + match.start())]
            headers += re.findall(r".*(?:=>|\blambda\b)", line[: match.start()])
            if (
                not is_method
                and not any(map(defines.search, headers))  # the new callee may call the old one
                and not declares.search(line[: match.start()])
                and recent.kind_at(start + match.start()) == "code"
                and (not is_kept or owner != old or shared <= {*WORD.findall(line)})
            ):
                place = Substitution(CALLEE, old, new)
                yield Place(start, start + len(line), pattern.sub(f"{new}(", line), place, evidence, None, is_proven)
