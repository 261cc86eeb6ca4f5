"""Candidate cursors of a file, each with the text it would remove: the raw material of the tasks.

line_start   at a line's indentation          block      at the first line of a body; the truth may be all of it
operator     after an operator or a bracket   argument   at an argument of a call
word         inside an identifier             comment    at the line below a comment
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.quality.tasks.code_only import FILL
from benchmarks.quality.tasks.cross_file_names import SourceFile

KINDS = ("line_start", "operator", "word", "block", "argument", "comment")
SHORTEST, LONGEST, WIDEST = 4, 120, 140  # characters of a truth's first line; of the line it is in
BODY_LINES = 4  # a body of so many lines is one truth
_BLANK = re.compile(r"\s*$")
_TELLING = re.compile(r"[A-Za-z_]\w{2,}")
_EMPTY = """
    pass return break continue else true false null none nil self this none end done try finally begin default
"""
_EMPTY_WORDS = frozenset(_EMPTY.split())
_OPENS = {"python": re.compile(r":\s*$")}
_OPENS_BRACE = re.compile(r"(?:^|[^=:(,\[&|?\s]|=>)(?<!\breturn)\s*\{\s*$")  # a body, not a literal
_DEFINES = re.compile(
    r"^\s*(?:@|(?:export|default|declare|abstract|public|private|protected|static|final|pub(?:\([^)]*\))?|async|unsafe|const)"
    r"\s+)*(?:def|class|fn|func|function\*?|interface|struct|enum|trait|impl|type|namespace|mod)\b"
)
_FUNCTION = re.compile(
    r"\b(?:def|fn|func|function)\b|=>\s*\{?\s*$|^\s*\)[^;]*[{:]\s*$"
    r"|^\s*(?=\S)(?!(?:if|for|while|switch|catch|else|do|try|match|loop|unsafe|with|elif|except)\b)[\w<>:~*&,\s\[\].#]*\([^;]*\)[^;=]*\{\s*$"
)
_NO_TRUTH = re.compile(
    r"^\s*(?:@(?:classmethod|property|staticmethod|abstractmethod|override|Override)\b|import|from|export\s*(?:\*|\{)|use|package|#\s*include|#\s*pragma|#\s*endif|mod\s+\w+;|pub\s+use)\b"
)
_OPERATOR = re.compile(
    r"(?:(?<![=!<>:+\-*/%&|^])=|==|!=|<=|>=|=>|->|&&|\|\||\?\?|:=|\+=|-=|[+\-*/%<>?])\s|\b(?:return|and|or|not|in|is|if|await|yield|new)\s|[\[(.]|::"
)
_CALL = re.compile(r"[\w>\])]\(")
_WORD = re.compile(r"[A-Za-z_]\w{4,}")
_RESERVED = """
    return import export class struct function const async await yield lambda while break continue raise
    except finally super self public private protected static readonly interface extends implements typeof
    instanceof throw catch throws default switch match where trait unsafe async extern crate from with pass
    assert global nonlocal false true null None True False undefined string number boolean void final abstract
    override isinstance float never unknown
"""
_KEYWORDS = frozenset(_RESERVED.split())
_LICENCE = re.compile(
    r"(?i)licen[cs]e|copyright|spdx|noqa|type: ?ignore|eslint|ts-ignore|ts-expect|pragma|pylint|clang-format|biome"
    r"|prettier|region|nolint|todo|fixme|mypy|pyright|#!|coding[:=]"
)

_PROSE = re.compile(r"[A-Za-z]{3,}.*[A-Za-z]{3,}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cursor and the text after it, up to a line's end."""

    kind: str
    line: int  # from 0
    column: int
    last_line: int  # the truth's; more than `line` when it is a whole body

    def truth(self, file: SourceFile) -> str:
        lines = file.lines[self.line : self.last_line + 1]
        return "\n".join([lines[0][self.column :], *lines[1:]])


