"""Parameters of functions: the name of their function, and their names in its documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speclsp.lsp.syntax.bindings import FUNCTION, FUNCTIONS, NameScope, Occurrence
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.languages.keywords import function, function_header
from speclsp.lsp.syntax.tree import SyntaxTree

MAX_DOCUMENTATION = 2000  # characters of a function, and above it, that are searched for its documentation
ASSIGNED_FUNCTION = re.compile(r"(\w+)\s*(?::[^=\n]*)?=\s*(?:\w+\(\s*)?(?:async\s+)?\Z")
MAX_HEADER = 300  # characters before a function in which it is assigned to a name
DOCUMENTED = (  # a parameter in a documentation comment: `:param width:`, `@param {{number}} width`, `width (int): ...`
    r"(?m)(?:(?::param\s+(?:\w+\s+)?|@param\s+(?:\{{[^}}\n]*\}}\s+)?\[?){name}"
    r"|^[ \t]*{name}(?=[ \t]?(?:\([^)\n]*\))?[ \t]?:))\b"
)
BETWEEN = re.compile(r"\s*(?:export\s+|default\s+|async\s+)*")  # a documentation comment and its function


def is_parameter(definition: Occurrence, scope: NameScope, text: str) -> bool:
    """True for a definition before the body of its function, whose scope this is."""
    is_local = FUNCTION in definition.roles or definition.after >= 0 or ":\n" in text[scope.start : definition.start]
    return scope.kind in FUNCTIONS and not is_local


def documented(tree: SyntaxTree, name: str, scope: NameScope) -> Iterator[Occurrence]:
    """A parameter's name in the documentation of its function, whose scope this is."""
    if scope.kind not in FUNCTIONS:
        return
    text = tree.text
    low, high = max(0, scope.start - MAX_DOCUMENTATION), min(scope.end, scope.start + MAX_DOCUMENTATION)
    above = text.rfind("/**", low, scope.start)
    is_its_own = above >= 0 and BETWEEN.fullmatch(text, text.find("*/", above) + 2, scope.start)
    pattern = re.compile(DOCUMENTED.format(name=re.escape(name)))
    for match in pattern.finditer(text, above if is_its_own else scope.start, high):
        if tree.kind_at(match.end() - 1) in ("comment", "string"):
            yield Occurrence(match.end() - len(name), match.end(), frozenset(), ())


def callee(tree: SyntaxTree, scope: NameScope) -> str:
    """The name by which the function of a scope is called; "" if another function of the document has it too."""
    words = BY_NAME[tree.grammar].keywords
    match = function_header(words).match(tree.text, scope.start, scope.end) or ASSIGNED_FUNCTION.search(
        tree.text, max(0, scope.start - MAX_HEADER), scope.start
    )
    if match is None:
        return ""
    if match[1] == "__init__":
        return class_at(tree, match.start(1))
    return match[1] if len(function(words, match[1]).findall(tree.text)) < 2 else ""


def class_at(tree: SyntaxTree, offset: int) -> str:
    """The name of the class around an offset; "" for none."""
    return next((scope.name for scope in reversed(tree.enclosing(offset)) if scope.kind == "class"), "")
