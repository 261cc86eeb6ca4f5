"""Last point at which a text is whole, for texts that end before the model's answer does.

# Returns the sum of all va|              the last sentence, or the last word
if (a) {⏎  f(b)⏎  g(c,⏎|                  the last statement of a block; closers are added later
b()⏎x = [1, 2,⏎|                          the line before the list
x = [1, 2, 3, 4|                          the comma of the last whole item: the list stays visibly open
self.total = price * qua|                 none: nothing of the expression is shown

A closer that the model did not write ends a block of statements, an element or a comment. It never ends a list, the
arguments of a call or a string: a list without its last items looks whole.
"""

from __future__ import annotations

import re

from speclsp.lsp.postprocess import closers
from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages.record import LexicalRules
from speclsp.lsp.syntax.lexical_rules import Mark, Token, pair

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]")
_LAST_WORD = re.compile(r"(?:^|(?<=\s))\S+\Z")
_BETWEEN = " \t,;:-–—("
_NEITHER_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]\Z")  # scripts without blanks between words
_ITEM_END = re.compile(r",[ \t]*(?:\n|\Z)")
_BEFORE_ITEMS = re.compile(r"(?:[=(,:\[?]|\breturn)\s*\Z")  # before the brace of a value, not of a block


def whole_length(text: str, around: Surroundings) -> int:
    """The length of a text that a limit cut in mid-line, up to its last whole line, statement, item or word."""
    last_line = text.rfind("\n") + 1
    whole, head = around.line + text, len(around.line)
    token = lexical_rules.left_open(whole, around.rules) if around.kind == "code" else None
    start = token.start - head if token is not None else len(text)
    if token is not None and start >= 0 and _is_documentation(whole, token):
        length = max((match.end() for match in _SENTENCE_END.finditer(text, start)), default=0)
        return length or len(text[:start].rstrip())
    if text[:last_line].strip():
        return last_line - 1
    if around.kind != "code" or start < 0:
        return last_line + _prose_length(text[last_line:])
    if token is not None and token.kind == "comment":
        mark = re.match(r"\W*", text[start:])
        begin = start + (mark.end() if mark else 0)
        return begin + length if (length := _prose_length(text[begin:])) else len(text[:start].rstrip())
    return _expression_length(text[:start], around)


def closable_length(text: str, around: Surroundings, *, goes_on: bool) -> int:
    """The length up to the last line after which every bracket of the text may be closed; 0 if there is none.

    `goes_on`: the next suggestion continues there, so a text without such a line may end visibly open.
    """
    if around.kind not in ("code", "string"):
        return len(text)
    line_ends = [match.start() for match in re.finditer("\n", text) if text[: match.start()].strip()]
    ends = [len(text), *reversed(line_ends)]
    closable = next((end for end in ends if _is_closable(text[:end], around)), 0)
    if closable or not goes_on or around.rest.strip():
        return closable
    return next((end for end in ends if ends_open(text[:end], around)), 0)


def ends_open(text: str, around: Surroundings) -> bool:
    """True if a text ends visibly open: behind a comma, or as one line behind a bracket that it opens."""
    return text.rstrip().endswith(",") or ("\n" not in text.strip() and closers.ends_in_opener(text, around))


def _is_closable(text: str, around: Surroundings) -> bool:
    """True if the brackets that a text of whole lines opens may be closed although the answer went on."""
    code = around.code or around.line
    pairing = pair(code + text, around.rules)
    string = pairing.open
    if string is not None and string.start >= len(code) and "string" in string.kind:
        return _is_documentation(code + text, string)
    last_line = text.rpartition("\n")[2]
    opens = lexical_rules.opens_block(last_line, around.rules, above=False) or closers.ends_in_opener(text, around)
    if opens and "\n" in text.strip() and around.kind == "code":
        return False
    own = [opener for opener in pairing.openers if opener.start >= len(code)]
    if not own or not closers.opens_bracket(text, 0, around):
        return True  # the rest closes what the text opens
    if opens or closers.GOES_ON.search(text):
        return False
    inner: Mark | None = None
    for opener in reversed(own):
        if not _may_be_closed(code + text, opener, inner, around.rules):
            return False
        inner = opener
    return True


def _is_documentation(text: str, token: Token) -> bool:
    """True for a comment or string that spans lines and begins its line."""
    is_long = token.kind in ("block_comment", "long_string")
    return is_long and not text[: token.start].rpartition("\n")[2].strip()


def _may_be_closed(text: str, opener: Mark, inner: Mark | None, rules: LexicalRules) -> bool:
    """True for an element, a block of statements, and a parenthesis around one. `inner`: the next bracket in it."""
    if opener.mark == "[" or (opener.mark == "(" and inner is None):
        return False
    if opener.mark != "{":
        return True
    content = _directly_inside(text[opener.end :], rules)
    is_line = "\n" not in content and "," in content and ";" not in content
    has_items = (
        is_line or _ITEM_END.search(content) or (";" not in content and _BEFORE_ITEMS.search(text[: opener.start]))
    )
    return not (rules.colon_opens or has_items)


def _directly_inside(text: str, rules: LexicalRules) -> str:
    """The text after an opener without strings, comments and brackets inside it."""
    content, depth = "", 0
    for character in _code_only(text, rules):
        depth += (character in "([{") - (character in ")]}")
        content += character if not depth else ""
    return content


def _code_only(text: str, rules: LexicalRules) -> str:
    """`text` with blanks for its strings and comments."""
    for token in list(lexical_rules.tokens(text, rules)):
        if token.kind != "bracket":
            text = text[: token.start] + " " * (token.end - token.start) + text[token.end :]
    return text


def _prose_length(text: str) -> int:
    """The length up to the last sentence or, without one, up to the last word."""
    sentences = [match.end() for match in _SENTENCE_END.finditer(text)]
    if sentences:
        return sentences[-1]
    if _NEITHER_WORD.search(text):
        return len(text)
    last_word = _LAST_WORD.search(text.rstrip())
    return len(text[: last_word.start()].rstrip(_BETWEEN)) if last_word and text[-1:].strip() else len(text.rstrip())


def _expression_length(text: str, around: Surroundings) -> int:
    """The length up to the last statement, argument, or item of a literal that is whole.

    Before text, the comma behind an item is not a part of it.
    """
    outer = pair(around.before, around.rules).openers
    is_inside = bool(outer) and not _may_be_closed(around.before + text, outer[-1], None, around.rules)
    is_mid_line = bool(around.rest.strip())
    openers: list[str] = []
    length = 0
    for at, character in enumerate(_code_only(around.line + text, around.rules)[len(around.line) :]):
        if character in lexical_rules.PAIRS:
            openers.append(character)
        elif character in ")]}" and (openers or is_inside):
            del openers[-1:]
            length = len(text) if at + 1 == len(text) and not openers and character != ")" else length  # not `f(a)|.b`
        elif character == ";" and not openers:
            length = at + 1
        elif character == "," and (is_inside if not openers else openers[-1] in "[{" and not is_mid_line):
            length = at + (not is_mid_line)
    return length
