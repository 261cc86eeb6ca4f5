"""Language ids of LSP and the file names that have them, for languages with a grammar and without one.

The language server serves any language id that an editor sends. These tables serve the commands that read a file or a
pipe without an editor. The ids are those of VS Code and of its common extensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from speclsp.lsp.syntax.grammars import LANGUAGE_ID_OF_SUFFIX, grammar
from speclsp.lsp.syntax.languages import BY_NAME

PLAIN = "plaintext"
# language id -> suffixes and whole names of its files, of the languages without a grammar
_WITHOUT_GRAMMAR: Mapping[str, str] = MappingProxyType(
    {
        "astro": ".astro",
        "bat": ".bat .cmd",
        "bicep": ".bicep",
        "clojure": ".clj .cljs .cljc .edn",
        "cmake": ".cmake CMakeLists.txt",
        "coffeescript": ".coffee",
        "crystal": ".cr",
        "cuda-cpp": ".cu .cuh",
        "dart": ".dart",
        "dockerfile": "Dockerfile Containerfile .dockerfile",
        "elixir": ".ex .exs",
        "elm": ".elm",
        "erlang": ".erl .hrl",
        "fortran": ".f90 .f95 .f03 .f08",
        "fsharp": ".fs .fsi .fsx",
        "gleam": ".gleam",
        "glsl": ".glsl .vert .frag",
        "graphql": ".graphql .gql",
        "groovy": ".groovy .gradle Jenkinsfile",
        "haskell": ".hs",
        "haxe": ".hx",
        "hcl": ".hcl",
        "ignore": ".gitignore .dockerignore .npmignore .eslintignore .prettierignore",
        "ini": ".ini .cfg .editorconfig",
        "julia": ".jl",
        "kotlin": ".kt .kts",
        "less": ".less",
        "lisp": ".lisp .cl",
        "makefile": "Makefile GNUmakefile .mk",
        "markdown": ".md .markdown",
        "nim": ".nim",
        "nix": ".nix",
        "objective-c": ".m",
        "objective-cpp": ".mm",
        "ocaml": ".ml .mli",
        "pascal": ".pas",
        "perl": ".pl .pm",
        "pip-requirements": "requirements.txt",
        "powershell": ".ps1 .psm1",
        "prisma": ".prisma",
        "properties": ".properties",
        "proto3": ".proto",
        "purescript": ".purs",
        "r": ".r",
        "racket": ".rkt",
        "razor": ".cshtml .razor",
        "restructuredtext": ".rst",
        "scala": ".scala .sc .sbt",
        "scheme": ".scm",
        "scss": ".scss",
        "solidity": ".sol",
        "sql": ".sql",
        "svelte": ".svelte",
        "swift": ".swift",
        "systemverilog": ".sv .svh",
        "tcl": ".tcl",
        "terraform": ".tf .tfvars",
        "vb": ".vb",
        "verilog": ".v",
        "vhdl": ".vhd .vhdl",
        "vim": ".vim",
        "vue": ".vue",
        "xml": ".xml .xsd .xsl .svg",
        "zig": ".zig",
        PLAIN: ".txt",
    }
)
_ID_OF_FILE: Mapping[str, str] = MappingProxyType(
    {
        **{name.lower(): language for language, names in _WITHOUT_GRAMMAR.items() for name in names.split()},
        **LANGUAGE_ID_OF_SUFFIX,
    }
)
_FILE_OF_ID: Mapping[str, str] = MappingProxyType(
    {language: names.split()[0] for language, names in _WITHOUT_GRAMMAR.items()}
    | {language: suffixes.split()[0] for known in BY_NAME.values() for language, suffixes in known.files.items()}
)
LANGUAGE_IDS: tuple[str, ...] = tuple(sorted(_FILE_OF_ID))


def language_id(file_name: str) -> str:
    """The language id that an editor sends for a file; "plaintext" for an unknown name. Folders are not looked at."""
    name = file_name.lower()
    dot = name.rfind(".")
    return _ID_OF_FILE.get(name) or (_ID_OF_FILE.get(name[dot:]) if dot >= 0 else None) or PLAIN


def canonical_id(language: str) -> str:
    """The id in LANGUAGE_IDS for a language id or a common name, as "python" for "py"; "" for an unknown one."""
    name = language.strip().lower()
    if name in _FILE_OF_ID:
        return name
    known = BY_NAME.get(grammar(name) or "")
    return next(iter(known.files), "") if known is not None else ""


def file_name(language: str, stem: str) -> str:
    """The name of a file with a language id of LANGUAGE_IDS; one with a fixed name, as Dockerfile, has no stem."""
    name = _FILE_OF_ID[language]
    return stem + name if name.startswith(".") and name != ".gitignore" else name
