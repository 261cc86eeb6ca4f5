"""Swift."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from speclsp.lsp.syntax.languages.import_rules import Import, ImportRules, KnownFiles, by_end
from speclsp.lsp.syntax.languages.record import C_RULES, TRIPLE, TYPES, Language

_KINDS = "struct|class|enum|protocol|func|let|var|typealias"  # of the imported name


def _imports(statement: str) -> Iterator[Import]:
    match = re.search(rf"\bimport\s+(?:(?:{_KINDS})\s+)?(\w+)(?:\.(\w+))?", statement)
    if match:
        yield Import(match[1], (match[2],) if match[2] else ())


def _file(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The file that a module is named for: a module is a directory of files."""
    return by_end(f"{module}/{module}.swift", from_path, files)


SWIFT = Language(
    name="swift",
    files={"swift": ".swift"},
    rules=replace(
        C_RULES,
        long_string=TRIPLE + r'|(?P<hashes>#+)".*?(?:"(?P=hashes)|\Z)',
        string=r'"(?:\\.|[^"\\\n])*(?:"|$)',
        opens_here=C_RULES.opens_here + r"|\{[^{}]*\bin\s*$",
        statement_end="",
        stub="",
    ),
    strings_end_on_line=True,
    line_ends=(" {}", " = x", " x", " else {}", " catch {}", " x {}"),
    line_ends_inside=(": x", " x in"),
    definition=TYPES,
    indexed=".swift",
    imports=ImportRules(read=_imports, resolve=_file),
)
