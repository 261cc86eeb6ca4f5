"""The text around the cursor: its line, the lines and the brackets around it, and what kind of text it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import prose
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.languages.record import LexicalRules
from speclsp.lsp.syntax.lexical_rules import Pairing, marks, pair
from speclsp.lsp.syntax.text_windows import line_end, line_start, normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree
from speclsp.plain_text import is_word

_MAX_LINES_ABOVE = 60  # enough for a docstring
_MAX_LINES_BELOW = 12
_NEAR_CHARACTERS = 6000  # of the document before the cursor, in which brackets are matched; half as many after it
_LINE_CHARACTERS = 2000  # of the current line, on either side of the cursor
_TOP_LEVEL = re.compile(r"(?m)^(?!</)[^\s)\]}#/*]")  # a line without indentation
_OPENER = {")": "(", "]": "[", "}": "{"}
CLOSING = re.compile(r"[\s)\]}>\"'`;,:.]*\Z")  # text right of the cursor that does not count as text


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The text around the cursor, with \\n newlines."""

    document: str  # with its own newlines
    cursor: int
    rules: LexicalRules
    kind: str  # "code" | "comment" | "string" | "prose": text in a string that spans lines
    line: str  # the current line before the cursor; the end of it if it is very long
    rest: str  # the current line after the cursor; the beginning of it if it is very long
    above: tuple[str, ...]  # the nearest non-blank lines, nearest last
    below: tuple[str, ...]  # the same, nearest first
    before: str  # code up to the cursor, from where brackets are likely to be balanced
    after: str
    closing: str = ""  # the end mark of the comment or long string around the cursor
    closed: bool = False  # the end mark stands below
    code: str = ""  # in a string: the code that it interpolates, from its opening brace to the cursor
    strings: tuple[prose.ClosedString, ...] = ()  # the strings around the cursor that are closed right of it


def read_surroundings(snapshot: Snapshot, tree: SyntaxTree | None) -> Surroundings:
    text, cursor = snapshot.text, snapshot.cursor
    start, end = line_start(text, cursor), line_end(text, cursor)
    line = text[max(start, cursor - _LINE_CHARACTERS) : cursor]
    rest = text[cursor : min(end, cursor + _LINE_CHARACTERS)]
    language = record(snapshot.language)
    rules = language.rules
    low, high = max(0, start - _NEAR_CHARACTERS), end + _NEAR_CHARACTERS // 2
    above, below = normal_newlines(text[low:start]), normal_newlines(text[end:high])
    above = above.partition("\n")[2] if low else above
    before, after = _code_around(above, line, rest, below, rules, is_cut=low > 0)
    kind = "comment" if language.is_prose else _kind_at(cursor, tree, line, before, rules)
    if kind == "code" and _is_open(before, rules) and not _is_open(above + line, rules):
        before = line  # it begins inside a docstring or a comment, so its quotes have other partners
    closing = prose.closing_of(before, kind, rules) if kind != "code" else ""
    return Surroundings(
        document=text,
        cursor=cursor,
        rules=rules,
        kind=kind,
        line=line,
        rest=rest,
        above=tuple(line for line in above.split("\n") if line.strip())[-_MAX_LINES_ABOVE:],
        below=tuple(line for line in below.split("\n") if line.strip())[:_MAX_LINES_BELOW],
        before=before,
        after=after,
        closing=closing,
        closed=bool(closing) and prose.is_closed(text[cursor:], closing),
        code=_interpolated(before, rest, rules) if kind == "string" else "",
        strings=tuple(prose.strings_around(before, rest, after, kind, rules)),
    )


def _code_around(above: str, line: str, rest: str, below: str, rules: LexicalRules, *, is_cut: bool) -> tuple[str, str]:
    """(code up to the cursor, code after its line), where brackets are likely to be balanced: between top-level lines.

    `is_cut`: `above` does not reach to the start of the file.
    """
    top_level = [match.start() for match in _TOP_LEVEL.finditer(above)]  # every bracket is closed there
    start = len(above) if _TOP_LEVEL.match(line + rest) else top_level[-1] if top_level else 0
    before = above[start:] + line
    next_top_level = _TOP_LEVEL.search(below, 1)
    after = below[: next_top_level.start()] if next_top_level else below
    if is_cut and not top_level and start == 0:  # the openers of brackets that are closed here stand further up
        whole = above + after
        unmatched = pair(whole, rules, tags=False).closers
        before = "".join(_OPENER[closer.mark] for closer in reversed(unmatched)) + before
    return before, after


