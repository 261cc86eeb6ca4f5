"""Examples of small files: one function of a release, its imports, and another author's spaces and quotes.

    file ─► function, with the imports it uses ─► restyled ─► cuts of fill_examples.py in its body, no other files

Released code is formatted, mostly by one formatter. A model that learns from nothing else writes that style into any
file. Here the same function has other spaces, quotes and brackets, and so has its answer: the file decides.
"""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath

from models.training.fill_examples import Cut, cut_at

BODY_LINES = 2, 40
PER_FUNCTION = 2
SHARES = {"line": 70, "end": 15, "block": 15}
STARTS = (1, 0)  # half the lines are completed from their indentation, half from their beginning
UNWRITTEN = 0.1  # share of cuts below which the rest of the block is not written
RATES = (0.0, 0.0, 0.0, 0.5, 1.0)  # of the places where a change of style applies, drawn for each change and function
TIGHT = frozenset(("+", "-", "*", "/", "//", "%", "**", "<", ">", "==", "!=", "<=", ">=", "=", "+=", "-=", "*=", ":="))
BUDGET = (400, 128, 0)  # tokens of the prompt: prefix, suffix, other files


def functions(text: str) -> Iterator[tuple[str, str]]:
    """(name, file with this function alone) of the functions of a Python file, in their order."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = text.split("\n")
    imports = [node for node in module.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    low, high = BODY_LINES
    for node in module.body:
        if not isinstance(node, ast.FunctionDef) or not low <= (node.end_lineno or 0) - node.lineno <= high:
            continue
        source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        used = [
            ast.unparse(statement)
            for statement in imports
            if any(
                re.search(rf"\b{re.escape((alias.asname or alias.name).split('.')[0])}\b", source)
                for alias in statement.names
            )
        ]
        head = "\n".join(used) + "\n\n\n" if used else ""
        yield node.name, f"{head}{source}\n"


def restyled(text: str, draw: random.Random) -> str:
    """The same program with other spaces, quotes and brackets; `text` itself where a change would alter it."""
    tight, commas, quotes, brackets = (draw.choice(RATES) for _ in range(4))
    lines = text.split("\n")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        for token in reversed(tokens):  # the end first, so that positions before it stay true
            (row, column), (end_row, end) = token.start, token.end
            line, written = lines[row - 1], token.string
            if row != end_row:
                continue
            if written in TIGHT and line[column - 1 : column] == " " == line[end : end + 1] and draw.random() < tight:
                if line[:column].strip() and line[end:].strip():
                    lines[row - 1] = line[:column].rstrip() + written + line[end:].lstrip()
            elif written == "," and line[end : end + 1] == " " and draw.random() < commas:
                lines[row - 1] = line[:end] + line[end:].lstrip()
            elif token.type == tokenize.STRING and draw.random() < quotes:
                lines[row - 1] = line[:column] + other_quotes(written) + line[end:]
            elif written in ("if", "while", "return", "elif") and draw.random() < brackets / 2:
                lines[row - 1] = bracketed(line, written)
        changed = "\n".join(lines)
        return changed if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text)) else text
    except (SyntaxError, tokenize.TokenError, ValueError):
        return text


def other_quotes(literal: str) -> str:
    """A short string in the other kind of quotes, where that needs no escape."""
    inner, quote = literal[1:-1], literal[0]
    if quote not in "'\"" or literal[:3] in ('"""', "'''") or re.search(r"['\"\\]", inner):
        return literal
    other = "'" if quote == '"' else '"'
    return f"{other}{inner}{other}"


def bracketed(line: str, keyword: str) -> str:
    """`if x:` as `if (x):`, and the same for `while`, `elif` and `return`, where the line is nothing else."""
    colon = "" if keyword == "return" else ":"
    match = re.fullmatch(rf"(\s*{keyword} )([^(#].*?){colon}", line)
    return f"{match[1]}({match[2]}){colon}" if match else line


def cuts(path: str, text: str, draw: random.Random) -> Iterator[tuple[str, Cut]]:
    """(path, cut) of the functions of a file: at most PER_FUNCTION of each."""
    for name, alone in functions(text):
        styled = restyled(alone, draw)
        lines = styled.split("\n")
        first = first_row(styled)
        rows = [row for row in range(first, len(lines)) if lines[row].strip()]
        named = draw.choice((f"{name}.py", "main.py", "script.py", PurePosixPath(path).name))
        for row in draw.sample(rows, min(PER_FUNCTION, len(rows))):
            cut = cut_at(lines, row, draw, SHARES, STARTS, UNWRITTEN)
            if cut is not None:
                yield named, cut


def first_row(text: str) -> int:
    """The row below the function's first line and its docstring."""
    function = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
    return function.body[has_docstring].lineno - 1
