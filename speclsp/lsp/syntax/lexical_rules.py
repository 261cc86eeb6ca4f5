"""The shape of code that is still being written, told from its characters alone: brackets, strings, blocks, indents.

A parser wants whole programs; at the cursor there is half a line, and of a suggestion there is what has been streamed
so far. These rules need neither a tree nor a finished line. They cost microseconds and may be wrong about one odd line:
whoever uses them compares two texts by the same rules, or has the tree's word too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

# Never in a suggestion, whatever the file holds: control characters, bidirectional overrides and isolates, tags,
# lone surrogates, noncharacters. What is read is then not what is run.
NEVER = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\U000e0000-\U000e00ff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
    + "]"
)
# Invisible too, or seen differently by everyone (private use), and in some languages needed: let through where the file
# has the very same character. Unicode 16's format characters, default ignorables and fillers, but for marks that show.
UNSEEN = re.compile(
    "[\x0c\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028\u2029\u2060-\u2065\u206a-\u206f"
    "\u2800\u3164\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffd\U00013430-\U0001343f\U00016fe4"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0100-\U000e0fff\U000f0000-\U000ffffd\U00100000-\U0010fffd]"
)
# "Shown as a picture", right behind a character that has one: the way emoji are written.
EMOJI = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001faff"
)
HIDDEN = re.compile(f"{NEVER.pattern}|(?!(?<=[{EMOJI}])\ufe0f){UNSEEN.pattern}")

_PAIRS: Mapping[str, str] = MappingProxyType({"(": ")", "[": "]", "{": "}"})
_BRACKET = r"[({\[]\s*$"  # a line that ends like this opens a block in any language
_TAB_COLUMNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LexicalRules:
    """How one language writes comments, strings and blocks, as regular expressions; "" for none."""

    comment: str = ""  # to the end of the line
    block_comment: str = ""  # to its own end, or the text's
    long_string: str = ""  # may span lines
    string: str = r""""(?:\\.|[^"\\\n])*(?:"|$)|'(?:\\.|[^'\\\n])*(?:'|$)"""  # ends on its line, closed or not
    brackets: str = r"[()\[\]{}]"
    opens_here: str = _BRACKET  # a line up to the cursor that begins a block
    opens_below: str = ""  # a line that begins one for the line below it; "": as `opens_here`
    colon_opens: bool = False  # also after a header of several lines, which ends in "):"
    ends: str = ""  # a line, without its indentation, that ends a block by its first word
    strict: bool = False  # no comma may stand before a closing bracket
    stub: str | None = None  # makes a signature look whole, in place of a "{" or ":" at its end; None: no such members


_QUOTES = LexicalRules().string
_C_QUOTES = r""""(?:\\.|[^"\\\n])*(?:"|$)|'(?:\\.[^'\n]{0,8}|[^'\\\n])'"""  # an apostrophe may be a Rust lifetime
_C = LexicalRules(
    comment=r"//[^\n]*",
    block_comment=r"/\*.*?(?:\*/|\Z)",
    string=_C_QUOTES,
    opens_here=_BRACKET + r"|[=-]>\s*$|^\s*(?:case\b.*|default|public|private|protected)\s*:\s*$",
    stub=";",
)
_SCRIPT = replace(_C, string=_QUOTES, long_string=r"`(?:\\.|[^`\\])*(?:`|\Z)")
_TRIPLE = r'"""(?:\\.|[^\\])*?(?:"""|\Z)'
_PYTHON_OPENS = (
    r"^\s*(?:(?:async\s+)?(?:def|for|with)|class|if|elif|else|while|try|except|finally|match|case)\b.*:\s*$"
    r"|" + _BRACKET
)
_OPENER = re.compile(r"[@\w]*(\"\"\"|'''|[\"'`]|\[=*\[)")
_JUMP = re.compile(r"\s*(?:return|raise|throw|break|continue)\b(?!.*\b(?:if|unless)\b)(?!.*[,\\(\[{+=&|]\s*$)")
_LABEL = re.compile(r"(?:(?:case|default|el|elif|else|elsif|except|rescue|ensure|finally|when|catch)\b|\w+:\s*$|\W)")
_HASH = r"(?<!\S)#[^\n]*"
_RULES: Mapping[str, LexicalRules] = MappingProxyType(
    {
        "": LexicalRules(string=r'"(?:\\.|[^"\\\n])*"', comment=r"^\s*(?:#|//|--|;|%)[^\n]*"),
        "python": LexicalRules(
            comment=r"#[^\n]*",
            long_string=_TRIPLE + r"|'''(?:\\.|[^\\])*?(?:'''|\Z)",
            opens_here=_PYTHON_OPENS,
            colon_opens=True,
            stub=": ...",
        ),
        "javascript": replace(_SCRIPT, stub=" {}"),
        "typescript": _SCRIPT,
        "tsx": _SCRIPT,
        "go": replace(_C, long_string=r"`[^`]*(?:`|\Z)", stub=""),
        "rust": replace(_C, long_string=r'r(?P<hashes>#+)".*?(?:"(?P=hashes)|\Z)'),
        "java": replace(_C, long_string=_TRIPLE),
        "c": _C,
        "cpp": replace(_C, long_string=r'R"(?P<tag>[^(\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z)'),
        "c_sharp": replace(_C, long_string=_TRIPLE + r'|@"(?:""|[^"])*(?:"|\Z)'),
        "php": replace(_C, comment=r"//[^\n]*|#(?!\[)[^\n]*", string=_QUOTES),
        "ruby": LexicalRules(
            comment=_HASH,
            opens_here=_BRACKET + r"|\bdo\s*(?:\|[^|]*\|)?\s*$|\{\s*\|[^|]*\|\s*$|\bthen\s*$",
            opens_below=_BRACKET + r"|\bdo\s*(?:\|[^|]*\|)?\s*$|\{\s*\|[^|]*\|\s*$"
            r"|^\s*(?:def|class|module|if|unless|while|until|for|case|begin|else|elsif|when|rescue|ensure)\b"
            r"(?!.*\bend\s*$)(?!.*\)\s*=\s)",
            ends=r"end\b",
            stub="; end",
        ),
        "bash": LexicalRules(
            comment=_HASH,
            brackets=r"[\[\]{}]",  # a case has ")" alone
            opens_here=_BRACKET + r"|\b(?:then|do|else|in)\s*$|^\s*[^\s()]+\)\s*$",
            ends=r"(?:fi|done|esac)\b|;;",
            stub=" { :; }",
        ),
        "lua": LexicalRules(
            comment=r"--(?!\[=*\[)[^\n]*",
            block_comment=r"--\[(?P<level>=*)\[.*?(?:\](?P=level)\]|\Z)",
            long_string=r"\[(?P<depth>=*)\[.*?(?:\](?P=depth)\]|\Z)",
            opens_here=_BRACKET + r"|\b(?:then|do|else|repeat)\s*$|\bfunction\b[^()]*\([^()]*\)\s*$",
            ends=r"(?:end|until)\b",
            stub=" end",
        ),
        "html": LexicalRules(
            block_comment=r"<!--.*?(?:-->|\Z)",
            string=r'"[^"<>\n]*"',
            opens_here=r"<(?!(?:br|hr|img|input|link|meta|area|base|col|embed|source|track|wbr)\b)[A-Za-z][^<>]*(?<!/)>\s*$|"
            + _BRACKET,
            ends=r"</",
        ),
        "css": LexicalRules(block_comment=r"/\*.*?(?:\*/|\Z)"),
        "json": LexicalRules(strict=True, comment=r"(?<![:\w])//[^\n]*", string=r'"(?:\\.|[^"\\\n])*(?:"|$)'),
        "yaml": LexicalRules(
            comment=_HASH,
            string=r'"(?:\\.|[^"\\\n])*"',
            opens_here=r":\s*$|^\s*-\s*$|[|>][+-]?\s*$|" + _BRACKET,
        ),
        "toml": LexicalRules(
            comment=r"#[^\n]*", long_string=_TRIPLE + r"|'''.*?(?:'''|\Z)", opens_below=_BRACKET + r"|^\s*\[.*\]\s*$"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Token:
    """A bracket, a string or a comment. `open`: its line's or the text's end came before its own."""

    kind: str  # "bracket" | "string" | "long_string" | "comment" | "block_comment"
    start: int
    end: int
    open: bool


@dataclass(slots=True)
class Balance:
    """What is left over when a text's brackets and quotes have been paired off."""

    stack: list[tuple[str, int]] = field(default_factory=list)  # openers without closer, and where they are
    surplus: list[int] = field(default_factory=list)  # where closers without opener are
    torn: int = 0  # strings that the end of their line cut off
    inside: str = "code"  # what the text ends in: "code" | "string" | "comment"

    @property
    def faults(self) -> int:
        """How far from balanced."""
        return len(self.stack) + len(self.surplus) + self.torn + (self.inside == "string")


def hides(text: str, known: str) -> bool:
    """Whether a text holds something invisible: of the kind that is never suggested, or that `known` does not have."""
    return any(NEVER.match(found[0]) or found[0] not in known for found in HIDDEN.finditer(text))


def visible(text: str) -> str:
    """The text without anything invisible."""
    return HIDDEN.sub("", text)


def rules(grammar: str | None) -> LexicalRules:
    """The rules for a grammar name of `syntax.grammar`; careful ones for None."""
    return _RULES.get(grammar or "", _RULES[""])


def tokens(text: str, by: LexicalRules) -> Iterator[Token]:
    """The brackets, strings and comments of `text`, in order; brackets in strings and comments are not brackets."""
    for match in _lexer(by).finditer(text):
        kind = match.lastgroup or ""
        found = match.group(kind)
        is_open = False
        if kind == "string":
            is_open = len(found) == 1 or found[-1] != found[0] or _escaped(found)
        elif kind in ("long_string", "block_comment"):
            is_open = match.end() == len(text) and not _closed(found, kind)
        elif kind == "comment":
            is_open = True
        yield Token(kind, match.start(), match.end(), is_open)


def balance(text: str, by: LexicalRules) -> Balance:
    """Pair off the brackets and quotes of `text`."""
    found = Balance()
    for token in tokens(text, by):
        if token.kind == "bracket":
            character = text[token.start]
            if character in _PAIRS:
                found.stack.append((character, token.start))
            elif found.stack and _PAIRS[found.stack[-1][0]] == character:
                found.stack.pop()
            else:
                found.surplus.append(token.start)
        elif token.open and token.end == len(text):
            found.inside = "comment" if "comment" in token.kind else "string"
        elif token.open and token.kind == "string":
            found.torn += 1
    return found


def left_open(text: str, by: LexicalRules) -> Token | None:
    """The string or comment that `text` ends in."""
    *_, last = (None, *tokens(text, by))
    return last if last is not None and last.open and last.end == len(text) else None


def closer(found: str, kind: str) -> str:
    """What ends a string or comment that begins like `found`; "" for a comment of one line."""
    if kind == "block_comment":
        return "-->" if found.startswith("<!--") else f"]{found[3:].split('[')[0]}]" if found[:1] == "-" else "*/"
    opener = _OPENER.match(found)
    return opener[1].replace("[", "]") if opener and kind != "comment" else ""


def code_of(line: str, by: LexicalRules) -> str:
    """A line without the comment at its end."""
    for token in tokens(line, by):
        if "comment" in token.kind and (token.open or not line[token.end :].strip()):
            return line[: token.start].rstrip()
    return line


def opens_block(line: str, by: LexicalRules, *, above: bool) -> bool:
    """Whether a block begins after `line`: the one `above` a blank one, or the current one up to the cursor."""
    code = code_of(line, by)
    pattern = (by.opens_below if above else "") or by.opens_here
    if by.colon_opens and code.endswith(":") and balance(code, by).surplus:
        return True
    return bool(code.strip()) and re.search(pattern, code) is not None


def ends_in_bracket(line: str, by: LexicalRules) -> bool:
    """Whether the code of a line ends with a bracket that opens."""
    return code_of(line, by).rstrip()[-1:] in ("(", "[", "{")


def leaves(line: str, by: LexicalRules) -> bool:
    """Whether nothing on a level with this line is reached after it."""
    return _JUMP.match(code_of(line, by)) is not None


def is_reached(line: str) -> bool:
    """Whether it may be, after all: a label, another branch, a comment."""
    return _LABEL.match(line.lstrip()) is not None


def ends_block(line: str, by: LexicalRules) -> bool:
    """Whether a line is one that closes a block by its first word or bracket, like `end`, `fi` or `})`."""
    bare = line.strip()
    return bare[:1] in (")", "]", "}") or bool(by.ends and re.match(by.ends, bare))


def width(line: str) -> int:
    """The column of a line's first character that is not blank, tabs at every 4; the line's width if all is blank."""
    blank = line[: len(line) - len(line.lstrip(" \t"))]
    return len(blank.expandtabs(_TAB_COLUMNS))


def indent_style(text: str) -> tuple[str, int]:
    """("tabs" | "spaces" | "", step in columns): how the lines of `text` are indented, "" when they do not agree."""
    tabs = spaces = 0
    step = 8
    for line in text.split("\n"):
        if line[:1] == "\t":
            tabs += 1
        elif line[:2] == "  " and line.strip() and line.lstrip(" ")[:1] != "*":
            spaces += 1
            step = min(step, width(line))
    if tabs and not spaces:
        return "tabs", _TAB_COLUMNS
    if spaces > 1 and not tabs:
        return "spaces", step
    return "", _TAB_COLUMNS


def _escaped(literal: str) -> bool:
    """Whether a string's last quote is escaped, so that the string is not closed by it."""
    body = literal[:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def _closed(found: str, kind: str) -> bool:
    if kind == "block_comment":
        return len(found) > 3 and found.endswith(("*/", "-->", "]"))
    for quote in ('"""', "'''"):
        if found.startswith(quote):
            return len(found) >= 6 and found.endswith(quote) and not _escaped(found)
    return len(found) > 1 and found.endswith(("`", '"', "]"))


@functools.cache
def _lexer(by: LexicalRules) -> re.Pattern[str]:
    parts = [
        f"(?P<{kind}>{pattern})"
        for kind, pattern in (
            ("block_comment", by.block_comment),
            ("long_string", by.long_string),
            ("comment", by.comment),
            ("string", by.string),
            ("bracket", by.brackets),
        )
        if pattern
    ]
    return re.compile("|".join(parts), re.DOTALL | re.MULTILINE)
