"""Cursors in a file as an editor with automatic closers leaves them (VS Code, pair plugins of Neovim).

    typed so far     foo(a, bar("          on the disk   foo(a, bar("b"));
    in the editor    foo(a, bar("‸"))      the closers of the pairs that this line opens left of the cursor

    answer   b         the text that is missing up to the innermost closer; it closes all that it opens
    rest     "))       closers only, and sometimes the `;` or `,` behind them

An opener at the end of a line gives `{‸}` with its body as answer, and after Enter the body alone. Arguments behind
the innermost pair, `foo(bar(‸), c)`, are not typed yet: they are dropped, or they stay where a person typed them before
the body, as in `useEffect(() => {‸}, [])`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar

MARKUP = frozenset(("javascriptreact", "typescriptreact"))
QUOTE = re.compile(r"[@\w]*?(\"\"\"|'''|[\"'`])")
TAG = re.compile(r"<([A-Za-z][\w.]*)((?:\s[^<>\n]*)?[^/<>\n])?>")
ENDS_WITH_MARK = re.compile(r"[;,]$")
STAYS = re.compile(r"(?:[;,:]|\s*\{)?$")  # behind the last closer of a line: the text that an editor may hold there
GOES_ON = re.compile(r"(?:[=+\-*/%&|<>?:,.(\[{\\^!~]|\b(?:and|or|not|in|is|if|else|as|for|return|await))$")
BEGINS_WITH_OPERATOR = re.compile(r"\s*(?:[=+\-*/%&|<>?:.^~]|(?:and|or|if|else|in|is)\b)")


@dataclass(frozen=True, slots=True)
class Pair:
    """An opener and its closer. Offsets are of the text between them."""

    kind: str  # "bracket" | "string" | "docstring" | "tag"
    opened: int
    closed: int
    closer: str

    @property
    def end(self) -> int:
        return self.closed + len(self.closer)


@dataclass(frozen=True, slots=True)
class Place:
    """A cursor in a text. The editor shows text[:cursor] + rest + text[end:]; the author has `answer` between."""

    kind: str  # "bracket" | "string" | "docstring" | "tag" | "block" | "entered"
    cursor: int
    answer: str
    rest: str
    end: int
    mark: str = ""  # the `;` or `,` behind the closers that the editor does not hold

    def document(self, text: str) -> str:
        return text[: self.cursor] + self.rest + text[self.end :]

    def author_text(self, text: str) -> str:
        """The document with the answer."""
        return text[: self.cursor] + self.answer + self.rest + text[self.end :]


def pairs_of(text: str, language: str) -> list[Pair] | None:
    """All pairs of a text, by the place of their openers; None where brackets do not match."""
    rules, stack, pairs = lexical_rules.rules_of(grammar(language)), list[tuple[str, int]](), list[Pair]()
    for token in lexical_rules.tokens(text, rules):
        written = text[token.start : token.end]
        if token.kind == "bracket" and written in lexical_rules.PAIRS:
            stack.append((lexical_rules.PAIRS[written], token.end))
        elif token.kind == "bracket":
            if not stack or stack[-1][0] != written:
                return None
            pairs.append(Pair("bracket", stack.pop()[1], token.start, written))
        elif token.kind in ("string", "long_string") and not token.open and (match := QUOTE.match(written)):
            quote, opened, closed = match[1], token.start + match.end(), token.end - len(match[1])
            if opened <= closed and written.endswith(quote):
                pairs.append(Pair("docstring" if len(quote) == 3 else "string", opened, closed, quote))
    if stack:
        return None
    pairs += tags(text) if language in MARKUP else []
    return sorted(pairs, key=lambda pair: pair.opened)


def tags(text: str) -> Iterator[Pair]:
    """Elements with text or elements between their tags: the closer is on the same line, or below with its indent."""
    for match in TAG.finditer(text):
        closer = f"</{match[1]}>"
        line_start, line_end = line_of(text, match.start())
        indent = text[line_start : match.start()]
        same_line = re.compile(rf"[^<>\n]*{re.escape(closer)}").match(text, match.end())
        if same_line:
            yield Pair("tag", match.end(), same_line.end() - len(closer), closer)
        elif not indent.strip() and match.end() == line_end:
            below = text.find(f"\n{indent}{closer}", line_end)
            if below >= 0:
                yield Pair("tag", match.end(), below + 1 + len(indent), closer)


def line_of(text: str, offset: int) -> tuple[int, int]:
    """(start, end) of the line of an offset."""
    end = text.find("\n", offset)
    return text.rfind("\n", 0, offset) + 1, end if end >= 0 else len(text)


def place_at(text: str, pairs: Sequence[Pair], cursor: int, *, with_mark: bool, typed_around: bool) -> Place | None:
    """The editor's state at a cursor inside a pair that its own line opens; None where there is none.

    Args:
        with_mark: a `;` or `,` at the line's end stands there already.
        typed_around: at the end of a line: text between the closers of the body stays, `}, [])`.
    """
    start, end = line_of(text, cursor)
    around = [pair for pair in pairs if start < pair.opened <= cursor <= pair.closed]
    if not around:
        return None
    inner = max(around, key=lambda pair: pair.opened)
    if inner.closed > end:
        return below(text, pairs, around, cursor, with_mark=with_mark, typed_around=typed_around)
    closing = sorted((pair for pair in around if pair.closed <= end), key=lambda pair: pair.closed)
    last = closing[-1]
    tail, mark = text[last.end : end], ""
    if not STAYS.match(tail):
        is_over = not crosses(pairs, last.end, end) and not GOES_ON.search(ENDS_WITH_MARK.sub("", tail).rstrip())
        if not is_over or BEGINS_WITH_OPERATOR.match(text, end):
            return None
        tail = tail[-1:] if ENDS_WITH_MARK.search(tail) else ""
    if tail in (";", ",") and not with_mark:
        tail, mark = "", tail
    rest = "".join(pair.closer for pair in closing) + tail
    return Place(inner.kind, cursor, text[cursor : inner.closed], rest, end, mark)


def below(
    text: str, pairs: Sequence[Pair], around: Sequence[Pair], cursor: int, *, with_mark: bool, typed_around: bool
) -> Place | None:
    """The editor's state at a cursor whose innermost pair closes on a line below."""
    closing = sorted(around, key=lambda pair: pair.closed)
    inner, last = closing[0], closing[-1]
    line_start, end = line_of(text, inner.closed)
    is_block = inner.kind in ("bracket", "tag")
    if is_block and (text[inner.opened : line_of(text, cursor)[1]].strip() or text[line_start : inner.closed].strip()):
        return None
    if last.closed > end or crosses(pairs, inner.end, end, but=closing):
        return None
    kept, mark = text[inner.closed : end], ""
    if not typed_around:
        tail = text[last.end : end]
        if not STAYS.match(tail) or tail.endswith("{"):
            return None
        kept = "".join(pair.closer for pair in closing) + tail
    if ENDS_WITH_MARK.search(kept) and not with_mark:
        kept, mark = kept[:-1], kept[-1]
    return Place("block" if is_block else inner.kind, cursor, text[cursor : inner.closed], kept, end, mark)


def entered(text: str, place: Place) -> Place | None:
    """A place of kind "block" after Enter: the cursor is in the indentation of the body's first line."""
    body = place.answer.strip("\n\t ")
    lead = len(place.answer) - len(place.answer.lstrip("\n\t "))
    if not body or place.answer[:lead].count("\n") != 1:
        return None
    closes = place.answer[place.answer.rindex("\n") :]
    return Place("entered", place.cursor + lead, body, closes + place.rest, place.end, place.mark)


def crosses(pairs: Sequence[Pair], start: int, end: int, but: Sequence[Pair] = ()) -> bool:
    """True if a pair has one of its ends in [start, end) and the other one elsewhere."""
    return any(
        (start < pair.opened <= end) != (start <= pair.closed < end) and pair not in but
        for pair in pairs
        if pair.opened <= end and pair.end >= start
    )
