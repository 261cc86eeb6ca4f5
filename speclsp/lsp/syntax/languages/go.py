"""Go."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from speclsp.lsp.syntax.languages.import_rules import Import, ImportRules, KnownFiles, joined
from speclsp.lsp.syntax.languages.record import C_RULES, DefinitionRules, Language


def _imports(statement: str) -> Iterator[Import]:
    for match in re.finditer(r'"([^"\n]+)"', statement):
        yield Import(match[1])


def _file(module: str, from_path: str, files: KnownFiles) -> str | None:
    for name, directory in files.package_roots("go"):
        if module == name or module.startswith(name + "/"):
            place = joined(directory, module[len(name) + 1 :])
            if place is None:
                return None
            paths = [path for path in files.files_in(place) if path.endswith(".go") and not path.endswith("_test.go")]
            package = posixpath.basename(place) or posixpath.basename(module)
            return min(paths, key=lambda path: (posixpath.basename(path) != f"{package}.go", path), default=None)
    return None


def _manifest(text: str) -> Iterator[tuple[str, str, str]]:
    module = re.search(r"^module\s+\"?([^\s\"]+)", text, re.MULTILINE)
    if module:
        yield "go", module[1], ""


GO = Language(
    name="go",
    aliases=("golang",),
    files={"go": ".go"},
    rules=replace(C_RULES, long_string=r"`[^`]*(?:`|\Z)", statement_end="", stub=""),
    strings_end_on_line=True,
    line_ends=("{}", " {}", "\n}"),
    definition=DefinitionRules(
        pattern=r"(?P<keyword>func|type)\s+(?P<name>(?:\(\w*\s*\*?\w+(?:\[[^\]]*\])?\)\s*)?\w+)\s*[(\[ ]",
        repeatable=("init", "_"),
    ),
    indexed=".go",
    imports=ImportRules(read=_imports, resolve=_file, manifests={"go.mod": _manifest}),
)
