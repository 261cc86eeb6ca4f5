"""Closers at the end of a suggestion: the brackets, tags, quotes and end marks that it needs before the rest.

    names.forEach(‸)                name => log(name          the rest closes one of two brackets: `)` is added
    app.listen(3000, ‸)             () => {⏎  log("on"        `)`, and `}` on a line of its own, are added
    struct Point {‸}                ⏎    x: f64,⏎    y: f64   a block on lines of its own: the rest's `}` comes below

The closers follow from the pairing of the code before the cursor, the text and the code after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from speclsp.lsp.postprocess.surroundings import Surroundings, imbalance
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages.record import UNKNOWN_RULES, LexicalRules
from speclsp.lsp.syntax.lexical_rules import Mark, Pairing, pair

_CLOSERS_ONLY = re.compile(r"(?:[\s)\]}>\"'`;,:.?!]|/>|</[\w.:-]*>)*\Z")
_STATEMENT = re.compile(r"[\w)\]\"'`]\s*\Z")  # the end of a line that may be one
_PLAIN = LexicalRules(string="")  # every bracket counts
_CLOSER = re.compile(r"[)\]}]|/>|</")
_TAG_AT_END = re.compile(r"<([A-Za-z][\w.:-]*)?(?:\s[^<>]*|\{[^<>]*)?(?<!/)>\s*\Z")
_LINE_OF_CLOSERS = re.compile(r"[ \t]*[)\]}][)\]};,]*[ \t]*$", re.MULTILINE)
GOES_ON = re.compile(r"[=+\-*/%&|<^~.,:\\]\s*\Z")  # the end of a line that the next one continues


def encloses(around: Surroundings) -> bool:
    """True if the rest of the line holds only closers, or closes the bracket or tag just left of the cursor."""
    rest = around.rest.strip()
    return bool(rest) and (opens_at_cursor(around) or (_CLOSERS_ONLY.match(rest) and _CLOSER.search(rest)) is not None)


def opens_at_cursor(around: Surroundings) -> bool:
    """True if a bracket or tag opens just left of the cursor and is closed just right of it."""
    line, rest = around.line.rstrip(), around.rest.lstrip()
    if not line or not rest:
        return False
    if line[-1] == ">" and rest.startswith("</") and around.rules.markup:
        match = _TAG_AT_END.search(line)
        return match is not None and rest.startswith(f"</{match[1] or ''}>")
    if lexical_rules.PAIRS.get(line[-1]) == rest[0]:
        return True
    openers = pair(around.line, around.rules).openers if line.endswith("|") else []  # Ruby: `{ |item|‸}`
    return bool(openers) and openers[-1].mark == "{" and rest[0] == "}" and around.rules is not UNKNOWN_RULES


def candidates(text: str, around: Surroundings, *, line: bool) -> Iterator[str]:
    """`text` with the closers that it needs, the likeliest first; none if it needs none.

    `line`: what the line before the cursor opens is closed too.
    """
    if around.rest.startswith(">") and text.count("<") > text.count(">"):  # type arguments
        yield text + ">" * (text.count("<") - text.count(">"))
    missing = _missing(text, around, line=line)
    if missing is not None and len(missing[0]) > 1 and leaves_open(text, around) and not any(map(str.isalnum, text)):
        return  # a comment or docstring that only begins
    if missing is not None and not missing[0] and not around.rest.strip():  # the next line may go on
        opens = ends_in_opener(text, around) and not text.rstrip().endswith(">")
        missing = None if GOES_ON.search(text) or opens else missing
    if missing is None:
        ends = _item_ends(text, around.line, around) if before_own_line(text, around) else ("",)
        if ends != ("",):
            yield from (text.rstrip() + end for end in ends)
        return
    mark, openers = missing
    closers = _layout(text, openers, around)
    first_below = next((at for at, closer in enumerate(closers) if closer[0] == "\n"), len(closers))
    inline, below = "".join(closers[:first_below]), "".join(closers[first_below:])
    bare = text if mark else text.rstrip()
    if inline and not mark:
        bare = bare.rstrip(",").rstrip()
    closed = bare + inline + below
    if not mark and around.kind in ("code", "string") and imbalance(closed, 0, around) >= imbalance(text, 0, around):
        return  # something else closes them
    bare += _end_mark(bare, mark, around) + inline
    opener = openers[first_below].mark if below else around.line if before_own_line(text, around) else ""
    ends = _item_ends(bare, opener, around) if opener else ("",)
    yield from (bare + end + below for end in ends)


def _item_ends(text: str, opener: str, around: Surroundings) -> tuple[str, ...]:
    """The likely ends of the last line in a block: the comma or semicolon that its other lines have.

    `opener`: a text that ends with the opener of the block.
    """
    *above, last = [line for line in text.split("\n") if line.strip()]
    width = lexical_rules.indent_width(last)
    above = [line.rstrip() for line in above if lexical_rules.indent_width(line) == width]
    if above and all(line.endswith(",") for line in above):
        is_ended = around.rules.strict or last.rstrip().endswith((",", ";", "{", "(", "["))
        return ("",) if is_ended else (",", "")
    end = around.rules.statement_end
    if not end or not opener.rstrip().endswith("{") or not _STATEMENT.search(last):
        return ("",)
    lines = above or [line.rstrip() for line in (*around.above, *around.below)]
    ended = sum(line.endswith(end) for line in lines)
    bare = sum(line[-1:].isalnum() or line[-1:] == ")" for line in lines)
    return (end, "") if ended > bare else ("", end)


def before_own_line(text: str, around: Surroundings) -> str:
    """The line break and indentation that put the rest on a line of its own below the block `text`; "" without one."""
    if "\n" not in text[: len(text) - len(text.lstrip())] or not opens_at_cursor(around):
        return ""
    return "\n" + lexical_rules.indent_of(around.line)


def end_of_blocks(text: str, end: int, around: Surroundings) -> int:
    """The end of a last line of closers and of those that follow it; -1 without one. Several blocks may end at once."""
    start = text.rfind("\n", 0, end) + 1
    line = _LINE_OF_CLOSERS.match(text, start) if around.kind == "code" and not around.rest.strip() else None
    if line is None:
        return -1
    while line is not None:
        end = line.end()
        line = _LINE_OF_CLOSERS.match(text, end + 1) if text[end : end + 1] == "\n" else None
    return end


def blank_before(text: str, replaced: int, around: Surroundings) -> str:
    """The blank between `text` and a brace right of it, where one stands behind the opener: `{ return x; }`."""
    is_code = around.kind == "code" and around.rest[replaced:].startswith("}")
    if not is_code or "\n" in text or not text.strip() or text[-1:].isspace():
        return ""
    if text[:1] == " " and around.line.endswith(("{", "|")):
        return " "
    whole, openers = around.line + text, pair(around.line + text, around.rules).openers
    is_spaced = bool(openers) and openers[-1].mark == "{" and whole[openers[-1].end :].startswith(" ")
    return " " if is_spaced else ""


def stands_next(around: Surroundings, replaced: int) -> bool:
    """True if a closing bracket follows the text, on its line or below."""
    rest = around.rest[replaced:].lstrip()
    return (rest or "".join(around.below[:1]).lstrip())[:1] in (")", "]", "}")


def leaves_open(text: str, around: Surroundings) -> bool:
    """True if `text` begins a comment or string that can span lines and does not end it."""
    return around.kind == "code" and (token := opened_by(text, around)) is not None and token[0] >= 0


def opened_by(text: str, around: Surroundings) -> tuple[int, str] | None:
    """(offset, end mark) of the comment or string that can span lines and is open at the end of `text`, if it is."""
    token = lexical_rules.left_open(around.line + text, around.rules)
    if token is None or token.kind not in ("block_comment", "long_string"):
        return None
    mark = lexical_rules.closing_of((around.line + text)[token.start :], token.kind)
    return token.start - len(around.line), mark


def opens_bracket(text: str, replaced: int, around: Surroundings) -> bool:
    """True if the code around the cursor has more open brackets with `text` than without it."""
    before = around.code or around.before
    after = "" if around.code else around.after
    pairings = (
        pair(before + inserted, around.rules)
        for inserted in (text + around.rest[replaced:] + after, around.rest + after)
    )
    own, now = (sum(opener.mark in lexical_rules.PAIRS for opener in pairing.openers) for pairing in pairings)
    return own > now


def opens_element(text: str, replaced: int, around: Surroundings) -> bool:
    """True if more tags are without a partner with `text` than without it."""
    if around.kind != "code" or not around.rules.markup or "<" not in text:
        return False
    rest = around.rest + around.after
    with_text, without = (pair(around.before + inserted, around.rules) for inserted in (text + rest[replaced:], rest))
    count, now = (
        sum(mark.mark[0] == "<" for mark in (*pairing.openers, *pairing.closers)) + pairing.malformed
        for pairing in (with_text, without)
    )
    return count > now


def ends_in_opener(text: str, around: Surroundings) -> bool:
    """True if `text` ends with a bracket or tag that it opens."""
    head, openers = len(around.line), pair(around.line + text, around.rules).openers
    return bool(openers) and openers[-1].start >= head and not text[openers[-1].end - head :].strip()


def _end_mark(text: str, mark: str, around: Surroundings) -> str:
    """The end mark of a string or comment, on a line of its own if the text began it and spans lines."""
    if len(mark) < 2:
        return mark
    token = lexical_rules.left_open(around.before + text, around.rules)
    start = token.start - len(around.before) if token is not None else 0
    if token is None or start < 0 or "\n" not in text[start:]:
        return f" {mark}" if mark in ("*/", "-->") and text[-1:].strip() else mark
    line = (around.line + text[:start]).rpartition("\n")[2]
    star = " " if mark == "*/" and text.rpartition("\n")[2].lstrip().startswith("*") else ""
    return "\n" + lexical_rules.indent_of(line + "x") + star + mark


def _missing(text: str, around: Surroundings, *, line: bool) -> tuple[str, list[Mark]] | None:
    """(end mark of the string that is open at the end of `text`, openers to close, innermost first), or None."""
    before, start = around.code, 0
    if not before:
        before, start = around.before, len(around.before) - (len(around.line) if line else 0)
        if around.kind not in ("code", "string"):
            return None
    head = pair(before + text, around.rules)
    quote = ""
    if head.open is None and around.rules.string == UNKNOWN_RULES.string:
        quote = _unknown_quote(text, around)
    elif head.open is not None:
        opened = (before + text)[head.open.start :]
        quote = _string_end(opened, head.open.kind, around)
        is_closed = quote[-3:] in around.rest or (around.closed and quote == around.closing)
        if not quote or head.open.start < start or is_closed:
            return None
    openers = _without_closer(head, before, start, around)
    return (quote, openers) if quote or openers else None


def _string_end(string: str, kind: str, around: Surroundings) -> str:
    """The end of a string or comment that is open at its end, and of the code that is interpolated there."""
    mark = lexical_rules.closing_of(string, kind)
    at = max(map(string.rfind, ("${", "#{", "$("))) + 1
    if not at or mark not in ("`", '"') or "comment" in kind or lexical_rules.PAIRS[string[at]] in string[at:]:
        return mark
    openers = pair(string[at:], _PLAIN).openers
    return "".join(opener.closer for opener in reversed(openers)) + mark


def _without_closer(head: Pairing, before: str, start: int, around: Surroundings) -> list[Mark]:
    """The openers from `start` on that nothing right of the cursor closes, innermost first.

    A closer right of the cursor keeps the partner that it has without the text. One that has none may close the text.
    """
    right = pair(around.rest + around.after, around.rules).closers
    open_now, inner, partners, stray = _close(pair(before, around.rules).openers, right)
    own = [opener for opener in head.openers if opener.start >= len(before)]
    for closer in stray:
        is_near = closer.start < len(around.rest) or not around.rest.strip()
        if own and is_near and own[-1].is_closed_by(closer):
            own.pop()
    below = [line.strip() for line in around.below if line.strip().startswith("</")]
    left = [opener for opener in head.openers if start <= opener.start < len(before) and opener not in partners]
    left = [
        opener for opener in left if opener.mark[0] != "<" or not any(line.startswith(opener.closer) for line in below)
    ]
    missing = [*reversed(own), *(opener for opener in reversed(left) if opener in inner)]
    outer = [opener for opener in reversed(left) if opener in open_now]
    in_rest = {around.rest[closer.start : closer.end] for closer in right if closer.start < len(around.rest)}
    # A closer stands in front of the rest, so only one that the rest has too can close what is further out.
    missing += outer if all(in_rest <= {opener.closer} for opener in outer) else []
    innermost = head.openers[::-1][: len(missing)]  # what the closers close once they stand there
    return innermost if [mark.closer for mark in innermost] == [mark.closer for mark in missing] else missing


def _close(openers: list[Mark], closers: list[Mark]) -> tuple[list[Mark], list[Mark], list[Mark], list[Mark]]:
    """The openers that remain, those inside a closed one, those that are closed, and the closers without an opener."""
    stack, inner, partners, stray = list(openers), list[Mark](), list[Mark](), list[Mark]()
    for closer in closers:
        at = next((at for at in range(len(stack) - 1, -1, -1) if stack[at].is_closed_by(closer)), -1)
        if at < 0:
            stray.append(closer)
            continue
        inner += stack[at + 1 :]
        partners.append(stack[at])
        del stack[at:]
    return stack, inner, partners, stray


def _layout(text: str, openers: list[Mark], around: Surroundings) -> list[str]:
    """The closers of `openers`; a bracket that ends its line is closed on a line of its own."""
    whole = (around.code or around.before) + text.rstrip()
    closers = []
    for opener in openers:
        line_end = whole.find("\n", opener.end)
        if line_end >= 0 and not whole[opener.end : line_end].strip():
            line = whole[whole.rfind("\n", 0, opener.start) + 1 : opener.start + 1]
            closers.append("\n" + lexical_rules.indent_of(line) + opener.closer)
        else:
            is_spaced = opener.mark == "{" and re.match(r" +[^\s}]", whole[opener.end :]) is not None
            closers.append(" }" if is_spaced and not closers else opener.closer)
    return closers


def _unknown_quote(text: str, around: Surroundings) -> str:
    """The quote that ends a string which `text` leaves open, in a language without a grammar."""
    line = text.rpartition("\n")[2]
    line = around.line + line if line == text else line
    is_open = line.count('"') - line.count('\\"') - line.count("\\'\"") & 1
    return '"' if is_open and '"' in text and '"' not in around.rest else ""
