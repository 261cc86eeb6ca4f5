"""Languages of data and pages: CSS, HTML, JSON, YAML, TOML and SQL."""

from __future__ import annotations

import re
from itertools import islice

from speclsp.lsp.syntax.languages.record import BRACKET, HASH, TRIPLE, Language, LexicalRules

_MAX_DOCUMENTS = 1000
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_DOCUMENT = re.compile(r"(?:^|[\r\n])(?:---|\.\.\.)")
_INDICATOR = re.compile(r"[-?:](?=\s|$)")


def _nests_deeply(text: str) -> bool:
    """True if YAML may nest more than 200 levels deep, or holds a thousand documents.

    At about 256 levels the grammar's scanner overruns its buffer and the process dies. Each level takes a column, or an
    indicator on the line. The time of a query is quadratic in the number of documents.
    """
    if sum(1 for _ in islice(_DOCUMENT.finditer(text), _MAX_DOCUMENTS)) == _MAX_DOCUMENTS:
        return True
    for line in _LINE_BREAK.split(text):
        if len(line) - len(line.lstrip(" \t")) > 80 or len(_INDICATOR.findall(line)) > 24:
            return True
    return False


CSS = Language(
    name="css",
    files={"css": ".css"},
    rules=LexicalRules(block_comment=r"/\*.*?(?:\*/|\Z)", statement_end=";"),
    is_data=True,
    line_ends=("{}", ": 0;", " 0;", ";"),
)
HTML = Language(
    name="html",
    aliases=("htm", "xhtml"),
    files={"html": ".html .htm"},
    header_is_body=True,
    rules=LexicalRules(
        block_comment=r"<!--.*?(?:-->|\Z)",
        string=r'"[^"<>\n]*"',
        opens_here=r"<(?!(?:br|hr|img|input|link|meta|area|base|col|embed|source|track|wbr)\b)[A-Za-z]"
        r"[^<>]*(?<!/)>\s*$|" + BRACKET,
        ends=r"</",
        markup="page",
    ),
    is_data=True,
    line_ends=(),
)
JSON = Language(
    name="json",
    aliases=("jsonc", "json5", "jsonl"),
    files={"json": ".json"},
    rules=LexicalRules(strict=True, comment=r"(?<![:\w])//[^\n]*", string=r'"(?:\\.|[^"\\\n])*(?:"|$)'),
    strings_end_on_line=True,
    is_data=True,
    line_ends=('"x": 0', ": 0", "0"),
    line_ends_inside=(": 0",),
)
YAML = Language(
    name="yaml",
    aliases=("yml", "dockercompose", "github-actions-workflow", "ansible"),
    files={"yaml": ".yaml .yml"},
    is_dangerous=_nests_deeply,
    rules=LexicalRules(
        comment=HASH, string=r'"(?:\\.|[^"\\\n])*"', opens_here=r":\s*$|^\s*-\s*$|[|>][+-]?\s*$|" + BRACKET
    ),
    by_indentation=True,
    is_data=True,
    line_ends=(" x", ": 0"),
)
TOML = Language(
    name="toml",
    files={"toml": ".toml"},
    rules=LexicalRules(
        comment=r"#[^\n]*", long_string=TRIPLE + r"|'''.*?(?:'''|\Z)", opens_below=BRACKET + r"|^\s*\[.*\]\s*$"
    ),
    is_data=True,
    line_ends=(" = 0", "0"),
)
SQL = Language(
    name="sql",
    aliases=("mysql", "pgsql", "plsql"),
    files={"sql": ".sql"},
    has_dialects=True,
    rules=LexicalRules(
        comment=r"--[^\n]*",
        block_comment=r"/\*.*?(?:\*/|\Z)",
        opens_here=BRACKET + r"|(?i:\b(?:begin|then|else|loop)\s*$)",
        ends=r"(?i:end\b)",
        statement_end=";",
    ),
    indexed=".sql",
)
