"""The file's style in a suggestion: semicolons where they are optional, and Svelte's braces.

A file has a style of semicolons if nearly all statements near the cursor end the same way. Only lines that are a whole
statement for certain are counted and changed: those that begin with a keyword such as `const` or `return`, or are one
call or assignment, with balanced brackets.
"""

from __future__ import annotations

import re
from itertools import islice

from speclsp.lsp.postprocess.surroundings import Surroundings
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages.record import Language, LexicalRules
from speclsp.lsp.syntax.text_windows import normal_newlines

_REACH_CHARACTERS = 4_000  # of the document on either side, in which statements are counted
_MIN_STATEMENTS, _MAX_STATEMENTS = 3, 12  # counted on either side
_AGREEING = 0.9  # least share of the statements
_KEYWORD = re.compile(
    r"\s*(?:export\s+)?(?:(?:const|let|var|return|throw|import|break|continue|debugger|new|delete)\b"
    r"|(?<=export\s)(?:default\b|[{*]))"
)
_EXPRESSION = re.compile(r"\s*(?:await\s+)?[\w$.]+\s*(?:\(|(?:[-+*/|&]|\?\?|\|\||&&)?=\s)")  # a call or an assignment
_BLOCK = re.compile(
    r"\s*(?:export\s+(?:default\s+)?)?"
    r"(?:if|for|while|switch|function|catch|with|do|else|try|class|async|get|set|static|type|interface|enum)\b"
)
_ENDS = re.compile(r"[\w$)\]\"'`}]$")  # the last character of a complete statement
_GOES_ON = re.compile(
    r"\s*(?:[.?:,)\]+\-*/%&|^<>=(`;]|}\s*=|instanceof\b|in\b|as\b|satisfies\b)"
)  # the line below continues it
_HAZARD = re.compile(r"\s*[(\[`+\-/]")  # a line that would continue a statement without a semicolon

_DOUBLE_BRACES = re.compile(r"(?<![={])\{\{\s*([\w$.?!()\[\]]+)\s*\}\}(?!\})")


def semicolons(language: Language, around: Surroundings) -> str:
    """The ends of the statements near the cursor: "always" with a semicolon, "never", or "" for no clear style."""
    if not language.has_optional_semicolons or around.kind != "code":
        return ""
    document, cursor = around.document, around.cursor
    above = document[max(0, cursor - _REACH_CHARACTERS) : cursor - len(around.line)]
    below = document[cursor + len(around.rest) : cursor + _REACH_CHARACTERS]
    ends = list[bool]()  # of each statement: with a semicolon
    for text, step in ((above, -1), (below, 1)):
        lines = normal_newlines(text).split("\n")
        pairs = list(zip(lines, [*lines[1:], ""], strict=True))
        statements = (
            end
            for line, next_line in pairs[::step]
            if (_KEYWORD.match(line) or _EXPRESSION.match(line))
            and (end := _ends_with_semicolon(line, next_line, around.rules)) is not None
        )
        ends += islice(statements, _MAX_STATEMENTS)
    if len(ends) < _MIN_STATEMENTS:
        return ""
    share = sum(ends) / len(ends)
    return "always" if share >= _AGREEING else "never" if share <= 1 - _AGREEING else ""


def restyle(text: str, around: Surroundings, language: Language, *, complete: bool) -> str:
    """`text` in the file's style; with `{name}` for `{{ name }}` where the language has single braces.

    `complete`: the last line is whole.
    """
    if language.has_single_braces:
        return _DOUBLE_BRACES.sub(r"{\1}", text)  # an object in an attribute stays
    if not language.has_optional_semicolons or around.rest.strip():
        return text
    style = semicolons(language, around)
    if not style:
        return text
    lines = text.split("\n")
    below = around.below[0] if around.below else ""
    for index, line in enumerate(lines):
        whole = around.line + line if index == 0 else line
        if index and lexical_rules.left_open("\n".join([around.line + lines[0], *lines[1:index]]), around.rules):
            continue  # inside a template
        next_line = next(filter(str.strip, lines[index + 1 :]), below)
        if style == "never":
            lines[index] = _without(line, whole, next_line, around.rules)
        elif index + 1 < len(lines) or complete:
            lines[index] = _with(line, whole, next_line, around.rules)
    return "\n".join(lines)


def _ends_with_semicolon(line: str, next_line: str, rules: LexicalRules) -> bool | None:
    """True if a whole statement ends with a semicolon, False if it ends without; None for any other line."""
    code = lexical_rules.code_of(line, rules).rstrip()
    if code.endswith(";"):
        return True if _is_statement(code[:-1], rules) else None
    return False if _is_statement(code, rules) and not _GOES_ON.match(next_line) else None


def _without(line: str, whole: str, next_line: str, rules: LexicalRules) -> str:
    code = lexical_rules.code_of(whole, rules).rstrip()
    if not code.endswith(";") or not _is_statement(code[:-1], rules) or _HAZARD.match(next_line):
        return line
    at = len(code) - 1 - (len(whole) - len(line))
    return line[:at] + line[at + 1 :] if at >= 0 else line


def _with(line: str, whole: str, next_line: str, rules: LexicalRules) -> str:
    code = lexical_rules.code_of(whole, rules).rstrip()
    at = len(code) - (len(whole) - len(line))
    if at <= 0 or not _is_statement(code, rules) or _GOES_ON.match(next_line):
        return line
    return line[:at] + ";" + line[at:]


def _is_statement(code: str, rules: LexicalRules) -> bool:
    """True if a line of code without a semicolon is one whole statement."""
    if _BLOCK.match(code) or not _ENDS.search(code):
        return False
    if not _KEYWORD.match(code) and (not _EXPRESSION.match(code) or code.endswith("}")):  # a method ends in a brace
        return False
    return lexical_rules.pair(code, rules, tags=False).imbalance == 0
