"""Which grammar a language's many names lead to. The rules of `shape` and the queries/*.scm go by the same names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# grammar name -> (module, function that hands out the language)
GRAMMARS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **{
            name: (f"tree_sitter_{name}", "language")
            for name in (
                *("bash", "c", "c_sharp", "cpp", "css", "go", "html", "java", "javascript"),
                *("json", "lua", "python", "ruby", "rust", "toml", "yaml"),
            )
        },
        "php": ("tree_sitter_php", "language_php"),
        "typescript": ("tree_sitter_typescript", "language_typescript"),
        "tsx": ("tree_sitter_typescript", "language_tsx"),
    }
)
# LSP language ids and what people call them otherwise -> grammar name
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("shellscript", "shell", "sh", "zsh", "ksh"), "bash"),
        **dict.fromkeys(("csharp", "cs", "c#"), "c_sharp"),
        **dict.fromkeys(("c++", "cxx", "cc", "hpp", "cuda-cpp"), "cpp"),
        **dict.fromkeys(("javascriptreact", "js", "jsx", "mjs", "cjs", "node"), "javascript"),
        **dict.fromkeys(("ts", "mts", "cts"), "typescript"),
        **dict.fromkeys(("py", "python3", "pyi", "starlark", "bazel"), "python"),
        **dict.fromkeys(("jsonc", "json5", "jsonl"), "json"),
        **dict.fromkeys(("yml", "dockercompose", "github-actions-workflow", "ansible"), "yaml"),
        **dict.fromkeys(("htm", "xhtml"), "html"),
        "typescriptreact": "tsx",
        "golang": "go",
        "rs": "rust",
        "rb": "ruby",
    }
)


def grammar(language: str) -> str | None:
    """The grammar for an LSP language id or a common name for it, None when speclsp has none."""
    name = language.strip().lower()
    name = _ALIASES.get(name, name)
    return name if name in GRAMMARS else None


# file suffix -> grammar, of the languages whose definitions are indexed
SUFFIXES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((".py", ".pyi"), "python"),
        **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "javascript"),
        **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
        ".c": "c",
        **dict.fromkeys((".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".cu", ".cuh"), "cpp"),
        **dict.fromkeys((".sh", ".bash"), "bash"),
        ".tsx": "tsx",
        ".rs": "rust",
        ".go": "go",
        ".java": "java",
        ".cs": "c_sharp",
        ".php": "php",
        ".rb": "ruby",
        ".lua": "lua",
    }
)
_FAMILIES = {"typescript": "javascript", "tsx": "javascript", "cpp": "c"}  # which use one another's definitions


def grammar_of(path: str) -> str:
    """The grammar of a file that is indexed; "" for any other."""
    return SUFFIXES.get("." + path.rpartition(".")[2].lower(), "")


def family(path: str) -> str:
    """The same for languages that use one another's definitions; "" for a file that is not indexed."""
    found = grammar_of(path)
    return _FAMILIES.get(found, found)
