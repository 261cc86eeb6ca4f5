"""Guards of an edit that repeats a shape: a literal's role, a variable's assignments, the function around, its awaits.

A literal has the role that its surroundings give it: the callee with the number of the argument, and the key or the
name that it is assigned to. What the changed literals have in common of it, a place must have too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from speclsp.lsp.next_edit.changes.recent_changes import Change, Recent
from speclsp.lsp.next_edit.changes.substitutions import indentation
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.text_windows import common_ends, line_end, line_start
from speclsp.lsp.syntax.tree import SyntaxTree

DECLARATIONS = {("var", "const"), ("let", "const"), ("var", "let"), ("var", "val")}
QUOTES = ('"', "'", "`")
MIN_TYPO, MAX_WRONG = 5, 2  # characters of a misspelt word, and of its part that is wrong
MAX_REACH, MAX_NAME = 400, 80  # characters left of a literal that are searched for its call; of a callee
MAX_CALLS, CALLS_CHARACTERS = 24, 15_000  # nearest to the cursor; searched on either side of it
MAX_HEADER = 600  # characters
AWAITED = re.compile(r"\bawait\s+([\w$.]+)\(|([\w:.]+)\((?:[^()]|\([^()]*\))*\)\.await\b")
ASYNC = re.compile(
    r"\basync\s+(?:def|function|fn)\s+(\w+)\s*\((\s*&?(?:mut )?self)?|\b(?:const|let)\s+(\w+)\s*=\s*async\b"
    r"|(?m:^[ \t]+(?:static )?async\s+(\w+)\()"
)
NOT_ASYNC = re.compile(r"(?<!async )\b(?:def|function|fn)\s+(\w+)|(?m:^[ \t]+(?:static )?(\w+)\([^()\n]*\) *\{)")
MODIFIERS = re.compile(
    r"(?:(?:pub(?:\([\w ]+\))?|export|default|public|private|protected|internal|static|override)\s+)*"
)
NEVER_ASYNC = re.compile(r"(?:constructor|get|set|lambda)\b|[^(]*\b__\w+__\(|[^(]*[^\w>(]\(|\(")
DECLARES = re.compile(r"\b(?:await|async|def|function|fn|new|void|in|of|with)\s+\Z")
LITERAL = re.compile(r"\d[\w.]*|[Tt]rue|[Ff]alse|None|null|nil|undefined")
STRING = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`""")
KEY = re.compile(r"""(?:([\w$-]+)["']?\s*:|([\w$.]+)\s*(?::[^=:,()]+)?:?=)\s*[{&]?[a-zA-Z]{0,2}\Z""")
CALLEE = re.compile(r"([\w$.:!]+)\s*\Z")
EXPECTED = re.compile(r"(?i)\bassert|\bexpect|\bshould|\bwant|\bexact|equals?\b|\.to(?:be|match|throw|contain)|[=!]=")
ASSIGNED = re.compile(r"\s*(?:[-+*/%&|^?<>]{0,3}=(?![=>])|\+\+|--|(?:of|in)\b|[\w\s,.$]{0,99}[\]}]\s*=(?![=>]))")
DECLARED = re.compile(
    r"\s+([\w$]+|[\[{][^=]*[\]}])\s*(?::[^=]+)?(?:=(?![=>])|\b(?:of|in)\b)(?!.*,\s*[\w$]+\s*=(?![=>]))"
)
OPTION = re.compile(
    r"\.(?:first|last|get|get_mut|next|pop|peek|parent|find|min|max|take|as_ref|checked_\w+|strip_\w+|split_once|nth"
    r"|file_name|extension|to_str|as_str|position)\((?:[^()]|\([^()]*\))*\)\Z"
)


class Spot(NamedTuple):
    """Surroundings of a changed text. `kind`: "code", "type", "string" or "comment"."""

    kind: str
    callee: str
    key: str
    is_expected: bool  # by a test or a comparison


Spots = tuple[Spot, Spot]  # of two changes of one shape


def spot_of(recent: Recent, change: Change, left: Sequence[str]) -> Spot:
    """The spot of a changed line. `left`: the tokens before the change, without indentation."""
    start, column = recent.text.find(change.new), len(indentation(change.new)) + len("".join(left))
    at = start + column
    return spot_at(recent.text, at, kind_at(recent, at)) if start >= 0 else spot_at(change.new, column)


def kind_at(recent: Recent, offset: int) -> str:
    kind, tree = recent.kind_at(offset), recent.parse(offset)
    is_type = kind == "code" and tree is not None and (tree.is_type(offset) or tree.is_type(max(0, offset - 1)))
    return "type" if is_type else kind


