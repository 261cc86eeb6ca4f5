"""The parameters of a function after an argument was added to, removed from or moved in one of its calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from speclsp.lsp.next_edit.changes.calls import call_lists
from speclsp.lsp.next_edit.changes.calls.call_lists import Call, Changed, Item, Piece
from speclsp.lsp.next_edit.changes.calls.call_resolver import CallResolver
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.parser import is_reserved
from speclsp.lsp.syntax.text_windows import line_at

LITERAL = re.compile(r"-?\d[\w.]*|\"[^\"\\\n]*\"|'[^'\\\n]*'|[Tt]rue|[Ff]alse|None|null|nil|nullptr")
PATH = re.compile(r"(?:\w+(?:\.|->|::))*([^\W\d]\w*)")
RETURN_TYPE = re.compile(r"\)\s*->")
TYPES = {  # of an integer, a number with a point, a string and a truth value
    "python": ("int", "float", "str", "bool"),
    "typescript": ("number", "number", "string", "boolean"),
    "tsx": ("number", "number", "string", "boolean"),
    "go": ("int", "float64", "string", "bool"),
    "rust": ("", "f64", "&str", "bool"),
    "java": ("int", "double", "String", "boolean"),
    "c_sharp": ("int", "double", "string", "bool"),
    "kotlin": ("Int", "Double", "String", "Boolean"),
    "cpp": ("int", "double", "", "bool"),
}
LITERALS = [re.compile(pattern) for pattern in (r"-?\d+", r"-?\d+\.\d+", r"\"[^\"]*\"|'[^']*'", r"[Tt]rue|[Ff]alse")]


def signature_pieces(resolver: CallResolver, change: Changed, function: Call, present: Sequence[Item]) -> list[Piece]:
    """The replacements in a list of parameters; none where they are not known. `present`: its parameters."""
    text, items = resolver.tree.text, function.items
    scopes = [scope for scope in resolver.tree.enclosing(function.end) if scope.kind == "function"]
    body = (function.end, scopes[-1].end) if scopes else (0, 0)
    is_grouped = resolver.tree.grammar == "go" and any(" " not in item.text for item in items)  # `a, b int`
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
    is_annotated = any(":" in item.text for item in present) or RETURN_TYPE.match(text, function.end) is not None
    is_untyped = resolver.tree.grammar == "javascript" or (resolver.tree.grammar == "python" and not is_annotated)
    name, parameter = parameter_text(resolver, change, is_untyped, at == len(items))
    inside = bindings.occurrences(resolver.tree, name, *body, resolver.recent.is_late)
    is_taken = any(other.is_definition for other in inside)
    if not parameter or is_taken or any(other.is_optional for other in before):
        return []
    return call_lists.inserted(text, function, at, parameter) if not is_grouped or at in (0, len(items)) else []


def parameter_text(resolver: CallResolver, change: Changed, is_untyped: bool, is_last: bool) -> tuple[str, str]:
    """(name, text) of the parameter for a new argument; no text if its name, or a type that it needs, is not known."""
    argument, grammar = change.new[change.added], resolver.tree.grammar
    path = PATH.fullmatch(argument.value)
    name = argument.name or (path[1].lstrip("_") if path else "")
    if not name or name.isupper() or is_reserved(grammar, name) or LITERAL.fullmatch(name):
        return "", ""
    if is_untyped:
        return name, name
    value, type_name = argument.value, ""
    variable = resolver.visible(value, change.call) if path and path[1] == value else None
    if variable is not None:
        for function in call_lists.calls_in(resolver.tree, variable.start, variable.end):
            for number, item in enumerate(function.items if function.is_function else ()):
                is_here = item.start <= variable.start < item.end and name == item.name
                if is_here and (typed := declared(function.items[number:], grammar, is_last)):
                    return name, typed
        pattern = rf"(?<!\w){re.escape(value)}\s*(?::\s*([^=;\n]+?)\s*)?:?=(?![=>])\s*([^;\n]+?)\s*;?$"
        assigned = re.search(pattern, line_at(resolver.tree.text, variable.start))
        type_name, value = (assigned[1] or "", assigned[2]) if assigned else ("", value)
    kinds = zip(LITERALS, TYPES.get(grammar, ()), strict=False)
    type_name = type_name or next((kind for pattern, kind in kinds if pattern.fullmatch(value)), "")
    form = "{0}: {1}" if grammar in call_lists.NAME_FIRST else "{0} {1}" if grammar == "go" else "{1} {0}"
    return name, form.format(name, type_name) if type_name else ""


def declared(items: Sequence[Item], grammar: str, is_last: bool) -> str:
    """The first of some parameters with its type, and with its default if it is to be the last; "" without a type."""
    item = items[0]
    if grammar == "go":  # `a, b int`
        kind = next((other.text.split(maxsplit=1)[1] for other in items if " " in other.text), "")
        return f"{item.name} {kind}" if kind else ""
    if grammar in call_lists.NAME_FIRST:
        text = item.text if is_last else item.value
        return text[text.index(item.name) :] if ":" in item.value else ""
    return item.value if " " in item.value else ""
