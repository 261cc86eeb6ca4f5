"""Masks comments with spaces and the insides of strings with dots; every other character keeps its place."""

from __future__ import annotations

import re

FILL = "·"  # for a character inside a string: no part of a word, no bracket, no operator
_DOUBLE, _SINGLE = r'"(?:\\.|[^"\\\n])*"?', r"'(?:\\.|[^'\\\n])*'?"
_SLASHES = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_PATTERN = r"(?:(?<=[(,=:\[!&|?{};]\s)|(?<=[(,=:\[!]))/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/"
_CHARACTER = r"'(?:\\[^\n']*|[^\\'\n])'"  # and not Rust's 'lifetime
_LONG = r'"""(?:\\.|[^\\])*?(?:"""|\Z)' + r"|'''(?:\\.|[^\\])*?(?:'''|\Z)"
_RULES = {  # (comments, strings)
    "python": (r"\#[^\n]*", f"{_LONG}|{_DOUBLE}|{_SINGLE}"),
    "typescript": (_SLASHES, rf"{_DOUBLE}|{_SINGLE}|`(?:\\.|[^`\\])*(?:`|\Z)|{_PATTERN}"),
    "rust": (_SLASHES, rf'\br(?P<hashes>#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"?|{_CHARACTER}'),
    "go": (_SLASHES, rf"{_DOUBLE}|`[^`]*(?:`|\Z)|{_CHARACTER}"),
    "c": (_SLASHES, f"{_DOUBLE}|{_CHARACTER}"),
    "java": (_SLASHES, rf'""".*?"""|{_DOUBLE}|{_CHARACTER}'),
}
_SAME = {"typescriptreact": "typescript", "javascript": "typescript", "javascriptreact": "typescript", "cpp": "c"}
_COMPILED = {
    language: re.compile(f"(?P<comment>{comments})|(?P<string>{strings})", re.S)
    for language, (comments, strings) in _RULES.items()
}


def mask(text: str, language: str) -> str:
    """`text` with its comments and strings blanked; as long, and with the same lines."""
    rule = _COMPILED.get(_SAME.get(language, language))
    if rule is None:
        return text

    def blank(found: re.Match[str]) -> str:
        whole = found.group()
        if found.group("comment") is not None:
            return _blanks(whole, " ")
        return whole[0] + _blanks(whole[1:-1], FILL) + whole[-1] if len(whole) > 1 else whole

    return rule.sub(blank, text)


def _blanks(text: str, character: str) -> str:
    return "\n".join([character * len(line) for line in text.split("\n")])
