"""The parameters of a function after an argument was added to, removed from or moved in one of its calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from speclsp.lsp.next_edit.changes.calls import call_lists
from speclsp.lsp.next_edit.changes.calls.call_lists import Call, Changed, Item, Piece
from speclsp.lsp.next_edit.changes.calls.call_resolver import CallResolver
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.parser import is_reserved

LITERAL = re.compile(r"-?\d[\w.]*|\"[^\"\\\n]*\"|'[^'\\\n]*'|[Tt]rue|[Ff]alse|None|null|nil|nullptr")
RETURN_TYPE = re.compile(r"\)\s*->")
PATH = re.compile(r"(?:\w+(?:\.|->|::))*([^\W\d]\w*)")


def signature_pieces(resolver: CallResolver, change: Changed, function: Call, present: Sequence[Item]) -> list[Piece]:
    """The replacements in a list of parameters; none where they are not known. `present`: its parameters."""
    text, items = resolver.tree.text, function.items
    scopes = [scope for scope in resolver.tree.enclosing(function.end) if scope.kind == "function"]
    body = (function.end, scopes[-1].end) if scopes else (0, 0)
    is_grouped = BY_NAME[resolver.tree.grammar].type_mark == " " and any(" " not in item.text for item in items)
    if change.order:
        names = [path[1] if (path := PATH.fullmatch(item.text)) else "" for item in change.old]
        is_named = all(number == old or names[old] == present[old].name for number, old in enumerate(change.order))
        order = [*change.order, *range(len(names), len(present))] if is_named and not is_grouped else []
        return call_lists.moved(present, order)
    if change.removed >= 0:
        name = change.old[change.removed].name or present[change.removed].name
        is_used = not body[1] or re.search(rf"\b{name}\b", text[slice(*body)]) is not None
        places = [n for n, item in enumerate(items) if item.name == name and not is_used and not is_grouped]
        return call_lists.removed(function, places[0]) if places else []
    before = present if change.new[change.added].name else present[: change.added]
    behind = [item.start for item in present[len(before) :]]
    at = next((n for n, item in enumerate(items) if item.start in behind[:1]), len(items))
    name, parameter = parameter_text(resolver, change, function, at == len(items))
    inside = bindings.occurrences(resolver.tree, name, *body, resolver.recent.is_late)
    is_taken = any(other.is_definition for other in inside)
    if not parameter or is_taken or any(other.is_optional for other in before):
        return []
    return call_lists.inserted(text, function, at, parameter) if not is_grouped or at in (0, len(items)) else []


def parameter_text(resolver: CallResolver, change: Changed, function: Call, is_last: bool) -> tuple[str, str]:
    """(name, text) of the parameter for a new argument; no text if its name, or a type that it needs, is not known."""
    argument, grammar, text = change.new[change.added], resolver.tree.grammar, resolver.tree.text
    mark, path = BY_NAME[grammar].type_mark, PATH.fullmatch(argument.value)
    is_annotated = ":" in text[function.start : function.end] or RETURN_TYPE.match(text, function.end)
    name = argument.name or (path[1].lstrip("_") if path else "")
    if not name or name.isupper() or is_reserved(grammar, name) or LITERAL.fullmatch(name):
        return "", ""
    if BY_NAME[grammar].has_untyped_parameters and not is_annotated:
        return name, name
    variable = resolver.visible(argument.value, change.call) if path and path[1] == argument.value else None
    if variable is None:
        return "", ""
    for other in call_lists.calls_in(resolver.tree, variable.start, variable.end):
        for number, item in enumerate(other.items if other.is_function else ()):
            is_here = item.start <= variable.start < item.end and name == item.name
            if is_here and (typed := declared(other.items[number:], mark, is_last)):
                stars = ["*" in [star.text for star in items] for items in (other.items[:number], function.items)]
                return name, f"*, {typed}" if argument.name and stars == [True, False] else typed
    annotated = re.compile(r"\s*(:\s*[^=;\n]+?)\s*=(?!>)").match(text, variable.end)
    return name, name + annotated[1] if annotated else ""


def declared(items: Sequence[Item], mark: str, is_last: bool) -> str:
    """The first of some parameters with its type, and with its default if it is to be the last; "" without a type.

    `mark`: that of Language.type_mark.
    """
    text, name = items[0].value, items[0].name
    if mark == " " and mark not in text:  # `a, b int`
        text = next((f"{name} {item.text.partition(mark)[2]}" for item in items if mark in item.text), "")
    if (mark or " ") not in text:
        return ""
    text = items[0].text if is_last and mark == ":" else text
    return text[text.index(name) :] if mark else text
