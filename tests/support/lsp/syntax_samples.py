"""One document per grammar, with the cursor marked and the syntax expected there."""

from __future__ import annotations

# language: (code with the cursor at ¦, names of the scopes around it, first import, siblings of the innermost class)
PLACES = {
    "python": (
        "import os\nclass A(B):\n    def f(self):\n        ¦pass\n    def g(self): ...\n",
        ["A", "f"],
        "import os",
        ["g"],
    ),
    "javascript": (
        'import a from "b";\nclass A {\n  f(x) {\n    ¦x();\n  }\n  g() {}\n}\n',
        ["A", "f"],
        'import a from "b";',
        ["g"],
    ),
    "typescript": (
        'import { a } from "b";\nexport class A<T> {\n  f(x: T): void {\n    ¦x();\n  }\n  g(): void {}\n}\n',
        ["A", "f"],
        'import { a } from "b";',
        ["g"],
    ),
    "tsx": (
        'import a from "b";\nconst C = (p: P) => {\n  ¦return <div>{p.a}</div>;\n};\nfunction g() {}\n',
        ["C"],
        'import a from "b";',
        ["g"],
    ),
    "go": (
        'package m\n\nimport "fmt"\n\nfunc (s *S) Do() {\n\t¦fmt.Println()\n}\n\nfunc g() {}\n',
        ["Do"],
        "package m",
        ["g"],
    ),
    "rust": (
        "use std::io;\nimpl<'a> T for S<'a> {\n    fn f(&self) {\n        ¦x();\n    }\n    fn g() {}\n}\n",
        ["S", "f"],
        "use std::io;",
        ["g"],
    ),
    "java": (
        "package p;\npublic class A {\n  void f() {\n    ¦x();\n  }\n  int g(int a) { return a; }\n}\n",
        ["A", "f"],
        "package p;",
        ["g"],
    ),
    "c": ("#include <a.h>\nint *f(int a) {\n  ¦return 0;\n}\nint g(void) { }\n", ["f"], "#include <a.h>", ["g"]),
    "cpp": (
        "#include <a>\nnamespace n {\nclass A {\n  void f() {\n    ¦x();\n  }\n  int g() { }\n};\n}\n",
        ["n", "A", "f"],
        "#include <a>",
        ["g"],
    ),
    "c_sharp": (
        "using System;\nclass A {\n  void F() {\n    ¦X();\n  }\n  int G { get; set; }\n}\n",
        ["A", "F"],
        "using System;",
        ["G"],
    ),
    "ruby": (
        'require "a"\nclass A < B\n  def f(x)\n    ¦x\n  end\n  def self.g\n    1\n  end\nend\n',
        ["A", "f"],
        'require "a"',
        ["g"],
    ),
    "php": (
        "<?php\nuse A\\B;\nclass C {\n  function f($x) {\n    ¦x();\n  }\n  function g() { }\n}\n",
        ["C", "f"],
        "<?php",
        ["g"],
    ),
    "bash": ("source a.sh\nf() {\n  ¦ls\n}\ng() { ls; }\n", ["f"], "source a.sh", ["g"]),
    "lua": ('local a = require("a")\nfunction M.f(x)\n  ¦x()\nend\nlocal function g() x() end\n', ["M.f"], None, ["g"]),
    "html": ("<!DOCTYPE html>\n<html><body>¦<p>a</p></body></html>\n", ["html", "body"], "<!DOCTYPE html>", None),
    "css": ('@import "a.css";\n.a {\n  ¦color: red;\n}\n', [".a"], '@import "a.css";', None),
    "json": ('{"a": {"b": [¦1, 2]}}\n', ["a", "b"], None, None),
    "yaml": ("a:\n  b:\n    ¦c: 1\n", ["a", "b"], None, None),
    "toml": ('[a.b]\n¦c = "d"\n', ["a.b"], None, None),
}
