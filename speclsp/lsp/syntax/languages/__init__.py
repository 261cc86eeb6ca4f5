"""Languages: one record for each. All other tables of languages are derived from LANGUAGES and WITHOUT_GRAMMAR.

To add a language: one record in a module of this package, its name in LANGUAGES, and one file queries/NAME.scm.
"""

from __future__ import annotations

from collections.abc import Mapping

from speclsp.lsp.syntax.languages.classes import C_SHARP, JAVA, KOTLIN, PHP, SCALA
from speclsp.lsp.syntax.languages.compiled import CPP, GO, RUST, SWIFT, C
from speclsp.lsp.syntax.languages.data import CSS, HTML, JSON, SQL, TOML, YAML
from speclsp.lsp.syntax.languages.python import PYTHON
from speclsp.lsp.syntax.languages.record import Language
from speclsp.lsp.syntax.languages.scripts import JAVASCRIPT, SVELTE, TSX, TYPESCRIPT
from speclsp.lsp.syntax.languages.without_grammar import UNKNOWN, WITHOUT_GRAMMAR
from speclsp.lsp.syntax.languages.words import BASH, LUA, RUBY

LANGUAGES: tuple[Language, ...] = (  # with a grammar
    *(PYTHON, JAVASCRIPT, TYPESCRIPT, TSX, C, CPP, RUST, GO, SWIFT, JAVA, C_SHARP, PHP, KOTLIN, SCALA),
    *(BASH, RUBY, LUA, SQL),
    *(CSS, HTML, SVELTE, JSON, YAML, TOML),
)
BY_NAME: Mapping[str, Language] = {language.name: language for language in LANGUAGES}
BY_ID: Mapping[str, Language] = {
    name: language for language in (*WITHOUT_GRAMMAR, *LANGUAGES) for name in (language.name, *language.aliases)
}


def record(language_id: str) -> Language:
    """The record for an LSP language id or a common name for it; UNKNOWN for any other."""
    return BY_ID.get(language_id.strip().lower(), UNKNOWN)
