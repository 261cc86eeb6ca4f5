"""Calls that an `await` is missing at, and functions that await and are not `async`.

A call is awaited if its callee is one that the user has put an `await` at, or an `async` function of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.tree import SyntaxTree

MAX_CALLS = 24
MAX_HEADER = 600  # characters
AWAITED = re.compile(r"\bawait\s+([\w$.]+)\(|([\w:.]+)\((?:[^()]|\([^()]*\))*\)\.await\b")
ASYNC = re.compile(
    r"\basync\s+(?:def|function|fn)\s+(\w+)\s*\((\s*&?(?:mut )?self)?|\b(?:const|let)\s+(\w+)\s*=\s*async\b"
    r"|(?m:^\s+(?:static )?async\s+(\w+)\()"
)
MODIFIERS = re.compile(
    r"(?:(?:pub(?:\([\w ]+\))?|export|default|public|private|protected|internal|static|override)\s+)*"
)
NEVER_ASYNC = re.compile(r"(?:constructor|get|set|lambda)\b|[^(]*\b__\w+__\(|[^(]*[^\w>(]\(|\(")
DECLARES = re.compile(r"\b(?:await|async|def|function|fn|new|void)\s+\Z")


def async_functions(recent: Recent) -> Iterator[str]:
    """The callees that call the async functions of the file."""
    for function, own, variable, method in ASYNC.findall(recent.text[recent.low : recent.high]):
        yield f"this.{method}" if method else f"self.{function}" if own else function or variable


def awaited_callees(recent: Recent) -> set[str]:
    """The callees whose calls are awaited."""
    lines = "\n".join(change.new for change in recent.changes)
    return {name for match in AWAITED.finditer(lines) for name in match.groups() if name} | {*async_functions(recent)}


def function_around(tree: SyntaxTree, offset: int) -> int | None:
    """The start of the innermost function around an offset."""
    byte = tree.view.to_byte(tree.view.to_view(offset))
    nodes = (
        node
        for captures in tree.matches(bindings.SECTION, byte, byte + 1)
        for kind in bindings.FUNCTIONS
        for node in captures.get(kind, ())
        if bindings.surrounds(node, byte, byte + 1)
    )
    innermost = min(nodes, key=lambda node: node.end_byte - node.start_byte, default=None)
    return tree.view.to_document(innermost.start_byte) if innermost is not None else None


def header(text: str, start: int | None) -> str:
    """A function's text up to its body."""
    return re.split(r"\{|=>|:\s*\n", text[start : start + MAX_HEADER], maxsplit=1)[0] if start is not None else ""


def may_await(recent: Recent, tree: SyntaxTree, offset: int) -> bool:
    """True if an offset is in an async function, behind no `await` and at no declaration."""
    is_async = re.search(r"\basync\b", header(recent.text, function_around(tree, offset)))
    return is_async is not None and DECLARES.search(recent.text, max(0, offset - 20), offset) is None


def missing_async(recent: Recent, tree: SyntaxTree, callees: Sequence[str]) -> Iterator[str]:
    """The first words, up to the bracket, of the functions that await and are not async."""
    names = "".join(rf"|(?<![\w$.]){re.escape(callee)}\(" for callee in callees)
    calls = [match.start() for match in re.finditer(rf"\bawait\b{names}", recent.text[recent.low : recent.high])]
    for at in sorted(calls, key=lambda at: abs(recent.low + at - recent.cursor))[:MAX_CALLS]:
        if recent.is_late():
            return
        head = header(recent.text, function_around(tree, recent.low + at))
        rest = MODIFIERS.sub("", head, count=1)
        if "(" in rest and "async" not in head and not NEVER_ASYNC.match(rest):
            yield rest[: rest.index("(") + 1]