def draw(*parts: object) -> int:
    """A number that follows from the parts alone, the same on any machine."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:6], "big")


def candidates(file: SourceFile, seed: object, every: int = 1) -> Iterator[Candidate]:
    """At most one of each kind in every n-th line; `seed` selects the lines and the candidates."""
    lines, masked, skipped = file.lines, file.masked_lines, file.imports.lines
    opens = _OPENS.get(file.language, _OPENS_BRACE)
    for n in range(1 + draw(seed, file.path) % every, len(lines), every):
        line, code = lines[n], masked[n]
        if n in skipped or not code.strip() or len(line) > WIDEST or _NO_TRUTH.match(code):
            continue
        if code.rstrip() != code or _has_comment(line, code) or _inside_text(masked, n):
            continue
        indent = len(code) - len(code.lstrip())
        above = _above(masked, lines, n)
        if telling(file, n, indent) and code[indent] not in ")]}":
            if _is_comment(lines[n - 1], masked[n - 1]) and n - 1 not in skipped:
                if _says_something(lines[n - 1]):
                    yield Candidate("comment", n, indent, n)
            elif above is not None and opens.search(masked[above]) and _indent(masked[above]) < indent:
                last = _body_end(masked, n, indent)
                whole = last - n < BODY_LINES and draw(seed, file.path, n, "body") % 2 == 0
                yield Candidate("block", n, indent, last if whole else n)
            elif indent:
                yield Candidate("line_start", n, indent, n)
        yield from _within(file, n, seed)


def _within(file: SourceFile, n: int, seed: object) -> Iterator[Candidate]:
    code = file.masked_lines[n]
    indent = _indent(code)
    if _DEFINES.match(code):
        return
    after = [match.end() for match in _OPERATOR.finditer(code) if match.start() > indent]
    places = {"operator": after, "argument": _arguments(code), "word": []}
    for word in _WORD.finditer(code):
        if word.group() not in _KEYWORDS:
            places["word"].append(word.start() + 1 + draw(seed, file.path, n, word.start()) % (len(word.group()) - 3))
    for kind in ("operator", "word", "argument"):
        usable = [column for column in places[kind] if telling(file, n, column)]
        if usable:
            yield Candidate(kind, n, usable[draw(seed, file.path, n, kind) % len(usable)], n)


def telling(file: SourceFile, n: int, column: int) -> bool:
    """True if the text from `column` on is code with a word in it, of usual length."""
    rest = file.masked_lines[n][column:]
    if not SHORTEST <= len(file.lines[n]) - column <= LONGEST or rest != rest.lstrip():
        return False
    words = [word for word in _TELLING.findall(rest) if word.lower() not in _EMPTY_WORDS]
    return bool(words) and rest.strip(")]};,:({[ ") != ""


def _arguments(code: str) -> list[int]:
    """Columns at which an argument of a call begins on this line."""
    places, depth = [], []  # depth: is the open bracket a call's
    for at, character in enumerate(code):
        if character in "([{":
            is_call = character == "(" and at > 0 and _CALL.match(code, at - 1) is not None
            depth.append(is_call)
            if is_call and not re.search(r"\b(?:if|for|while|switch|catch|return|in|function|pub)$", code[:at]):
                places.append(at + 1)
        elif character in ")]}":
            if depth:
                depth.pop()
        elif character == "," and depth and depth[-1] and code[at + 1 : at + 2] == " ":
            places.append(at + 2)
    return [at for at in places if code[at : at + 1] not in ("", ")")]


def _has_comment(line: str, code: str) -> bool:
    return len(line.rstrip()) != len(code.rstrip())


def _inside_text(masked: list[str], n: int) -> bool:
    """True if the line is part of a string of several lines."""
    return not _has_code(masked[n]) or masked[n].lstrip()[:1] in ('"', "'", "`")


def _has_code(code: str) -> bool:
    """True if the masked line holds code, so that its indentation counts."""
    return bool(code.strip()) and not code.startswith(FILL)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_comment(line: str, code: str) -> bool:
    return bool(line.strip()) and not code.strip()


def _says_something(line: str) -> bool:
    text = line.strip().lstrip("/#* ").rstrip("*/ ")
    return len(text) >= 12 and bool(_PROSE.search(text)) and not _LICENCE.search(line)


def _above(masked: list[str], lines: list[str], n: int) -> int | None:
    """The last line of code before `n`, when nothing but blank lines is between."""
    for at in range(n - 1, max(n - 4, -1), -1):
        if lines[at].strip():
            return at if _has_code(masked[at]) else None
    return None


def _body_end(masked: list[str], n: int, indent: int) -> int:
    last = n
    for at in range(n + 1, min(n + BODY_LINES + 1, len(masked))):
        if _has_code(masked[at]) and _indent(masked[at]) < indent:
            break
        if masked[at].strip():
            last = at
    return last


def without_rest(file: SourceFile, candidate: Candidate) -> list[str] | None:
    """The lines below the truth when the rest of the enclosing function, or else block, is not written yet.

    What closes the brackets that are open above the cursor stays: an editor has put it there. None where there is no
    enclosing block, or nothing of it is left below.
    """
    masked = file.masked_lines
    here = _indent(masked[candidate.line])
    levels: list[tuple[int, int]] = []  # (line, indentation) of the blocks around the cursor, innermost first
    lowest = here
    for at in range(candidate.line - 1, -1, -1):
        if _has_code(masked[at]) and _indent(masked[at]) < lowest:
            lowest = _indent(masked[at])
            levels.append((at, lowest))
            if lowest == 0:
                break
    if not levels:
        return None
    around = next((n for n, (at, _) in enumerate(levels) if _FUNCTION.search(masked[at])), 0)
    outermost = levels[around][1]
    to_close = [indent for at, indent in levels[:around] if masked[at].rstrip().endswith(("(", "[", "{"))]
    lines: list[str] = []
    removed = 0
    at = candidate.last_line + 1
    while at < len(file.lines):
        line = masked[at]
        if not _has_code(line):
            removed += bool(line.strip())
            at += 1
            continue
        if _indent(line) <= outermost:
            break
        while to_close and _indent(line) < to_close[0]:
            to_close.pop(0)
        if to_close and _indent(line) == to_close[0]:
            to_close.pop(0)
            if closer := re.match(r"\s*[)\]}]+[;,]?", line):  # `} else {` closes one bracket, `}, [a])` is a whole end
                lines.append(closer.group() if line.rstrip().endswith(("(", "[", "{", ":")) else file.lines[at])
                at += 1
                continue
        removed += 1
        at += 1
    if not removed:
        return None
    while at < len(file.lines) and at > candidate.last_line + 1 and not file.lines[at - 1].strip():
        at -= 1  # the blank lines before the following code stay
    return lines + file.lines[at:]