def _is_open(text: str, rules: LexicalRules) -> bool:
    """True if a string or comment is open at the end of `text`."""
    return lexical_rules.left_open(text, rules) is not None


def _interpolated(before: str, rest: str, rules: LexicalRules) -> str:
    """The code after the brace that interpolates it into the string around the cursor, with the brace; "" for none."""
    token = lexical_rules.left_open(before, rules) if "}" in rest else None
    if token is None or "comment" in token.kind:
        return ""
    content = before[token.start :]
    at = content.rfind("{")
    is_open = at >= 0 and "}" not in content[at:] and content.count("{") > content.count("}")
    return content[at:] if is_open and lexical_rules.closing_of(content, token.kind) not in content[at:] else ""


def _kind_at(cursor: int, tree: SyntaxTree | None, line: str, before: str, rules: LexicalRules) -> str:
    """The kind of text at the cursor, from the tree and from the line."""
    kind = tree.kind_at(cursor) if tree is not None else pair(before, rules, tags=False).inside
    by_line = pair(line, rules, tags=False).inside  # knows a string or comment that is still a syntax error
    if kind == "code":
        return by_line
    if kind == "string" and by_line != "string":
        return "prose"
    return kind


def pairs(around: Surroundings, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """(offsets at which `text` closes what it has not opened, [(offset, depth of brackets and tags from there on)])."""
    code = around.code or around.line
    head, depth = len(code), 0
    outside: list[int] = []
    steps: list[tuple[int, int]] = []
    for mark in marks(code + text, around.rules, Pairing()):
        at = mark.start - head
        if at >= 0:
            if mark.opens:
                depth += 1
            elif depth:
                depth -= 1
            else:
                outside.append(at)
            steps.append((at, depth))
    return outside, steps


def imbalance(text: str, replaced: int, around: Surroundings) -> int:
    """Unmatched brackets, tags and quotes in the code around the cursor, with `text` in it."""
    if around.code:
        return pair(around.code + text + around.rest[replaced:], around.rules).imbalance
    return pair(around.before + text + around.rest[replaced:] + around.after, around.rules).imbalance


def is_trivial(text: str, around: Surroundings) -> bool:
    """True if `text` is punctuation that is typed as fast as it is read, and neither opens nor closes anything."""
    bare = text.strip()
    if any(map(is_word, bare)):
        return False
    if len(bare) > 1 and bare.strip(",;.:)]}"):
        return False
    closes = imbalance(text, 0, around) < imbalance("", 0, around)
    return not closes and not lexical_rules.opens_block(around.line + text, around.rules, above=False)


def indent_as_document(text: str, around: Surroundings) -> str:
    """`text` with tabs for spaces, or spaces for tabs, if all lines around the cursor are indented that way."""
    if "\n" not in text:
        return text
    style, step = lexical_rules.indent_style(around.before + around.after)
    first, *more = text.split("\n")
    blanks = list(map(lexical_rules.indent_of, more))
    if style == "tabs":
        unit = next(
            (unit for unit in (4, 2) if all(len(blank) % unit == 0 for blank in blanks if "\t" not in blank)), 0
        )
        if unit:
            blanks = [blank if "\t" in blank else "\t" * (len(blank) // unit) for blank in blanks]
    elif style == "spaces":
        blanks = [blank.replace("\t", " " * step) for blank in blanks]
    return "\n".join([first, *(blank + line.lstrip(" \t") for blank, line in zip(blanks, more, strict=True))])


def trim(text: str, around: Surroundings) -> str:
    """`text` without trailing blanks and blank lines. If text follows on the line, a last blank may separate it."""
    is_mid_line = bool(around.rest) and not around.rest[0].isspace() and not CLOSING.match(around.rest)
    *lines, last = text.split("\n")
    if is_mid_line and last.strip():
        return "\n".join([*(line.rstrip(" \t") for line in lines), last])
    return "\n".join(line.rstrip(" \t") for line in [*lines, last]).rstrip("\n")
