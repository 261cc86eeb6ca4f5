"""Samples of each language with a grammar: a document with the cursor marked, and the answers of its record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from support.rows import read

# language: (code with the cursor at ¦, names of the scopes around it, first import, siblings of the innermost class)
PLACES: dict[str, tuple[str, list[str], str | None, list[str] | None]] = {
    language: (*(answer or None for answer in answers), *[None] * (4 - len(answers)))
    for language, answers in read(Path(__file__).with_name("places.toml")).items()
}


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Samples for the questions that a record answers; None: the language has no such thing."""

    comment: str | None  # alone on a line
    block: tuple[str, str]  # (document with the cursor marked, header of a block that may be written there)
    statement: tuple[str, str] | None  # (import statement, its module)
    file: tuple[str, str, str] | None = None  # (importer, module, the file that it means)


_SCRIPT = Answers(
    comment="// so",
    block=("function f(a) {\n  ¦\n}\n", "if (a) {"),
    statement=('import { a } from "./b";', "./b"),
    file=("src/a.js", "./b", "src/b/index.js"),
)
_C = Answers(
    comment="// so",
    block=("int f(int a) {\n  ¦\n}\n", "if (a) {"),
    statement=('#include "b/c.h"', "b/c.h"),
    file=("src/a.c", "b/c.h", "include/b/c.h"),
)
_JAVA = Answers(
    comment="// so",
    block=("class A {\n  void f() {\n    ¦\n  }\n}\n", "if (a) {"),
    statement=("import a.b.C;", "a.b"),
    file=("src/D.java", "a.b.C", "src/a/b/C.java"),
)
ANSWERS = {
    "python": Answers(
        comment="# so",
        block=("def f(a):\n    ¦\n", "if a:"),
        statement=("from a.b import c", "a.b"),
        file=("src/x.py", "a.b", "src/a/b.py"),
    ),
    "javascript": _SCRIPT,
    "typescript": replace(_SCRIPT, file=("src/a.ts", "./b.js", "src/b.ts")),
    "tsx": replace(_SCRIPT, file=("src/a.tsx", "./b", "src/b.tsx")),
    "c": _C,
    "cpp": replace(_C, file=("src/a.cpp", "b/c.hpp", "include/b/c.hpp")),
    "rust": Answers(
        comment="// so",
        block=("fn f(a: bool) {\n    ¦\n}\n", "if a {"),
        statement=("use crate::a::b;", "crate::a"),
        file=("src/lib.rs", "crate::a", "src/a.rs"),
    ),
    "go": Answers(
        comment="// so",
        block=("package m\n\nfunc f(a bool) {\n\t¦\n}\n", "if a {"),
        statement=('import "m/a"', "m/a"),
        file=("main.go", "m/a", "a/a.go"),
    ),
    "java": _JAVA,
    "c_sharp": replace(_JAVA, statement=("using A.B;", "A"), file=("src/D.cs", "A.B", "src/A/B.cs")),
    "kotlin": replace(
        _JAVA,
        block=("class A {\n    fun f(a: Boolean) {\n        ¦\n    }\n}\n", "if (a) {"),
        statement=("import a.b.C as D", "a.b"),
        file=("src/D.kt", "a.b.C", "src/a/b/C.kt"),
    ),
    "swift": Answers(
        comment="// so",
        block=("func f(a: Bool) {\n    ¦\n}\n", "if a {"),
        statement=("@testable import struct A.B", "A"),
        file=("Tests/T.swift", "A", "Sources/A/A.swift"),
    ),
    "scala": replace(
        _JAVA,
        block=("class A {\n  def f(a: Boolean): Unit = {\n    ¦\n  }\n}\n", "if (a) {"),
        statement=("import a.b.{C, D => E}", "a.b"),
        file=("src/D.scala", "a.b.C", "src/a/b/C.scala"),
    ),
    "php": Answers(
        comment="// so",
        block=("<?php\nfunction f($a) {\n  ¦\n}\n", "if ($a) {"),
        statement=("use A\\B;", "A"),
        file=("src/C.php", "A\\B", "src/A/B.php"),
    ),
    "bash": Answers(
        comment="# so",
        block=("f() {\n  ¦\n}\n", "if a; then"),
        statement=('source "a.sh"', "a.sh"),
        file=("bin/x.sh", "a.sh", "bin/a.sh"),
    ),
    "ruby": Answers(
        comment="# so",
        block=("def f(a)\n  ¦\nend\n", "if a"),
        statement=('require "a/b"', "a/b"),
        file=("bin/x.rb", "a/b", "lib/a/b.rb"),
    ),
    "lua": Answers(
        comment="-- so",
        block=("function f(a)\n  ¦\nend\n", "if a then"),
        statement=('local b = require("a.b")', "a.b"),
        file=("x.lua", "a.b", "a/b.lua"),
    ),
    "sql": Answers(
        comment="-- so",
        block=("SELECT 1;\n¦\n", "CREATE TABLE a ("),
        statement=None,
    ),
    "svelte": Answers(
        comment="<!-- so -->",
        block=("<script>\n  ¦\n</script>\n", "if (a) {"),
        statement=None,
    ),
    "css": Answers(comment="/* so */", block=("a {\n  color: red;\n}\n\n¦\n", ".b {"), statement=None),
    "html": Answers(comment="<!-- so -->", block=("<body>\n  ¦\n</body>\n", "<div>"), statement=None),
    "json": Answers(comment="// so", block=("{\n  ¦\n}\n", '"a": {'), statement=None),
    "yaml": Answers(comment="# so", block=("a:\n  ¦\n", "b:"), statement=None),
    "toml": Answers(comment="# so", block=("[a]\nb = 1\n\n¦\n", "[c]"), statement=None),
}
