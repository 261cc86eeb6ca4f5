"""Languages without a grammar: the names of their files, and the few rules that need no syntax tree.

The language server serves any language id that an editor sends. The ids are those of VS Code and of its common
extensions.
"""

from __future__ import annotations

from dataclasses import replace

from speclsp.lsp.syntax.languages.record import UNKNOWN_MARKUP, UNKNOWN_RULES, Language

PLAIN = "plaintext"
UNKNOWN = Language(name="", files={}, rules=UNKNOWN_RULES)  # of any other language id

_COMPONENT = replace(UNKNOWN_MARKUP, markup="in code")  # with types of TypeScript


def _language(name: str, files: str = "") -> Language:
    """`name`: the LSP language id; `files`: suffixes and whole names of its files."""
    return replace(UNKNOWN, name=name, files={name: files} if files else {})


WITHOUT_GRAMMAR: tuple[Language, ...] = (
    replace(_language("astro", ".astro"), rules=_COMPONENT),
    _language("bat", ".bat .cmd"),
    _language("bicep", ".bicep"),
    _language("clojure", ".clj .cljs .cljc .edn"),
    _language("cmake", ".cmake CMakeLists.txt"),
    _language("coffeescript", ".coffee"),
    _language("crystal", ".cr"),
    _language("dart", ".dart"),
    _language("dockerfile", "Dockerfile Containerfile .dockerfile"),
    _language("elixir", ".ex .exs"),
    _language("elm", ".elm"),
    _language("erlang", ".erl .hrl"),
    _language("fortran", ".f90 .f95 .f03 .f08"),
    _language("fsharp", ".fs .fsi .fsx"),
    _language("gleam", ".gleam"),
    _language("glsl", ".glsl .vert .frag"),
    _language("graphql", ".graphql .gql"),
    _language("groovy", ".groovy .gradle Jenkinsfile"),
    _language("haskell", ".hs"),
    _language("haxe", ".hx"),
    _language("hcl", ".hcl"),
    _language("ignore", ".gitignore .dockerignore .npmignore .eslintignore .prettierignore"),
    _language("ini", ".ini .cfg .editorconfig"),
    _language("julia", ".jl"),
    _language("latex"),
    _language("less", ".less"),
    _language("lisp", ".lisp .cl"),
    _language("makefile", "Makefile GNUmakefile .mk"),
    replace(_language("markdown", ".md .markdown"), aliases=("mdx", "quarto", "rmd"), is_prose=True),
    _language("nim", ".nim"),
    _language("nix", ".nix"),
    _language("objective-c", ".m"),
    _language("objective-cpp", ".mm"),
    _language("ocaml", ".ml .mli"),
    _language("pascal", ".pas"),
    _language("perl", ".pl .pm"),
    _language("pip-requirements", "requirements.txt"),
    _language("powershell", ".ps1 .psm1"),
    _language("prisma", ".prisma"),
    _language("properties", ".properties"),
    _language("proto3", ".proto"),
    _language("purescript", ".purs"),
    _language("r", ".r"),
    _language("racket", ".rkt"),
    _language("razor", ".cshtml .razor"),
    _language("restructuredtext", ".rst"),
    _language("scheme", ".scm"),
    _language("scss", ".scss"),
    _language("solidity", ".sol"),
    replace(_language("svg"), rules=UNKNOWN_MARKUP),
    _language("systemverilog", ".sv .svh"),
    _language("tcl", ".tcl"),
    _language("terraform", ".tf .tfvars"),
    _language("vb", ".vb"),
    _language("verilog", ".v"),
    _language("vhdl", ".vhd .vhdl"),
    _language("vim", ".vim"),
    replace(_language("vue", ".vue"), rules=_COMPONENT),
    replace(
        _language("xml", ".xml .xsd .xsl .svg"),
        aliases=("xsl", "handlebars", "django-html", "erb", "vue-html"),
        rules=UNKNOWN_MARKUP,
    ),
    _language("zig", ".zig"),
    _language(PLAIN, ".txt"),
)
