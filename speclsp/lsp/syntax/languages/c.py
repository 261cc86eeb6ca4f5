"""C and C++."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from speclsp.lsp.syntax.languages.import_rules import Import, ImportRules, by_path
from speclsp.lsp.syntax.languages.record import C_RULES, DefinitionRules, Language, keyword_pattern


def _imports(statement: str) -> Iterator[Import]:
    match = re.match(r'\s*#\s*include\s*["<]([^">\n]+)[">]', statement)
    if match:
        yield Import(match[1])


_DEFINITION = DefinitionRules(
    pattern=keyword_pattern("struct|class|union|enum", after=r"\s*(?:final\s*)?(?::[^:].*)?\{")
)
_IMPORTS = ImportRules(read=_imports, resolve=by_path, written_suffixes=(".h", ".hpp"))

C = Language(
    name="c",
    files={"c": ".c .h"},
    rules=C_RULES,
    strings_end_on_line=True,
    has_preprocessor=True,
    definition=_DEFINITION,
    indexed=".c",
    imports=_IMPORTS,
)
CPP = Language(
    name="cpp",
    aliases=("c++", "cxx", "cc", "hpp", "cuda-cpp"),
    files={"cpp": ".cpp .cc .cxx .hh .hpp", "cuda-cpp": ".cu .cuh"},
    rules=replace(C_RULES, long_string=r'R"(?P<tag>[^(\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z)'),
    strings_end_on_line=True,
    has_preprocessor=True,
    definition=_DEFINITION,
    indexed=".h .cc .cpp .cxx .hh .hpp .hxx .cu .cuh",
    family="c",
    imports=_IMPORTS,
)
