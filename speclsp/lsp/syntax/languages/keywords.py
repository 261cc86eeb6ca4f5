"""Words of a language by which next edits read a line, and the patterns that follow from them."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Keywords(NamedTuple):
    """Words of a language, as alternatives of a pattern. The defaults are the words of many languages."""

    functions: str = "def|function|func|fn|fun|sub|macro"  # before the name of a function
    types: str = "class|interface|struct|enum|type|trait|module|object|protocol"  # before the name of a type
    variables: str = "const|let|var|val|for|as"  # before another name that a statement defines
    statements: str = (  # they decide what a statement does
        "if|elif|else|return|await|for|while|in|is|not|raise|yield|assert|with|try|except|case|switch|throw|new|const|let"
        "|var|del|async|import|from|lambda|and|or"
    )


MANY_LANGUAGES = Keywords()


@functools.lru_cache(maxsize=256)
def definition(words: Keywords, name: str) -> re.Pattern[str]:
    """A definition of a name: a declaration, an assignment, a parameter, an import."""
    name = re.escape(name)
    return re.compile(
        rf"\b(?:{words.functions}|{words.types}|{words.variables})\s+{name}\b"
        rf"|(?m:^[ \t]*(?:self\.|this\.)?{name}\s*(?::[^=\n]*)?=[^=])|(?m:^[ \t]+{name}\s*:\s)|[(,]\s*{name}\s*:"
        rf"|\b(?:{words.functions})\s+\w+\s*\([^)]*\b{name}\b|\bimport\s[^\n]*\b{name}\b"
    )


@functools.cache
def declaration_before(words: Keywords) -> re.Pattern[str]:
    """A text left of a name that the name's line declares, or creates by `new`."""
    return re.compile(rf"\b(?:{words.functions}|{words.types}|new)\s+$")


@functools.cache
def function_header(words: Keywords) -> re.Pattern[str]:
    """A function's first words, its name as the first group, and what opens its parameters."""
    return re.compile(rf"\s*(?:[\w@]+\s+)*?(?:{words.functions})\s*\*?\s+(\w+)\s*[(<\[]")


@functools.lru_cache(maxsize=256)
def function(words: Keywords, name: str) -> re.Pattern[str]:
    """The header of a function with this name."""
    return re.compile(rf"\b(?:{words.functions})\s+{re.escape(name)}\b")


@functools.cache
def statement_words(words: Keywords) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words.statements})\b")
