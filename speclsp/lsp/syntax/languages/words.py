"""Bash, Ruby and Lua: a word ends each block, and imports name files in quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speclsp.lsp.syntax.languages.import_rules import Import, ImportRules, KnownFiles, by_path
from speclsp.lsp.syntax.languages.record import BRACKET, HASH, Language, LexicalRules


def _imports(statement: str) -> Iterator[Import]:
    match = re.search(r"""(?:require\w*|dofile|source|\.)\s*\(?\s*["']([^"'\n]+)["']""", statement)
    if match:
        yield Import(match[1])


def _lua_file(module: str, from_path: str, files: KnownFiles) -> str | None:
    return by_path(module.replace(".", "/"), from_path, files)


_IMPORTS = ImportRules(read=_imports, resolve=by_path, starts=r"(?:source|\.|require|require_relative|load)[\s(]")
_RUBY_OPENS = BRACKET + r"|\bdo\s*(?:\|[^|]*\|)?\s*$|\{\s*\|[^|]*\|\s*$"

BASH = Language(
    name="bash",
    aliases=("shellscript", "shell", "sh", "zsh", "ksh"),
    files={"shellscript": ".sh .bash"},
    ascii_only=True,  # tree-sitter-bash 0.25 passes any character to C's isalpha(): see parser.py
    rules=LexicalRules(
        comment=HASH,
        brackets=r"[\[\]{}]",  # a case has ")" alone
        opens_here=BRACKET + r"|\b(?:then|do|else|in)\s*$|^\s*[^\s()]+\)\s*$",
        ends=r"(?:fi|done|esac)\b|;;",
        stub=" { :; }",
    ),
    line_ends=("\n:\nfi", "\n:\ndone", "; then\n:\nfi", "; do\n:\ndone", "\nesac", "\n;;\nesac", "\n:\n}"),
    branch_words="fi|done|esac|else|elif",
    indexed=".sh .bash",
    imports=_IMPORTS,
)
RUBY = Language(
    name="ruby",
    aliases=("rb",),
    files={"ruby": ".rb"},
    rules=LexicalRules(
        comment=HASH,
        opens_here=_RUBY_OPENS + r"|\bthen\s*$",
        opens_below=_RUBY_OPENS
        + r"|^\s*(?:def|class|module|if|unless|while|until|for|case|begin|else|elsif|when|rescue|ensure)\b"
        r"(?!.*\bend\s*$)(?!.*\)\s*=\s)",
        ends=r"end\b",
        stub="; end",
    ),
    line_ends=("\nend", " x\nend", "\nend\nend"),
    branch_words="end|else|elsif|when|rescue|ensure",
    indexed=".rb",
    imports=_IMPORTS,
)
LUA = Language(
    name="lua",
    files={"lua": ".lua"},
    rules=LexicalRules(
        comment=r"--(?!\[=*\[)[^\n]*",
        block_comment=r"--\[(?P<level>=*)\[.*?(?:\](?P=level)\]|\Z)",
        long_string=r"\[(?P<depth>=*)\[.*?(?:\](?P=depth)\]|\Z)",
        opens_here=BRACKET + r"|\b(?:then|do|else|repeat)\s*$|\bfunction\b[^()]*\([^()]*\)\s*$",
        ends=r"(?:end|until)\b",
        stub=" end",
    ),
    strings_end_on_line=True,
    line_ends=("\nend", " then\nend", " x then\nend", " = x", "\nuntil x"),
    branch_words="end|else|elseif|until",
    indexed=".lua",
    imports=_IMPORTS._replace(resolve=_lua_file, starts=r"local\s[^=\n]*=\s*require\b"),
)
