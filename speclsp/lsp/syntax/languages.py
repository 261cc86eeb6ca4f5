"""One record per supported language. All other tables of languages are derived from LANGUAGES.

To add a language: one record here and one file queries/NAME.scm. A language that the index covers also needs readers
of its imports and signatures (index/import_statements.py, index/outline.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

_BRACKET = r"[({\[]\s*$"  # a line that ends like this opens a block in any language


@dataclass(frozen=True, slots=True, kw_only=True)
class LexicalRules:
    """The comments, strings and blocks of one language, as regular expressions; "" for none."""

    comment: str = ""  # to the end of the line
    block_comment: str = ""  # to its own end, or to the end of the text
    long_string: str = ""  # can span lines
    string: str = r""""(?:\\.|[^"\\\n])*(?:"|$)|'(?:\\.|[^'\\\n])*(?:'|$)"""  # ends on its line, closed or not
    brackets: str = r"[()\[\]{}]"
    opens_here: str = _BRACKET  # a line up to the cursor that begins a block
    opens_below: str = ""  # a line that begins a block for the line below it; "": as `opens_here`
    colon_opens: bool = False  # a header of several lines, which ends in "):", begins a block too
    ends: str = ""  # a line, without its indentation, that ends a block by its first word
    statement_end: str = ""  # ends a statement on its line, where the language has one
    strict: bool = False  # no comma is allowed before a closing bracket
    markup: str = ""  # tags count as brackets: "jsx" in code, "html"; "": there are none
    stub: str | None = None  # completes a signature, in place of a "{" or ":" at its end; None: no such members


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """All facts about one language.

    `line_ends` and `line_ends_inside` complete an unfinished line for the syntax check. OPERAND stands for an
    expression, "{indent}" for the indentation of the line.
    """

    name: str  # of the grammar, and of queries/NAME.scm
    grammar_module: str = ""  # Python module of the grammar; "": tree_sitter_NAME
    grammar_function: str = "language"  # the function of that module that returns the grammar
    aliases: tuple[str, ...] = ()  # LSP language ids and common names, besides `name`
    files: Mapping[str, str] = field(default_factory=dict)  # LSP language id -> suffixes, the usual one first
    indexed: str = ""  # suffixes of the files whose definitions are indexed
    family: str = ""  # name of the language whose definitions it uses and that uses its own; "": none
    rules: LexicalRules
    by_indentation: bool = False  # a blank line below a block still belongs to the block
    ascii_only: bool = False  # the grammar's scanner must be fed ASCII only
    strings_end_on_line: bool = False  # a "..." never spans lines
    has_preprocessor: bool = False  # #if ... #endif
    line_ends: tuple[str, ...] | None = None  # behind the closing brackets; None: as in C (C_ENDS and C_INSIDE)
    line_ends_inside: tuple[str, ...] = ()  # in front of the closing brackets


UNKNOWN_RULES = LexicalRules(string=r'"(?:\\.|[^"\\\n])*"', comment=r"^\s*(?:#|//|--|;|%)[^\n]*")  # any text
UNKNOWN_MARKUP = replace(UNKNOWN_RULES, block_comment=r"<!--.*?(?:-->|\Z)", markup="html")
MARKUP = frozenset(("vue", "svelte", "xml", "astro", "xsl", "handlebars", "django-html", "erb", "vue-html", "svg"))
OPERAND = "x"
C_ENDS = (";", "x;", " {}", " {};")
C_INSIDE = (";", "x;", ": x")

_QUOTES = LexicalRules().string
_C_QUOTES = r""""(?:\\.|[^"\\\n])*(?:"|$)|'(?:\\.[^'\n]{0,8}|[^'\\\n])'"""  # an apostrophe may be a Rust lifetime
_C = LexicalRules(
    comment=r"//[^\n]*",
    block_comment=r"/\*.*?(?:\*/|\Z)",
    string=_C_QUOTES,
    opens_here=_BRACKET + r"|[=-]>\s*$|^\s*(?:case\b.*|default|public|private|protected)\s*:\s*$",
    statement_end=";",
    stub=";",
)
_SCRIPT = replace(_C, string=_QUOTES, long_string=r"`(?:\\.|[^`\\])*(?:`|\Z)")
_TRIPLE = r'"""(?:\\.|[^\\])*?(?:"""|\Z)'
_HASH = r"(?<!\S)#[^\n]*"
_PYTHON_OPENS = (
    r"^\s*(?:(?:async\s+)?(?:def|for|with)|class|if|elif|else|while|try|except|finally|match|case)\b.*:\s*$"
    r"|" + _BRACKET
)
_RUBY_OPENS = _BRACKET + r"|\bdo\s*(?:\|[^|]*\|)?\s*$|\{\s*\|[^|]*\|\s*$"

LANGUAGES: tuple[Language, ...] = (
    Language(
        name="python",
        aliases=("py", "python3", "pyi", "starlark", "bazel"),
        files={"python": ".py .pyi"},
        indexed=".py .pyi",
        rules=LexicalRules(
            comment=r"#[^\n]*",
            long_string=_TRIPLE + r"|'''(?:\\.|[^\\])*?(?:'''|\Z)",
            opens_here=_PYTHON_OPENS,
            colon_opens=True,
            stub=": ...",
        ),
        by_indentation=True,
        strings_end_on_line=True,
        line_ends=(": pass", " x: pass", " in x: pass", "\n{indent}def x(): pass"),
        line_ends_inside=(": x", " in x"),
    ),
    Language(
        name="javascript",
        aliases=("javascriptreact", "js", "jsx", "mjs", "cjs", "node"),
        files={"javascript": ".js .cjs .mjs", "javascriptreact": ".jsx"},
        indexed=".js .jsx .mjs .cjs",
        rules=replace(_SCRIPT, stub=" {}", markup="jsx"),
        strings_end_on_line=True,
    ),
    Language(
        name="typescript",
        grammar_module="tree_sitter_typescript",
        grammar_function="language_typescript",
        aliases=("ts", "mts", "cts"),
        files={"typescript": ".ts .cts .mts"},
        indexed=".ts .mts .cts",
        family="javascript",
        rules=_SCRIPT,
        strings_end_on_line=True,
    ),
    Language(
        name="c",
        files={"c": ".c .h"},
        indexed=".c",
        rules=_C,
        strings_end_on_line=True,
        has_preprocessor=True,
    ),
    Language(
        name="cpp",
        aliases=("c++", "cxx", "cc", "hpp", "cuda-cpp"),
        files={"cpp": ".cpp .cc .cxx .hh .hpp"},
        indexed=".h .cc .cpp .cxx .hh .hpp .hxx .cu .cuh",
        family="c",
        rules=replace(_C, long_string=r'R"(?P<tag>[^(\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z)'),
        strings_end_on_line=True,
        has_preprocessor=True,
    ),
    Language(
        name="bash",
        aliases=("shellscript", "shell", "sh", "zsh", "ksh"),
        files={"shellscript": ".sh .bash"},
        indexed=".sh .bash",
        rules=LexicalRules(
            comment=_HASH,
            brackets=r"[\[\]{}]",  # a case has ")" alone
            opens_here=_BRACKET + r"|\b(?:then|do|else|in)\s*$|^\s*[^\s()]+\)\s*$",
            ends=r"(?:fi|done|esac)\b|;;",
            stub=" { :; }",
        ),
        ascii_only=True,  # tree-sitter-bash 0.25 passes any character to C's isalpha(): see parser.py
        line_ends=("\n:\nfi", "\n:\ndone", "; then\n:\nfi", "; do\n:\ndone", "\nesac", "\n;;\nesac", "\n:\n}"),
    ),
    Language(
        name="tsx",
        grammar_module="tree_sitter_typescript",
        grammar_function="language_tsx",
        aliases=("typescriptreact",),
        files={"typescriptreact": ".tsx"},
        indexed=".tsx",
        family="javascript",
        rules=replace(_SCRIPT, markup="jsx"),
        strings_end_on_line=True,
    ),
    Language(
        name="rust",
        aliases=("rs",),
        files={"rust": ".rs"},
        indexed=".rs",
        rules=replace(_C, long_string=r'r(?P<hashes>#+)".*?(?:"(?P=hashes)|\Z)', statement_end=""),  # it changes values
    ),
    Language(
        name="go",
        aliases=("golang",),
        files={"go": ".go"},
        indexed=".go",
        rules=replace(_C, long_string=r"`[^`]*(?:`|\Z)", statement_end="", stub=""),
        strings_end_on_line=True,
        line_ends=("{}", " {}", "\n}"),
    ),
    Language(
        name="java",
        files={"java": ".java"},
        indexed=".java",
        rules=replace(_C, long_string=_TRIPLE),
        strings_end_on_line=True,
    ),
    Language(
        name="c_sharp",
        aliases=("csharp", "cs", "c#"),
        files={"csharp": ".cs"},
        indexed=".cs",
        rules=replace(_C, long_string=_TRIPLE + r'|@"(?:""|[^"])*(?:"|\Z)'),
        strings_end_on_line=True,
    ),
    Language(
        name="php",
        grammar_function="language_php",
        files={"php": ".php"},
        indexed=".php",
        rules=replace(_C, comment=r"//[^\n]*|#(?!\[)[^\n]*", string=_QUOTES),
    ),
    Language(
        name="ruby",
        aliases=("rb",),
        files={"ruby": ".rb"},
        indexed=".rb",
        rules=LexicalRules(
            comment=_HASH,
            opens_here=_RUBY_OPENS + r"|\bthen\s*$",
            opens_below=_RUBY_OPENS
            + r"|^\s*(?:def|class|module|if|unless|while|until|for|case|begin|else|elsif|when|rescue|ensure)\b"
            r"(?!.*\bend\s*$)(?!.*\)\s*=\s)",
            ends=r"end\b",
            stub="; end",
        ),
        line_ends=("\nend", " x\nend", "\nend\nend"),
    ),
    Language(
        name="lua",
        files={"lua": ".lua"},
        indexed=".lua",
        rules=LexicalRules(
            comment=r"--(?!\[=*\[)[^\n]*",
            block_comment=r"--\[(?P<level>=*)\[.*?(?:\](?P=level)\]|\Z)",
            long_string=r"\[(?P<depth>=*)\[.*?(?:\](?P=depth)\]|\Z)",
            opens_here=_BRACKET + r"|\b(?:then|do|else|repeat)\s*$|\bfunction\b[^()]*\([^()]*\)\s*$",
            ends=r"(?:end|until)\b",
            stub=" end",
        ),
        strings_end_on_line=True,
        line_ends=("\nend", " then\nend", " x then\nend", " = x", "\nuntil x"),
    ),
    Language(
        name="css",
        files={"css": ".css"},
        rules=LexicalRules(block_comment=r"/\*.*?(?:\*/|\Z)", statement_end=";"),
        line_ends=("{}", ": 0;", " 0;", ";"),
    ),
    Language(
        name="html",
        aliases=("htm", "xhtml"),
        files={"html": ".html .htm"},
        rules=LexicalRules(
            block_comment=r"<!--.*?(?:-->|\Z)",
            string=r'"[^"<>\n]*"',
            opens_here=r"<(?!(?:br|hr|img|input|link|meta|area|base|col|embed|source|track|wbr)\b)[A-Za-z]"
            r"[^<>]*(?<!/)>\s*$|" + _BRACKET,
            ends=r"</",
            markup="html",
        ),
        line_ends=(),
    ),
    Language(
        name="json",
        aliases=("jsonc", "json5", "jsonl"),
        files={"json": ".json"},
        rules=LexicalRules(strict=True, comment=r"(?<![:\w])//[^\n]*", string=r'"(?:\\.|[^"\\\n])*(?:"|$)'),
        strings_end_on_line=True,
        line_ends=('"x": 0', ": 0", "0"),
        line_ends_inside=(": 0",),
    ),
    Language(
        name="yaml",
        aliases=("yml", "dockercompose", "github-actions-workflow", "ansible"),
        files={"yaml": ".yaml .yml"},
        rules=LexicalRules(
            comment=_HASH,
            string=r'"(?:\\.|[^"\\\n])*"',
            opens_here=r":\s*$|^\s*-\s*$|[|>][+-]?\s*$|" + _BRACKET,
        ),
        by_indentation=True,
        line_ends=(" x", ": 0"),
    ),
    Language(
        name="toml",
        files={"toml": ".toml"},
        rules=LexicalRules(
            comment=r"#[^\n]*", long_string=_TRIPLE + r"|'''.*?(?:'''|\Z)", opens_below=_BRACKET + r"|^\s*\[.*\]\s*$"
        ),
        line_ends=(" = 0", "0"),
    ),
)
BY_NAME: Mapping[str, Language] = MappingProxyType({language.name: language for language in LANGUAGES})
