"""The text around the cursor, and fitting a suggestion into it: brackets, quotes, indentation.

A bracket is surplus only together with the code around it. So the brackets of that code are matched with the suggestion
in it, once for each choice of cutting the suggestion or replacing brackets that the editor has closed by itself. The
choice that leaves the fewest unmatched brackets and quotes wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import prose
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.languages.record import LexicalRules
from speclsp.lsp.syntax.lexical_rules import Pairing, marks, pair
from speclsp.lsp.syntax.text_windows import is_subsequence, line_end, line_start, normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree
from speclsp.plain_text import is_inside_word, is_word

_MAX_LINES_ABOVE = 60  # enough for a docstring
_MAX_LINES_BELOW = 12
_NEAR_CHARACTERS = 6000  # of the document before the cursor, in which brackets are matched; half as many after it
_LINE_CHARACTERS = 2000  # of the current line, on either side of the cursor
_MAX_CHOICES = 4  # that are tried for a text that breaks the syntax
_MAX_ENDS = 12  # ends within its first line that are tried
_MAX_REPEATED = 4  # characters of the rest that may occur in a text; twice as many in a comment
_MAX_CLOSED = 40  # unmatched closers in a text; behind them a model repeats ")" for ever
_TOP_LEVEL = re.compile(r"(?m)^(?!</)[^\s)\]}#/*]")  # a line without indentation
_OPENER = {")": "(", "]": "[", "}": "{"}
_OWN_CLOSERS = {**_OPENER, ">": "<"}  # in a text whose brackets are not matched: a comment, and type arguments
_CLOSERS = ")]}\"'`;,>"
CLOSING = re.compile(r"[\s)\]}>\"'`;,:.]*\Z")  # text right of the cursor that does not count as text
# After the end of a text: an operator, or another word. After a line break: only what cannot begin a line.
_GOES_ON = re.compile(
    r"[ \t]*(?!//|/\*|--|#)(?:[-=+*/%&|^<>?!~@:.([{\\'\"`]|\w)|\s*\n\s*(?:[.?:{]|=>|->|&&|\|\||(?:and|or|else)\b)"
)
_APOSTROPHE = re.compile(r"(?<=\w)['’]\w")
_UNFINISHED = re.compile(r"(?:[=\-]>|[-=+*/%&|^<~.:({\[\\])\s*\Z")  # at the end of a text
Choice = tuple[str, int]  # (text to insert, characters of the rest of the line that it replaces)


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
    closed: bool = False  # the end mark, or the closing fence in Markdown, stands below
    code: str = ""  # in a string: the code that it interpolates, from its opening brace to the cursor
    strings: tuple[prose.ClosedString, ...] = ()  # the strings around the cursor that are closed right of it
    columns: int = 0  # of the table around the cursor; 0: it is in none
    fences: str = "never"  # a line like "```": "never" occurs, "ends" the code, or is "text"


def read_surroundings(snapshot: Snapshot, tree: SyntaxTree | None) -> Surroundings:
    text, cursor = snapshot.text, snapshot.cursor
    start, end = line_start(text, cursor), line_end(text, cursor)
    line = text[max(start, cursor - _LINE_CHARACTERS) : cursor]
    rest = text[cursor : min(end, cursor + _LINE_CHARACTERS)]
    language = record(snapshot.language)
    fenced = prose.fenced(text, cursor) if language.has_fences else None
    rules = record(fenced.language).rules if fenced else language.rules
    low, high = max(0, start - _NEAR_CHARACTERS), end + _NEAR_CHARACTERS // 2
    if fenced is not None:
        low, high = max(low, min(fenced.start, start)), min(high, max(fenced.end, end))
    above, below = normal_newlines(text[low:start]), normal_newlines(text[end:high])
    above = above.partition("\n")[2] if low and (fenced is None or low > fenced.start) else above
    before, after = _code_around(above, line, rest, below, rules, is_cut=low > 0)
    kind = "comment" if language.has_fences and fenced is None else _kind_at(cursor, tree, line, before, rules)
    if kind == "code" and _is_open(before, rules) and not _is_open(above + line, rules):
        before = line  # it begins inside a docstring or a comment, so its quotes have other partners
    closing = prose.closing_of(before, kind, rules) if kind != "code" and not language.has_fences else ""
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
        closed=fenced.closed if fenced is not None else bool(closing) and prose.is_closed(text[cursor:], closing),
        code=_interpolated(before, rest, rules) if kind == "string" else "",
        strings=tuple(prose.strings_around(before, rest, after, kind, rules)),
        columns=prose.columns_of(above, below) if kind != "code" or line.lstrip()[:1] == "|" else 0,
        fences="text" if kind != "code" else "ends" if fenced is not None else "never",
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


def fit(text: str, around: Surroundings) -> Choice:
    """The best choice for `text`, so that nothing right of the cursor is repeated or closed twice."""
    rest = around.rest.rstrip()
    outside = pairs(around, text)[0][_MAX_CLOSED:]
    text = trim(text[: outside[0]], around) if outside else text
    while True:
        choices = list(_choices(text, rest, around))  # the first of equally balanced ones wins
        if len(choices) == 1:
            return text, 0
        best = choices[0]
        if around.kind in ("code", "string"):
            best = min(choices, key=lambda choice: imbalance(choice[0], choice[1], around))
        if best[0] == text or best[1]:
            return best
        text = trim(best[0], around)


def alternatives(text: str, around: Surroundings) -> Iterator[tuple[int, Choice | None]]:
    """Candidates for a text that breaks the syntax: (length of the text, choice; None for that of `fit`).

    The whole text with other choices, then fewer lines, then the first line up to a possible end.
    """
    choices = _choices(text, around.rest.rstrip(), around)
    ranked = sorted(choices, key=lambda choice: imbalance(choice[0], choice[1], around))
    yield from ((len(text), choice) for choice in ranked[:_MAX_CHOICES] if len(ranked) > 1)
    lines = [match.start() for match in re.finditer(r"\n", text) if text[: match.start()].strip()]
    yield from ((at, None) for at in reversed(lines) if not _goes_on(text, at, around))
    first = lines[0] if lines else len(text)
    whole, head = around.line + text[:first], len(around.line)
    ends = [
        (token.start if token.kind == "comment" else token.end) - head
        for token in lexical_rules.tokens(whole, around.rules)
        if token.kind != "bracket" or whole[token.start] not in _OPENER.values()
    ]
    ends += [match.start() for match in re.finditer(r"(?<=;)|\*/|-->|\"\"\"|'''", text[:first])]
    ends.append(len(text[:first].rstrip().rstrip(")]}\"'`")))
    ends = sorted({at for at in ends if 0 < at < first and not _goes_on(text, at, around)}, reverse=True)
    for at in ends[:_MAX_ENDS]:
        openers = pair(whole[: head + at], around.rules).openers
        if not openers or openers[-1].start < head:  # the text closes what it opens
            yield at, None


def _goes_on(text: str, at: int, around: Surroundings) -> bool:
    """True if `text[:at]` ends before something that changes its meaning, such as `=>`, an operator or a bracket."""
    if around.kind != "code":
        return any(_APOSTROPHE.match(text, quote) for quote in (at - 1, at))
    if text[at - 1 : at] == ";":
        return False
    is_mid_line = bool(around.rest.strip())
    return bool((is_mid_line and _UNFINISHED.search(text[:at])) or _GOES_ON.match(text, at))


def _choices(text: str, rest: str, around: Surroundings) -> Iterator[Choice]:
    """The choices for `text` and the rest of the line: cut the text's end, or replace the start of the rest."""
    has_brackets = around.kind in ("code", "string")
    again = _find_beginning(rest, text, _MAX_REPEATED if has_brackets else 2 * _MAX_REPEATED)
    if again > 0:
        yield trim(text[:again], around), 0
    opener = "" if has_brackets else _OPENER.get(rest[:1], "")
    if opener and not text.endswith(rest[0]) and text.count(rest[0]) > text.count(opener):
        yield text, 1  # a comment that closes the bracket itself
    if around.kind == "string" and rest[:1] == "}" and text.count("}") > text.count("{"):  # `${name} and more`
        yield from ((text[:-length], 0) for length in range(len(rest), 0, -1) if _is_repeated(text, rest, length))
        yield from (
            (text[:-length], 1) for length in range(len(rest) - 1, 0, -1) if _is_repeated(text, rest[1:], length)
        )
        yield text, 1
    closers = min(len(rest) - len(rest.lstrip(_CLOSERS)), 8) if has_brackets else 0
    outside = pairs(around, text)[0] if closers else []
    if outside and outside[-1] == len(text) - 2 and lexical_rules.PAIRS.get(text[-1]) == rest[0] == text[-2]:
        yield text[:-2], 0  # it closes the bracket only to open another one before the rest
    for replaced in range(closers + 1):
        part = rest[:replaced]
        if part and not (is_subsequence(part, text) and _closes(text, outside, part)):  # VS Code needs the first
            break
        left = rest[replaced:]
        if part and text.endswith(";") and left.strip() and left.strip()[0] not in _CLOSERS:
            break  # the text ends a statement in which the rest goes on
        for length in range(len(left), 0, -1):
            shorter = text[:-length]
            own = left[0] if length == 1 and not (has_brackets and left[0] in _OPENER) else ""
            if own in _OWN_CLOSERS and text.count(_OWN_CLOSERS[own]) >= text.count(own):
                continue  # the closer of a bracket in the text
            if _is_repeated(text, left, length) and is_subsequence(part, shorter) and _closes(shorter, outside, part):
                yield shorter, replaced
        yield text, replaced
    if has_brackets:
        # The text may close a bracket that was opened on this line and is not closed right of the cursor. It may also
        # close one at the margin (a namespace, for example): its opener can be anywhere.
        line = around.code or around.line
        needed = max(0, len(pair(line, around.rules).openers) - len(pair(rest, around.rules).closers))
        at_margin = not around.line and not (around.below and around.below[0][0] in _CLOSERS)
        outside = pairs(around, text)[0][needed:]
        yield from ((text[:at], 0) for at in outside[:-9:-1] if at or not at_margin)


def _find_beginning(rest: str, text: str, characters: int) -> int:
    """The offset in `text` of the first words or marks of `rest`, at least `characters` without blanks; -1 for none."""
    length = next((at for at in range(len(rest) + 1) if len("".join(rest[:at].split())) >= characters), 0)
    while is_inside_word(rest, length):
        length += 1
    beginning = rest[:length]
    return text.find(beginning) if beginning.strip(_CLOSERS + " \t") else -1


def _closes(text: str, outside: list[int], part: str) -> bool:
    """True if `text` itself closes the brackets that the closers in `part` of the rest close."""
    brackets = "".join(character for character in part if character in _OPENER)
    return not brackets or is_subsequence(brackets, "".join(text[at] for at in outside if at < len(text)))


def _is_repeated(text: str, rest: str, length: int) -> bool:
    """True if `text` ends with the first `length` characters of `rest`, and neither is in the middle of a word."""
    part = rest[:length]
    if not part.strip() or not text.endswith(part):
        return False
    return not is_inside_word(text, len(text) - len(part)) and not is_inside_word(rest, len(part))


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
