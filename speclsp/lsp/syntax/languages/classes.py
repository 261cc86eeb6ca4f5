"""Java, C#, PHP, Kotlin and Scala: a file holds a class, and its path follows from the class's full name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from speclsp.lsp.syntax.languages import placeholders
from speclsp.lsp.syntax.languages.import_rules import (
    Import,
    ImportRules,
    KnownFiles,
    by_class,
    by_end,
    class_imports,
    original_names,
)
from speclsp.lsp.syntax.languages.record import C_RULES, QUOTES, TRIPLE, Language


def _php_imports(statement: str) -> Iterator[Import]:
    for match in re.finditer(r"[\\\w]+\\\w+", statement):
        module, _, name = match[0].rpartition("\\")
        yield Import(module, (name,))


def _kotlin_imports(statement: str) -> Iterator[Import]:
    match = re.match(r"\s*import\s+([\w.]+?)(\.\*)?(?:\s+as\s+\w+)?\s*;?\s*\Z", statement)
    if match:
        module, _, name = match[1].rpartition(".")
        yield Import(match[1]) if match[2] else Import(module, (name,))


def _scala_imports(statement: str) -> Iterator[Import]:
    if not statement.startswith("import"):  # a package clause
        return
    for match in re.finditer(r"([\w.]+)\.(?:\{([^}]*)\}|(\w+|\*))", statement):
        names = original_names(match[2].replace("=>", " as ")) if match[2] else (match[3],)
        yield Import(match[1], tuple(name for name in names if name not in ("_", "*")))


def _jvm_file(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The file of a class, in the importer's language or in Java."""
    path = by_class(module, from_path, files)
    return path or by_end(module.replace(".", "/") + ".java", from_path, files)


_IMPORTS = ImportRules(read=class_imports, resolve=by_class, starts=r"(?:import|using)\s")

JAVA = Language(
    name="java",
    files={"java": ".java"},
    rules=replace(C_RULES, long_string=TRIPLE),
    strings_end_on_line=True,
    indexed=".java",
    imports=_IMPORTS,
)
C_SHARP = Language(
    name="c_sharp",
    aliases=("csharp", "cs", "c#"),
    files={"csharp": ".cs"},
    rules=replace(C_RULES, long_string=TRIPLE + r'|@"(?:""|[^"])*(?:"|\Z)'),
    strings_end_on_line=True,
    argument_mark=": ",
    indexed=".cs",
    imports=_IMPORTS,
)
PHP = Language(
    name="php",
    grammar_function="language_php",
    files={"php": ".php"},
    rules=replace(C_RULES, comment=r"//[^\n]*|#(?!\[)[^\n]*", string=QUOTES),
    indexed=".php",
    imports=ImportRules(read=_php_imports, resolve=by_class, starts=r"(?:use|namespace)\s"),
)
KOTLIN = Language(
    name="kotlin",
    placeholders=placeholders.kotlin,
    aliases=("kt",),
    files={"kotlin": ".kt .kts"},
    rules=replace(C_RULES, long_string=TRIPLE, statement_end="", stub=""),
    strings_end_on_line=True,
    line_ends=(" {}", " = x", " -> x", " catch (x: x) {}"),
    line_ends_inside=(": x", " -> x"),
    type_mark=":",
    argument_mark=" = ",
    has_trailing_lambdas=True,
    indexed=".kt .kts",
    family="java",
    imports=ImportRules(read=_kotlin_imports, resolve=_jvm_file, starts=r"import\s"),
)
SCALA = Language(
    name="scala",
    files={"scala": ".scala .sc .sbt"},
    rules=replace(
        C_RULES,
        long_string=TRIPLE,
        opens_here=C_RULES.opens_here
        + r"|(?<![<>=!:])=\s*$|\b(?:then|else|match|yield|try|catch|finally)\s*$"
        + r"|^\s*(?:(?:case|final|sealed|abstract|private)\s+)*(?:class|trait|object|enum)\b.*:\s*$",
        statement_end="",
        stub="",
    ),
    strings_end_on_line=True,
    line_ends=(" {}", " = x", " => x", " x", "\n{indent}  x"),
    line_ends_inside=(": x", " => x"),
    indexed=".scala .sc .sbt",
    family="java",
    imports=ImportRules(read=_scala_imports, resolve=_jvm_file, starts=r"import\s"),
)
