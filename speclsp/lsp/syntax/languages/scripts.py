"""JavaScript, TypeScript, TSX and Svelte."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from speclsp.lsp.syntax.languages.import_rules import Import, ImportRules, KnownFiles, above, joined, original_names
from speclsp.lsp.syntax.languages.record import C_RULES, QUOTES, UNKNOWN_MARKUP, Language

_SUFFIXES = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
_WRITTEN_AS = {".js": (".ts", ".tsx", ".d.ts"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_INDEXES = tuple(f"/index{suffix}" for suffix in _SUFFIXES)
_SOURCES = ("@/", "~/")  # begin an import from the folder of the project's sources


def _imports(statement: str) -> Iterator[Import]:
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", statement, flags=re.DOTALL)
    source = re.search(r"""(?:from|import|require\s*\()\s*(["'])([^"'\n]+)\1""", bare)
    if source is None:
        return
    braces = re.search(r"\{([^}]*)\}", bare[: source.start()])
    yield Import(source[2], original_names(braces[1].replace(":", " as ")) if braces else ())


def _file(module: str, from_path: str, files: KnownFiles) -> str | None:
    if module.startswith("."):
        base = joined(posixpath.dirname(from_path), module)
        return None if base is None else files.first_existing(_candidates(base, module.endswith(("/", "."))))
    if module.startswith(_SOURCES):
        above_first = reversed([*above(from_path)])
        bases = [joined(place, folder, module[2:]) for place in above_first for folder in ("src", "")]
        return files.first_existing(path for base in bases if base for path in _candidates(base, False))
    return None


def _candidates(base: str, directory: bool) -> Iterator[str]:
    stem, suffix = posixpath.splitext(base)
    if not directory:
        yield from (stem + written for written in _WRITTEN_AS.get(suffix, ()))
        yield base
        yield from (base + ending for ending in _SUFFIXES)
    yield from ((base + ending).lstrip("/") for ending in _INDEXES)


def _exports(text: str, name: str) -> bool:
    kinds = r"(?:declare\s+|abstract\s+|async\s+)*(?:function\s*\*?|class|const|let|var|type|interface|enum)"
    listed = rf"\s*(?:type\s*)?\{{(?:[^}}]*[\s,])?{name}\s*(?:,[^}}]*)?\}}(?!\s*from\b)"
    return re.search(rf"(?m)^export(?:\s+{kinds}\s+{name}(?![\w$])|{listed})", text) is not None


_RULES = replace(C_RULES, string=QUOTES, long_string=r"`(?:\\.|[^`\\])*(?:`|\Z)")
_IMPORTS = ImportRules(
    read=_imports,
    resolve=_file,
    starts=r"import\b|export\s*(?:type\s*)?[*{]|(?:const|let|var)\s[^=;]{1,2000}=\s*require\s*\(",
    directory_stems=("index",),
    written_suffixes=(".js", ".ts", ".mjs", ".jsx", ".tsx"),
    exports=_exports,
)

JAVASCRIPT = Language(
    name="javascript",
    aliases=("javascriptreact", "js", "jsx", "mjs", "cjs", "node"),
    files={"javascript": ".js .cjs .mjs", "javascriptreact": ".jsx"},
    rules=replace(_RULES, stub=" {}", markup="in code"),
    strings_end_on_line=True,
    type_mark=":",
    has_untyped_parameters=True,
    indexed=".js .jsx .mjs .cjs",
    imports=_IMPORTS,
)
TYPESCRIPT = Language(
    name="typescript",
    grammar_module="tree_sitter_typescript",
    grammar_function="language_typescript",
    aliases=("ts", "mts", "cts"),
    files={"typescript": ".ts .cts .mts"},
    rules=_RULES,
    strings_end_on_line=True,
    type_mark=":",
    indexed=".ts .mts .cts",
    family="javascript",
    imports=_IMPORTS,
)
TSX = replace(
    TYPESCRIPT,
    name="tsx",
    grammar_function="language_tsx",
    aliases=("typescriptreact",),
    files={"typescriptreact": ".tsx"},
    rules=replace(_RULES, markup="in code"),
    indexed=".tsx",
)
SVELTE = Language(name="svelte", files={"svelte": ".svelte"}, header_is_body=True, rules=UNKNOWN_MARKUP, line_ends=())
