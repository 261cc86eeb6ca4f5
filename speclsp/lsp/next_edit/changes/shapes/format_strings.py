"""Text that is put together, converted into a string with placeholders: "%s" % a -> f"{a}", "a" + b -> `a${b}`.

Only simple placeholders are converted, one for each value. A line that has others stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from speclsp.lsp.next_edit.changes.places import Place
from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.next_edit.changes.substitutions import Substitution

STRING = r"""(?<!\w)(?:"[^"\\\n]*"|'[^'\\\n]*')"""
VALUE = r"[\w.$]+(?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])*(?:\.\w+)*"
VALUES = r"\(((?:[^()]|\([^()]*\))*)\)"
LEVELS = "debug|info|warning|warn|error|exception|critical"
PIECE = re.compile(rf"({STRING})|({VALUE})")
APART = re.compile(r"(?:[^,()\[\]]|\([^()]*\)|\[[^\[\]]*\])+")
BEFORE_SUM = r"(?<![.+*/%-] )(?<!await )(?<!typeof )(?<!new )(?<!void )(?<![\w.!~-])"


class Conversion(NamedTuple):
    """A pattern with the groups `string` and `values`, and its placeholders. Without these it is a sum."""

    literal: str  # in every match
    pattern: re.Pattern[str]
    marks: str = ""
    prefix: str = ""  # of the new string

    def __call__(self, line: str) -> str:
        return self.pattern.sub(self._converted, line) if self.literal in line else line

    def _converted(self, match: re.Match[str]) -> str:
        string = _filled(match[1], match[match.lastindex or 1], self.marks) if self.marks else _template(match[0])
        head = match[0][: match.start(1) - match.start()] if self.marks else ""
        return match[0] if string is None else head + self.prefix + string


PERCENT = Conversion(" % ", re.compile(rf"({STRING}) % (?:{VALUES}|({VALUE})(?![\w.\[(]))"), "%[sdr%]", "f")
LOGGED = Conversion('", ', re.compile(rf"\.(?:{LEVELS})\(({STRING})((?:, {VALUE})+)(?=\))"), "%[sdr%]", "f")
FORMAT = Conversion(".format(", re.compile(rf"({STRING})\.format{VALUES}"), r"\{\}", "f")
MACRO = Conversion("!(", re.compile(r'\w+!\((?:\w+, )?("[^"\\]*")((?:, \w+)+)(?=\))'), r"\{(?::\?)?\}")
SUM = Conversion(" + ", re.compile(rf"{BEFORE_SUM}(?:{STRING}|{VALUE})(?: \+ (?:{STRING}|{VALUE}))+(?! *[\w.+*/%([-])"))
CONVERSIONS: Mapping[str, tuple[Conversion, ...]] = {
    "python": (PERCENT, LOGGED, FORMAT),
    "rust": (MACRO,),
    "javascript": (SUM,),
    "typescript": (SUM,),
    "tsx": (SUM,),
}


def _filled(string: str, text: str, marks: str) -> str | None:
    """A string with a value in each placeholder; None if it has others, or values that do not fit into it."""
    texts = [value.strip() for value in APART.findall(text) if value.strip()]
    names, pieces = iter(texts), list[str]()
    for piece in re.split(rf"({marks})", string[1:-1]):
        if re.fullmatch(marks, piece) and piece != "%%":
            pieces.append(f"{{{next(names, '{')}{'!r' if piece == '%r' else ':?' if '?' in piece else ''}}}")
        else:
            pieces.append("%" if piece == "%%" else "{{" if {*piece} & {*"%{}"} else piece)
    is_unfit = next(names, "") or any({*value} & {string[0], *"\\*={"} for value in texts)
    return None if is_unfit or not texts or "{{" in "".join(pieces) else string[0] + "".join(pieces) + string[0]


def _template(text: str) -> str | None:
    """A sum with a string among its first two values as a template literal."""
    pieces = [piece.groups() for piece in PIECE.finditer(text)]
    if not any(string for string, _ in pieces[:2]) or "`" in text or "${" in text:
        return None
    return "`" + "".join(string[1:-1] if string else f"${{{value}}}" for string, value in pieces) + "`"


def converted_places(recent: Recent, kind: str, times: int) -> Iterator[Place]:
    """The lines that a conversion changes which the user has made so often, with the same quotes or others."""
    for convert in CONVERSIONS.get(recent.language.name, ()):
        changes = [
            change
            for change in recent.changes
            if convert(change.old).replace("'", '"') == change.new.replace("'", '"') != change.old
        ]
        evidence, literal = recent.evidence(changes), re.compile(re.escape(convert.literal))
        if evidence.times < times or changes[-1] not in recent.newest:
            continue

        def rewritten(start: int, line: str, convert: Conversion = convert) -> str:
            match, tree = convert.pattern.search(line), recent.parse(start)
            is_code = match is not None and tree is not None and tree.kind_at(start + match.start()) == "code"
            return convert(line) if is_code else line

        yield from recent.rewritten_lines(literal, Substitution(kind, convert.literal, ""), evidence, rewritten, True)
