"""List files: files in which each line is one entry, as ignore files, requirements and word lists.

An entry that stands in the file already is not suggested again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.syntax.grammars import grammar

_IGNORE = re.compile(r"(?i)(?:\.[\w-]*ignore|\.gitattributes|\.npmignore)\Z")
_REQUIREMENTS = re.compile(r"(?i)(?:[\w.-]*(?:requirements|constraints)[\w.-]*\.(?:txt|in|pip))\Z")
_WORDS = re.compile(
    r"(?i)(?:words?|dict(?:ionary)?|wordlist|stopwords|[\w.-]*\.dic|authors|contributors|\.mailmap)(?:\.txt)?\Z"
)
_LEAST_LINES = 10  # of a file without a known name that counts as a word list
_MOST_CHARACTERS = 200_000
_COMMENTS = ("#", "//", ";", "!")


class Kind(Enum):
    IGNORE = "ignore"
    REQUIREMENTS = "requirements"
    OWNERS = "owners"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class ListFile:
    """A file of entries."""

    kind: Kind

    def holds(self, line: str, typed: str, lines: Iterable[str]) -> bool:
        """True if the entry of `line` is one of `lines`, unless the user has typed all of it: `typed`."""
        entry = self.entry(line)
        return bool(entry) and entry != self.entry(typed) and any(self.entry(other) == entry for other in lines)

    def entry(self, line: str) -> str:
        """The entry of a line, the same for all its spellings; "" for a comment."""
        bare = line.strip()
        if bare.startswith(_COMMENTS[:1] if self.kind is Kind.IGNORE else _COMMENTS):
            return ""
        if self.kind is Kind.REQUIREMENTS:
            name = re.match(r"[A-Za-z0-9][\w.-]*", bare)
            return re.sub(r"[-_.]+", "-", name[0]).lower() if name else bare
        if self.kind is Kind.OWNERS:
            return bare.split()[0] if bare else ""
        return (bare.rstrip("/") or bare) if self.kind is Kind.IGNORE else bare


def list_file(uri: str, language: str, text: str) -> ListFile | None:
    """The list that a document is; None for any other file."""
    name = file_path(uri).rpartition("/")[2]
    if _IGNORE.match(name) or language == "ignore":
        return ListFile(Kind.IGNORE)
    if _REQUIREMENTS.match(name) or language == "pip-requirements":
        return ListFile(Kind.REQUIREMENTS)
    if name.upper() == "CODEOWNERS":
        return ListFile(Kind.OWNERS)
    if _WORDS.match(name) or (grammar(language) is None and _is_word_list(text)):
        return ListFile(Kind.WORDS)
    return None


def _is_word_list(text: str) -> bool:
    """True if every line is one word, and none stands twice."""
    lines = [line.strip() for line in text[:_MOST_CHARACTERS].splitlines() if line.strip()]
    entries = [line for line in lines if not line.startswith(_COMMENTS)]
    if len(entries) < _LEAST_LINES or any(len(entry.split()) > 1 for entry in entries):
        return False
    return len(set(entries)) == len(entries) and all(entry[-1].isalnum() for entry in entries)
