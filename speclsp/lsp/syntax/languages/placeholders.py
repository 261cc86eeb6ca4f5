"""Names in placeholders of strings, where a grammar has no node for them: Rust's `"{name}"`, Kotlin's `"$name"`."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_MACRO = 60  # characters before a macro's arguments that are searched for its name
_MACRO = re.compile(
    r"\b(?:format|format_args|e?print|e?println|write|writeln|panic|todo|unimplemented|unreachable"
    r"|(?:debug_)?assert(?P<pair>_eq|_ne)?|log|trace|debug|info|warn|error|event|anyhow|bail|ensure)!\s*\Z"
)
_TOKEN = re.compile(
    r"(?s)(?P<raw>b?r(?P<hashes>\#*)\".*?\"(?P=hashes))|b?\"(?:\\.|[^\"\\])*\"|'(?:\\[^']+'|[^\\']')|//[^\n]*|/\*.*?\*/"
    r"|(?P<bracket>[(\[{}\])])|(?P<comma>,)"
)
_LITERAL = re.compile(r'\s*(?:r(?P<hashes>#*)".*"(?P=hashes)|".*")\s*', re.DOTALL)
_NAMED = re.compile(r"\s*(\w+)\s*=(?!=)")
_NAME = r"([^\W\d]\w*)"
_FORMAT = re.compile(
    rf"\{{\{{|\{{(?:{_NAME}|\d*)\s*"
    rf"(?::(?:.?[<^>])?[-+]?#?0?(?:{_NAME}\$|\d+\$?)?(?:\.(?:{_NAME}\$|\d+\$?|\*))?(?:[xX]?\?|\w*)\s*)?\}}"
)
_ESCAPED = re.compile(rf"(?s)\\u\{{\w*\}}|\\.|{_FORMAT.pattern}")
_TEMPLATE = re.compile(rf"(?s)\\.|\$`?{_NAME}")


def rust(text: str, start: int, end: int) -> Iterator[int]:
    """The names in the format string of a macro with the arguments `text[start:end]`, without named arguments."""
    macro = _MACRO.search(text, max(0, start - MAX_MACRO), start)
    if macro is None:
        return
    arguments = list(_arguments(text, start + 1, end - 1))
    own = {match[1] for first, last in arguments if (match := _NAMED.match(text, first, last))}
    for first, last in arguments[2 if macro["pair"] else 0 :]:
        literal = _LITERAL.fullmatch(text, first, last)
        if literal is not None:
            pattern = _ESCAPED if literal["hashes"] is None else _FORMAT
            yield from (at for at, name in _names(pattern, text, first, last) if name not in own)
            return


def _arguments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The arguments between the commas of `text[start:end]`."""
    depth, first = 0, start
    for token in _TOKEN.finditer(text, start, end):
        if token["bracket"]:
            depth += 1 if token["bracket"] in "([{" else -1
        elif token["comma"] and not depth:
            yield first, token.start()
            first = token.end()
    yield first, end


def kotlin(text: str, start: int, end: int) -> Iterator[int]:
    """The names in the string `text[start:end]`."""
    yield from (at for at, _ in _names(_TEMPLATE, text, start, end))


def _names(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """(offset, name) of the groups of each match."""
    for match in pattern.finditer(text, start, end):
        yield from ((match.start(group), match[group]) for group in range(1, pattern.groups + 1) if match[group])