def spot_at(text: str, offset: int, kind: str = "") -> Spot:
    """The spot of an offset. Without a kind the quotes of its line decide."""
    start, string = max(line_start(text, offset), offset - MAX_REACH), string_around(text, offset)
    at, callee, depth, arguments = string.start() if string else offset, "", 0, 0
    for position in range(at - 1, max(-1, at - MAX_REACH), -1):
        character = text[position]
        depth += (character in ")]}") - (character in "([{")
        if depth < 0:
            name = CALLEE.search(text[max(0, position - MAX_NAME) : position])
            callee = f"{name[1]}{character}{arguments}" if name and character != "{" else ""
            break
        arguments += depth == 0 and character == ","
    key = KEY.search(text, start, at)
    is_expected = EXPECTED.search(text[start:at] + callee) is not None
    return Spot(kind or ("string" if string else "code"), callee, (key[1] or key[2]) if key else "", is_expected)


def string_around(text: str, offset: int) -> re.Match[str] | None:
    start, end = max(line_start(text, offset), offset - MAX_REACH), min(line_end(text, offset), offset + MAX_REACH)
    strings = STRING.finditer(text, start, end)
    return next((match for match in strings if match.start() < offset < match.end()), None)


def is_guarded(hunks: Sequence[tuple[str, str]], spots: Spots) -> bool:
    """True if `allows` proves that the differences fit, beyond the names that they write."""
    (old, new), is_text = hunks[0], spots[0].kind in ("string", "comment")
    is_text = is_text or LITERAL.fullmatch(old) is not None
    return is_text or hunks[0] in DECLARATIONS or "await" in hunks[-1][1] or new in ("async ", "?")


def allows(recent: Recent, tree: SyntaxTree, hunks: Sequence[tuple[str, str]], spots: Spots, offset: int) -> bool:
    """True if the differences of two changes fit what is at an offset."""
    (old, new), text = hunks[0], recent.text
    kind, kinds = kind_at(recent, offset), {spot.kind for spot in spots}
    if kind in ("code", "type") and kind in kinds and not LITERAL.fullmatch(old):
        if (old, new) in DECLARATIONS:
            return is_constant(recent, tree, offset, old, new)
        if "await" in hunks[-1][1]:
            is_argument = spot_at(text, offset).callee and not any(spot.callee for spot in spots)
            return not is_argument and may_await(recent, tree, offset)
        if new == "?" and recent.language.has_early_results:
            return propagates(text, tree, offset)
        return True
    if is_typo(old, new) and kinds & {"comment", "string"}:
        return kind == "comment" or (kind == "string" and " " in (string_around(text, offset) or " ")[0])
    if kind == "comment":
        return kinds == {kind} and old != ""
    return kind in kinds and has_role(text, spot_at(text, offset, kind), spots, offset, old)


def is_typo(old: str, new: str) -> bool:
    """True if a word is corrected: it begins and ends as before, and few letters change."""
    head, tail = common_ends(old, new)
    is_word = old.isalpha() and new.isalpha() and min(len(old), len(new)) >= MIN_TYPO
    return is_word and min(head, tail) > 0 and max(len(old), len(new)) - head - tail <= MAX_WRONG


def has_role(text: str, spot: Spot, spots: Spots, offset: int, old: str) -> bool:
    """True if a literal has the role that two changed literals have in common."""
    first, other = spots
    if spot.is_expected and not (first.is_expected or other.is_expected):
        return False
    end = offset + len(old)
    is_whole = LITERAL.fullmatch(old) or (text[offset - 1 : offset] in QUOTES and text[end : end + 1] in QUOTES)
    has_key, has_callee = first.key == other.key != "", first.callee == other.callee != ""
    if ((is_whole or not old) and not has_key and not has_callee) or (len(old) == 1 and not has_key):
        return False
    is_part_of_receiver = not is_whole and first.callee.partition("(")[0].count(".") and first.callee == other.callee
    callee = first.callee.rpartition(".")[0] + ".(" if is_part_of_receiver else other.callee
    return fits(spot.callee, first.callee, callee) and fits(spot.key, first.key, other.key)


def fits(value: str, first: str, other: str) -> bool:
    """True if a part of a role agrees with what two have in common: all of it, the receiver, or that there is one."""
    receiver, dot, _ = first.rpartition(".")
    if first != other and dot and other.startswith(receiver + dot):
        return value.startswith(receiver + dot)
    return value == first if first == other else bool(value) or not (first and other)


