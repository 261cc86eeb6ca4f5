"""Text that is put together in Python, converted into f-strings: "%s" % a, "{}".format(a), log.info("%s", a).

Only simple placeholders are converted, one for each value. A line that has others stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.next_edit.changes.substitutions import Place, Substitution

STRING = r"""(?<!\w)(?:"[^"\\\n]*"|'[^'\\\n]*')"""
VALUE = r"[\w.]+(?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])*(?:\.\w+)*"
VALUES = r"\(((?:[^()]|\([^()]*\))*)\)"
LEVELS = "debug|info|warning|warn|error|exception|critical"
APART = re.compile(r"(?:[^,()\[\]]|\([^()]*\)|\[[^\[\]]*\])+")


class Conversion(NamedTuple):
    """A pattern of a string, the first group, and its values, the last one. `marks`: its placeholders."""

    literal: str  # in every match
    marks: str
    pattern: re.Pattern[str]

    def __call__(self, line: str) -> str:
        return self.pattern.sub(self._converted, line) if self.literal in line else line

    def _converted(self, match: re.Match[str]) -> str:
        """The match with a value in each placeholder; as it is where there are others, or values that do not fit."""
        quote, texts = match[1][0], [text.strip() for text in APART.findall(match[match.lastindex or 1])]
        values, pieces = iter(filter(None, texts)), list[str]()
        for piece in re.split(rf"({self.marks})", match[1][1:-1]):
            if re.fullmatch(self.marks, piece) and piece != "%%":
                pieces.append(f"{{{next(values, '{')}{'!r' if piece == '%r' else ''}}}")
            else:
                pieces.append("%" if piece == "%%" else "{{" if {*piece} & {*"%{}"} else piece)
        is_unfit = next(values, "") or any({*text} & {quote, *"\\*={"} for text in texts) or not any(texts)
        string = f"f{quote}{''.join(pieces)}{quote}"
        return match[0] if is_unfit or "{{" in string else match[0][: match.start(1) - match.start()] + string


CONVERSIONS = (
    Conversion(" % ", "%[sdr%]", re.compile(rf"({STRING}) % (?:{VALUES}|({VALUE})(?![\w.\[(]))")),
    Conversion('", ', "%[sdr%]", re.compile(rf"\.(?:{LEVELS})\(({STRING})((?:, {VALUE})+)(?=\))")),
    Conversion(".format(", r"\{\}", re.compile(rf"({STRING})\.format{VALUES}")),
)


def unquoted(line: str) -> str:
    return line.replace("'", '"')


def converted_places(recent: Recent, kind: str, times: int) -> Iterator[Place]:
    """The lines that a conversion changes which the user has made so often, with the same quotes or others."""
    for convert in CONVERSIONS:
        changes = [change for change in recent.changes if convert(change.old) != change.old]
        changes = [change for change in changes if unquoted(convert(change.old)) == unquoted(change.new)]
        evidence, literal = recent.evidence(changes), re.compile(re.escape(convert.literal))
        if evidence.times < times or changes[-1] not in recent.newest:
            continue

        def rewritten(start: int, line: str, convert: Conversion = convert) -> str:
            match, tree = convert.pattern.search(line), recent.parse(start)
            is_code = match is not None and tree is not None and tree.kind_at(start + match.start()) == "code"
            return convert(line) if is_code else line

        yield from recent.rewritten_lines(literal, Substitution(kind, convert.literal, ""), evidence, rewritten, True)
