"""Record of a language: its names, its grammar, and the rules that the server needs to handle its text.

A default says that the language has no such thing, or has it as most languages do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from speclsp.lsp.syntax.languages.import_rules import ImportRules
from speclsp.lsp.syntax.languages.keywords import MANY_LANGUAGES, Keywords

BRACKET = r"[({\[]\s*$"  # a line that ends like this opens a block in any language


@dataclass(frozen=True, slots=True, kw_only=True)
class LexicalRules:
    """The comments, strings and blocks of one language, as regular expressions; "" for none.

    No code of its level is reached below a line that matches `jump`, unless it matches `label`.
    """

    comment: str = ""  # to the end of the line
    block_comment: str = ""  # to its own end, or to the end of the text
    long_string: str = ""  # can span lines
    string: str = r""""(?:\\.|[^"\\\n])*(?:"|$)|'(?:\\.|[^'\\\n])*(?:'|$)"""  # ends on its line, closed or not
    brackets: str = r"[()\[\]{}]"
    opens_here: str = BRACKET  # a line up to the cursor that begins a block
    opens_below: str = ""  # a line that begins a block for the line below it; "": as `opens_here`
    colon_opens: bool = False  # a header of several lines, which ends in "):", begins a block too
    ends: str = ""  # a line, without its indentation, that ends a block by its first word
    jump: str = r"\s*(?:return|raise|throw|break|continue)\b(?!.*\b(?:if|unless)\b)(?!.*[,\\(\[{+=&|]\s*$)"
    label: str = r"(?:case|default|el|elif|else|elsif|except|rescue|ensure|finally|when|catch)\b|\w+:\s*$|\W"
    statement_end: str = ""  # ends a statement on its line, where the language has one
    strict: bool = False  # no comma is allowed before a closing bracket
    markup: Literal["", "in code", "page"] = ""  # tags count as brackets; in code, `a<b` is no tag
    stub: str | None = None  # completes a signature, in place of a "{" or ":" at its end; None: no such members


Replacement = tuple[str, str]  # a part of a type, before and after


class TypeRules(NamedTuple):
    """Replacements of types in annotations, beside those of one name for another."""

    structures: Mapping[Replacement, Callable[[str], str]] = MappingProxyType({})  # -> the line with all of them made
    families: tuple[frozenset[Replacement], ...] = ()  # those that one release of the language allows together


NO_TYPE_RULES = TypeRules()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)  # generated methods cost time at start
class Language:
    """All facts about one language.

    `line_ends` and `line_ends_inside` complete an unfinished line for the syntax check. OPERAND stands for an
    expression, "{indent}" for the indentation of the line.
    """

    # names
    name: str  # of the grammar, and of queries/NAME.scm
    aliases: tuple[str, ...] = ()  # LSP language ids and common names, besides `name`
    files: Mapping[str, str]  # LSP language id -> suffixes and whole names of files, the usual one first
    # grammar
    grammar_module: str = ""  # Python module of the grammar; "": tree_sitter_NAME
    grammar_function: str = "language"  # the function of that module that returns the grammar
    ascii_only: bool = False  # the grammar's scanner must be fed ASCII only
    is_dangerous: Callable[[str], bool] = lambda _text: False  # the scanner could crash on the text
    has_dialects: bool = False  # the grammar lacks the syntax of some: its errors are not counted
    header_is_body: bool = False  # the body that the scopes query captures is a part of the header
    # text
    rules: LexicalRules
    by_indentation: bool = False  # a blank line below a block still belongs to the block
    strings_end_on_line: bool = False  # a "..." never spans lines
    has_preprocessor: bool = False  # #if ... #endif
    # offsets of the names in placeholders of `text[start:end]`, a node captured as @placeholders: "hello {name}"
    placeholders: Callable[[str, int, int], Iterator[int]] = lambda _text, _start, _end: iter(())
    is_prose: bool = False
    is_data: bool = False  # no program: its lines repeat
    line_ends: tuple[str, ...] | None = None  # behind the closing brackets; None: as in C (C_ENDS and C_INSIDE)
    line_ends_inside: tuple[str, ...] = ()  # in front of the closing brackets
    branches: Mapping[str, str] = field(default_factory=dict)  # first word -> first words of the headers it may follow
    branch_words: str = ""  # first words of a line that ends a block, in a language with a word at each block's end
    # next edits
    keywords: Keywords = MANY_LANGUAGES
    type_mark: str = ""  # between a parameter's name and its type; "": the type comes first
    argument_mark: str = ""  # between an argument's name and its value, with its blanks; "": there are no names
    has_untyped_parameters: bool = False  # a parameter needs no type
    has_trailing_lambdas: bool = False  # `{` behind a call begins one more argument
    has_early_results: bool = False  # `?` behind a value returns from the function where the value is an error
    types: TypeRules = NO_TYPE_RULES
    # index
    indexed: str = ""  # suffixes of the files that are indexed
    family: str = ""  # name of the language whose files it uses and whose files use its own; "": none
    imports: ImportRules | None = None


# ── rules that languages share ────────────────────────────────────────────────────────────────────────────────────────

UNKNOWN_RULES = LexicalRules(string=r'"(?:\\.|[^"\\\n])*"', comment=r"^\s*(?:#|//|--|;|%)[^\n]*")  # any text
UNKNOWN_MARKUP = replace(UNKNOWN_RULES, block_comment=r"<!--.*?(?:-->|\Z)", markup="page")
OPERAND = "x"
C_ENDS = (";", "x;", " {}", " {};")
C_INSIDE = (";", "x;", ": x")
QUOTES = LexicalRules().string
C_RULES = LexicalRules(
    comment=r"//[^\n]*",
    block_comment=r"/\*.*?(?:\*/|\Z)",
    string=r""""(?:\\.|[^"\\\n])*(?:"|$)|'(?:\\.[^'\n]{0,8}|[^'\\\n])'""",  # an apostrophe may be a Rust lifetime
    opens_here=BRACKET + r"|[=-]>\s*$|^\s*(?:case\b.*|default|public|private|protected)\s*:\s*$",
    statement_end=";",
    stub=";",
)
TRIPLE = r'"""(?:\\.|[^\\])*?(?:"""|\Z)'
HASH = r"(?<!\S)#[^\n]*"