def function_around(tree: SyntaxTree, offset: int) -> int | None:
    """The start of the innermost function around an offset."""
    byte = tree.view.byte_of(offset)
    nodes = (
        node
        for captures in tree.matches(bindings.SECTION, byte, byte + 1)
        for kind in bindings.FUNCTIONS
        for node in captures.get(kind, ())
        if bindings.surrounds(node, byte, byte + 1)
    )
    innermost = min(nodes, key=lambda node: node.end_byte - node.start_byte, default=None)
    return tree.view.to_document(innermost.start_byte) if innermost is not None else None


def header(text: str, start: int | None) -> str:
    """A function's text up to its body."""
    return re.split(r"\{|=>|:\s*\n", text[start : start + MAX_HEADER], maxsplit=1)[0] if start is not None else ""


def may_await(recent: Recent, tree: SyntaxTree, offset: int) -> bool:
    """True if an offset is in an async function, behind no `await` and at no declaration."""
    is_async = re.search(r"\basync\b", header(recent.text, function_around(tree, offset)))
    return is_async is not None and DECLARES.search(recent.text, max(0, offset - 20), offset) is None


def propagates(text: str, tree: SyntaxTree, offset: int) -> bool:
    """True if `?` at an offset leaves a function that returns what the value before it may be."""
    returned = header(text, function_around(tree, offset)).rpartition("->")[2]
    return ("Option<" if OPTION.search(text[line_start(text, offset) : offset]) else "Result") in returned


def is_constant(recent: Recent, tree: SyntaxTree, offset: int, old: str, new: str) -> bool:
    """True if the variables of a declaration are assigned nowhere else, and used behind it in its block only."""
    start = offset + len(old)
    head = DECLARED.match(recent.text, start, line_end(recent.text, start))
    words = re.finditer(r"[\w$]+", head[1]) if head is not None else ()
    return head is not None and all(
        is_unassigned(recent, tree, word[0], head.start(1) + word.start(), new) for word in words
    )


def is_unassigned(recent: Recent, tree: SyntaxTree, word: str, at: int, new: str) -> bool:
    """True if the name that is declared at an offset may be declared by another keyword; also if it is a key."""
    text, defined = recent.text, bindings.at(tree, at, at + len(word))
    if defined is None or defined.defines is None:
        return True
    block = defined.scopes[-1 if new == "val" else 0]
    names = bindings.occurrences(tree, word, defined.defines.start, defined.defines.end, recent.is_late)
    definitions = [name for name in names if name.is_definition]
    for name in names:
        is_other = name.start == at or not name.is_variable
        if not is_other and bindings.scope_of(name, definitions) == defined.defines:
            is_written = ASSIGNED.match(text, name.end) or text[name.start - 2 : name.start] in ("++", "--")
            is_outside = not max(block.start, at) <= name.start < block.end
            if name.is_definition or is_outside or (is_written and new != "let"):
                return False
    return len(names) < bindings.MAX_OCCURRENCES and not recent.is_late()


def async_functions(recent: Recent) -> Iterator[str]:
    """The callees that call the async functions of the file, without those whose name another function has too."""
    text = recent.text[recent.low : recent.high]
    others = {name for names in NOT_ASYNC.findall(text) for name in names if name}
    for function, own, variable, method in ASYNC.findall(text):
        if (function or method) not in others:
            yield f"this.{method}" if method else f"self.{function}" if own else function or variable


def awaited_callees(recent: Recent) -> list[str]:
    """The callees whose calls are awaited, the user's first."""
    lines = "\n".join(change.new for change in recent.changes[::-1])
    names = [name for match in AWAITED.finditer(lines) for name in match.groups() if name]
    return list(dict.fromkeys([*names, *async_functions(recent)]))


def missing_async(recent: Recent, tree: SyntaxTree, callees: Sequence[str]) -> Iterator[str]:
    """The first words, up to the bracket, of the functions that await and are not async."""
    names = "".join(rf"|(?<![\w$.]){re.escape(callee)}\(" for callee in callees)
    low, high = max(0, recent.cursor - CALLS_CHARACTERS), recent.cursor + CALLS_CHARACTERS
    calls = [match.start() for match in re.compile(rf"\bawait\b{names}").finditer(recent.text, low, high)]
    for at in sorted(calls, key=lambda at: abs(at - recent.cursor))[:MAX_CALLS]:
        if recent.is_late():
            return
        head = header(recent.text, function_around(tree, at))
        rest = MODIFIERS.sub("", head, count=1)
        if "(" in rest and "async" not in head and not NEVER_ASYNC.match(rest):
            yield rest[: rest.index("(") + 1]
