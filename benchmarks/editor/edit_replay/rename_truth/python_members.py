"""Members of Python classes that annotate them, with each use whose object's class the file proves.

An object's class is proven by `self`, by the annotation of a parameter or variable, or by its one assignment from the
class. A member is left out where another object with an attribute of its name could be of the class.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from benchmarks.editor.edit_replay.rename_truth.definition import MEMBER, Definition, Use
from benchmarks.editor.edit_replay.rename_truth.python_places import Key, Keyword, Places

RECORDS = {"BaseModel", "NamedTuple"}  # bases whose constructor has the members as keyword arguments
COPIES = {"replace", "_replace", "model_copy", "evolve", "__init__"}  # their keyword arguments are of unknown classes


def members(
    places: Places, is_known: Callable[[str], bool], others: Callable[[Key], list[int]]
) -> Iterator[Definition]:
    """The annotated members of the classes of a module."""
    inherited = {getattr(base, "id", "") for node in places.classes for base in node.bases}
    for key, bound in list(places.bound.items()):
        table, name = places.tables[key[0]], key[1]
        nodes = [node for node in places.classes if node.name == table.get_name()]
        if table.get_type() != "class" or len(nodes) != 1 or len(bound) != 1 or not is_known(name):
            continue
        node, bases = nodes[0], {getattr(base, "id", "?") for base in nodes[0].bases}
        is_member = any(
            isinstance(part, ast.AnnAssign) and getattr(part.target, "id", "") == name for part in node.body
        )
        if is_member and bases <= RECORDS and node.name not in inherited:
            uses = uses_of(places, node, name, bool(bases) or "dataclass" in map(called, node.decorator_list))
            if uses is not None:
                of_body = places.owned[key]
                yield Definition.of(MEMBER, name, bound[0][0], map(Use, [*of_body, *uses]), (), others(key))


def uses_of(places: Places, node: ast.ClassDef, name: str, is_record: bool) -> list[int] | None:
    """The places of a member outside of its class body; None if an object of unknown class has such a member."""
    classes, uses = {other.name for other in places.classes}, []
    for start, access, of_class in places.attributes[name]:
        is_self = getattr(access.value, "id", "") in ("self", "cls") and of_class is not None
        owner = of_class.name if is_self and of_class is not None else class_of(places, start, access.value)
        if owner not in classes:
            return None
        uses += [start] if owner == node.name else []
    for keyword in places.keywords[name]:
        if called(keyword.call) in COPIES:
            return None
        uses += [keyword.start] if is_record and is_own(keyword, node) else []
    return uses


def is_own(keyword: Keyword, node: ast.ClassDef) -> bool:
    """True if a keyword argument is of a constructor's call."""
    name = getattr(keyword.call.func, "id", "")
    return name == node.name or (name == "cls" and keyword.of_class is node)


def class_of(places: Places, start: int, value: ast.expr) -> str:
    """The name of an object's class; "" if it is not proven. `start`: of the attribute that is read from it."""
    key = places.receivers.get(start)
    if key is None or len(places.bound[key]) != 1 or len(places.typed[key]) != 1:
        return called(value) if isinstance(value, ast.Call) else ""
    return called(places.typed[key][0])


def called(expression: ast.expr) -> str:
    """The name of a class or function in an annotation, a decorator or a call; "" if there is no one name."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return expression.value if expression.value.isidentifier() else ""
    if isinstance(expression, ast.BinOp) and getattr(expression.right, "value", "") is None:
        return called(expression.left)
    if isinstance(expression, ast.Subscript) and called(expression.value) == "Optional":
        return called(expression.slice)
    if isinstance(expression, ast.Call):
        return called(expression.func)
    return getattr(expression, "id", getattr(expression, "attr", ""))
