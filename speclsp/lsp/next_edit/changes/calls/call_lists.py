"""Calls and functions with their lists of arguments and parameters, from the section `calls` of queries/*.scm.

Captures of a function: @name, @parameters and, for a method outside of its class, @owner. Of a call: @callee,
@arguments and @receiver. The lists are split by their text, so that the list before an edit is split the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.text_windows import common_ends
from speclsp.lsp.syntax.tree import SyntaxTree

SECTION = "calls"
MAX_LIST = 2000  # characters between the parentheses
MARK = re.compile(r"->|=>|[()\[\]{}<>,]")
CLOSERS = {"(": ")", "[": "]", "{": "}", "<": ">"}
TYPE_FIRST_NAME = re.compile(r"\(\s*[*^&]\s*(\w+)|(?=\w)(\w+)\s*(?:\[[^\]]*\]\s*)*$")
DEFAULT = re.compile(r"\s*=(?![=>])")
NOT_COUNTED = re.compile(r"\.\.\.|^\*\*?\w|\b(?:vararg|params)\b|^(?:this|ref|out|in) ")  # parameters
SPREAD = re.compile(r"^\*|^\.\.\.|\.\.\.$")  # in Python and Kotlin, in JavaScript, in Go
CONSTRUCTORS = ("__init__", "constructor")

Piece = tuple[int, int, str]  # start, end, new text


class Item(NamedTuple):
    """An argument or a parameter, at `[start, end)`."""

    start: int
    end: int
    text: str
    name: str = ""  # of a parameter, or of an argument by name
    value: str = ""  # of an argument; a parameter without its default
    is_optional: bool = False
    is_named_only: bool = False


class Call(NamedTuple):
    """A call, or a function. `start` and `end`: its list, without the parentheses."""

    name: str  # by which it is called
    at: int  # offset of the name, or of the word `constructor`
    start: int
    end: int
    items: Sequence[Item]
    is_function: bool
    owner: str  # a function's class, a call's receiver
    is_constructor: bool = False


class Changed(NamedTuple):
    """A list that was changed. `old` and `new`: its arguments or parameters."""

    call: Call
    old: Sequence[Item]
    new: Sequence[Item]
    added: int = -1  # index of the new item
    removed: int = -1  # index of the item that went
    order: Sequence[int] = ()  # of moved items: their old indices


def calls_in(tree: SyntaxTree, low: int, high: int, is_name: bool = False) -> Iterator[Call]:
    """The calls and functions whose lists touch `[low, high]`. `is_name`: those whose name begins at `low`."""
    text, grammar, view = tree.text, tree.grammar, tree.view
    first, last = map(view.byte_of, (low, high))
    for captures in tree.matches(SECTION, max(0, first - 1), last + 1):
        is_function = "parameters" in captures
        head, node = (captures[key][0] for key in (("name", "parameters") if is_function else ("callee", "arguments")))
        is_here = head.start_byte == first if is_name else node.start_byte < last and first < node.end_byte
        if not is_here or node.has_error or node.end_byte - node.start_byte > MAX_LIST:
            continue
        name, at, start = tree.node_text(head), view.to_document(head.start_byte), view.to_document(node.start_byte) + 1
        end = view.to_document(node.end_byte, end=True) - 1
        items = split(text[start : end + 1], grammar, is_function, start)
        arguments = [child for child in node.named_children if not child.type.endswith("comment")]
        has_lambda = BY_NAME[grammar].has_trailing_lambdas and text[end + 1 : end + 3].strip() == "{"
        if items is None or (not is_function and (has_lambda or len(items) != len(arguments))):
            continue
        owners = [*captures.get("owner", ()), *captures.get("receiver", ())]
        owner = tree.node_text(owners[0]) if owners else ""
        if is_function and not owner:
            scopes = [scope for scope in tree.enclosing(at) if (scope.name, scope.kind) != (name, "function")]
            owner = scopes[-1].name if scopes and scopes[-1].kind == "class" and scopes[-1].start < at else ""
        is_constructor = is_function and bool(owner) and (name in CONSTRUCTORS or name == owner)
        yield Call(owner if is_constructor else name, at, start, end, items, is_function, owner, is_constructor)


def split(piece: str, grammar: str, is_function: bool, base: int = 0) -> list[Item] | None:
    """The items of a list up to its closing parenthesis; None without one. `base`: the offset of the piece."""
    masked = list(piece)
    for token in lexical_rules.tokens(piece, lexical_rules.rules_of(grammar)):
        if token.kind != "bracket":
            masked[token.start : token.end] = (" " if "comment" in token.kind else "'") * (token.end - token.start)
    code, items, closers, low = "".join(masked), list[Item](), list[str](), 0
    for match in MARK.finditer(code):
        mark, written = match[0], code[low : match.start()]
        if mark in ("->", "=>") or (mark in "<>" and not is_function):
            continue
        if mark in CLOSERS:
            closers.append(CLOSERS[mark])
        elif closers and mark == closers[-1]:
            closers.pop()
        elif mark not in ",)" or (closers and mark == ")"):
            return None
        elif not closers:
            start, end = match.start() - len(written.lstrip()), low + len(written.rstrip())
            if start < end:
                items.append(_item(piece[start:end], base + start, grammar, is_function))
            if mark == ")":
                return items
            low = match.end()
    return None


def _item(text: str, start: int, grammar: str, is_function: bool) -> Item:
    language, end = BY_NAME[grammar], start + len(text)
    if not is_function:
        mark = language.argument_mark.strip()
        named = re.match(rf"(\w+)\s*{mark}(?!{mark})\s*", text) if mark else None
        return Item(start, end, text, named[1] if named else "", text[named.end() :] if named else text)
    declared = DEFAULT.split(text, maxsplit=1)[0]
    head = declared.partition(language.type_mark)[0] if language.type_mark else ""
    name = re.search(r"(\w+)\s*\??\s*$", head) if head else TYPE_FIRST_NAME.search(declared)
    is_optional = len(declared) < len(text) or re.match(r"[\w\s]*\?\s*:", declared) is not None
    return Item(start, end, text, (name[1] or name[name.re.groups]) if name else "", declared, is_optional)


def parameters(function: Call, items: Sequence[Item]) -> list[Item] | None:
    """The parameters that a call may give, with names of their own; None if their number is not fixed."""
    result, is_named_only = list[Item](), False
    for number, item in enumerate(items):
        is_self = item.name in (("self", "cls", "this") if function.owner else ("this",))
        is_named_only = is_named_only or item.text == "*"
        if (number == 0 and is_self) or item.text in ("*", "/", "void"):
            continue
        if NOT_COUNTED.search(item.text) or not item.name:
            return None
        result.append(item._replace(is_named_only=is_named_only))
    return result if len({item.name for item in result}) == len(result) else None


def positional(arguments: Sequence[Item]) -> int:
    """The number of arguments before the first one by name."""
    return next((n for n, item in enumerate(arguments) if item.name), len(arguments))


def fits(arguments: Sequence[Item], wanted: Sequence[Item]) -> bool:
    """True if the arguments are those of a function with these parameters."""
    count, names = positional(arguments), {item.name for item in wanted}
    filled = {item.name for item in (*wanted[:count], *arguments) if item.name}
    is_too_long = count > sum(not item.is_named_only for item in wanted)
    return not is_too_long and filled <= names and all(item.is_optional or item.name in filled for item in wanted)


# ── changes of a list ─────────────────────────────────────────────────────────────────────────────────────────────────


def difference(call: Call, old: Sequence[Item], new: Sequence[Item]) -> Changed | None:
    """The change of a list; None unless one item was added or removed, or all have another order."""
    before, after = ([item.name or item.text for item in items] for items in (old, new))
    head, tail = common_ends(before, after)
    if len(old) == len(new):
        is_moved = before != after and sorted(before) == sorted(after) and len({*before}) == len(before)
        return Changed(call, old, new, order=[before.index(item) for item in after]) if is_moved else None
    if abs(len(old) - len(new)) != 1 or head + tail != min(len(old), len(new)):
        return None
    return Changed(call, old, new, added=head) if len(new) > len(old) else Changed(call, old, new, removed=head)


def inserted(text: str, call: Call, at: int, item: str) -> list[Piece]:
    """The insertion of an item, in the style of its list; none where a comment is in the way."""
    items = call.items
    if not items:
        return [(call.start, call.start, item)] if not text[call.start : call.end].strip() else []
    blanks = text[items[-2].end : items[-1].start] if len(items) > 1 else ", "
    if len(items) == 1 and "\n" in text[call.start : items[0].start]:
        blanks = "," + text[call.start : items[0].start]
    is_last, rest = at >= len(items), text[items[-1].end : call.end].strip()
    if blanks.strip() != "," or (is_last and rest not in ("", ",")):
        return []
    return (
        [(items[-1].end, items[-1].end, blanks + item)]
        if is_last
        else [(items[at].start, items[at].start, item + blanks)]
    )


def removed(call: Call, at: int) -> list[Piece]:
    """The removal of an item and its comma."""
    items = call.items
    if at + 1 < len(items):
        return [(items[at].start, items[at + 1].start, "")]
    return [(items[at - 1].end if at else call.start, items[at].end if at else call.end, "")]


def moved(items: Sequence[Item], order: Sequence[int]) -> list[Piece]:
    """The replacements that give the first items another order; none if others would have to move too."""
    if {*order} != {*range(len(order))}:
        return []
    return [(items[n].start, items[n].end, items[old].text) for n, old in enumerate(order) if n != old]
