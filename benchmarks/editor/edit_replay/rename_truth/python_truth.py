"""Definitions and uses in Python: scopes by the standard library's `symtable`, places by `ast`.

A name is left out where a token of it has no place in the tree that this module knows, as in a `match` pattern, or
where a keyword argument may or may not be of the function that is renamed.
"""

from __future__ import annotations

import ast
import io
import re
import symtable
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.editor.edit_replay.rename_truth.definition import Definition, Use
from benchmarks.editor.edit_replay.rename_truth.python_members import members
from benchmarks.editor.edit_replay.rename_truth.python_places import Function, Key, Places, Walk

DOCUMENTED = r"(?:`|:param(?:eter)?\s(?:[^:\n]*\s)?|:type\s+|@param\s+|^[ \t]*\*{{0,2}})({name})(?=`|[ \t]*[:(])"


def definitions(text: str) -> list[Definition]:
    """Every definition of a file whose uses are known; none of a file that does not parse."""
    try:
        tree, top = ast.parse(text), symtable.symtable(text, "file", "exec")
        walk = Walk(text, top)
        walk.visit(tree)
        tokens = defaultdict[str, set[int]](set)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            tokens[token.string].add(walk.starts[token.start[0] - 1] + token.start[1] if token.string else 0)
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError):
        return []
    file = File(text, walk.places, tokens)
    found = [*file.parameters_and_locals(), *file.top_level(), *file.fields()]
    found += members(walk.places, file.is_known, file.others)
    return sorted(found, key=lambda item: item.start)


@dataclass(slots=True)
class File:
    """The places of a file, read as definitions."""

    text: str
    places: Places
    tokens: Mapping[str, set[int]]  # their places

    def is_known(self, name: str) -> bool:
        """True if the place of every token of a name is known."""
        known = {start for key, starts in self.places.owned.items() if key[1] == name for start in starts}
        known |= {start for start, _, _ in self.places.attributes[name]}
        known |= {keyword.start for keyword in self.places.keywords[name]}
        unknown = len(self.tokens.get(name, set()) - known) - self.places.in_paths[name]
        return name not in self.places.unknown and not name.startswith("__") and unknown == 0

    def others(self, key: Key) -> list[int]:
        """The first places of variables of this name in other scopes."""
        name = key[1]
        return [min(starts)[0] for other, starts in self.places.bound.items() if other[1] == name and other != key]

    def parameters_and_locals(self) -> Iterator[Definition]:
        """Parameters, with keyword arguments of calls in this file, and local variables."""
        functions = {function.table.get_id(): function for function in self.places.functions}
        for key, bound in list(self.places.bound.items()):
            table, (start, kind), name = self.places.tables[key[0]], min(bound), key[1]
            kinds = {other for _, other in bound}
            if table.get_type() != "function" or name in ("self", "cls", "_") or not self.is_known(name):
                continue
            if start != min(self.places.owned[key]) or kinds & {"function", "class", "import"}:
                continue
            uses = {Use(place) for place in self.places.owned[key]}
            if kind == "variable" and key[0] in functions:
                yield Definition.of("local", name, start, uses, (), self.others(key))
            elif kind == "parameter" and (function := functions.get(key[0])) is not None:
                keywords = self.keywords_of(function, name)
                if keywords is not None:
                    uses |= {Use(place) for place in keywords}
                    yield Definition.of(
                        "parameter", name, start, uses, self.documented(function, name), self.others(key)
                    )

    def keywords_of(self, function: Function, name: str) -> list[int] | None:
        """The keyword arguments of calls of a function; None if it is not known of one whether it is."""
        node, of_class = function.node, function.of_class
        if any(re.search(rf"\b{name}\b", ast.unparse(decorator)) for decorator in node.decorator_list):
            return None
        if of_class is not None and sum(getattr(part, "name", "") == node.name for part in of_class.body) > 1:
            return None
        if of_class is None and len(self.places.bound[function.key]) > 1:
            return None
        is_constructor = of_class is not None and node.name == "__init__"
        target = function.class_key if is_constructor else function.key
        own = of_class.name if is_constructor and of_class is not None else node.name
        uses = []
        for keyword in self.places.keywords[name]:
            callee = keyword.call.func
            called = getattr(callee, "id", getattr(callee, "attr", ""))
            is_self = isinstance(callee, ast.Attribute) and getattr(callee.value, "id", "") in ("self", "cls")
            is_plain = keyword.owner is not None and (of_class is None or is_constructor)
            is_own = is_plain and target is not None and keyword.owner == target and len(self.places.bound[target]) == 1
            is_of_self = called == own and of_class is not None and is_self and keyword.of_class is of_class
            if is_own or is_of_self:
                uses.append(keyword.start)
            elif called in (own, "partial", "cls") or (called == "__init__" and is_constructor):
                return None
        return uses

    def documented(self, function: Function, name: str) -> Iterator[int]:
        """The places of a parameter in the docstring of its function, or of its class for a constructor."""
        is_constructor = function.of_class is not None and function.node.name == "__init__"
        nodes = [node for node in (function.node, function.of_class if is_constructor else None) if node]
        pattern = re.compile(DOCUMENTED.format(name=re.escape(name)), re.MULTILINE)
        starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        for node in nodes:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and ast.get_docstring(node):
                low, high = starts[first.lineno - 1], starts[first.end_lineno or 0] if first.end_lineno else 0
                yield from (match.start(1) for match in pattern.finditer(self.text, low, high))

    def top_level(self) -> Iterator[Definition]:
        """Functions and classes of the module, and import aliases."""
        top = next(iter(self.places.tables))
        for key, bound in list(self.places.bound.items()):
            (start, kind), name = bound[0], key[1]
            is_wanted = kind == "import alias" or (key[0] == top and kind in ("function", "class"))
            if len(bound) != 1 or not is_wanted or not self.is_known(name):
                continue
            if kind != "import alias" and (self.places.attributes[name] or self.places.keywords[name]):
                continue
            if re.search(rf"[\"'][^\"'\n]*\b{re.escape(name)}\b", self.text):  # a quoted annotation, __all__, getattr
                continue
            yield Definition.of(kind, name, start, map(Use, self.places.owned[key]), (), self.others(key))

    def fields(self) -> Iterator[Definition]:
        """Fields of `self`, of classes without bases that this file alone knows."""
        for node in self.places.classes:
            if any(getattr(base, "id", "?") != "object" for base in node.bases) or node.decorator_list:
                continue
            for name, accesses in self.places.attributes.items():
                stored = [start for start, access, _ in accesses if isinstance(access.ctx, ast.Store)]
                if stored and self.is_known(name):
                    yield from self._field(node, name)

    def _field(self, node: ast.ClassDef, name: str) -> Iterator[Definition]:
        own, others = [], dict[str, list[int]]()
        for start, access, of_class in self.places.attributes[name]:
            if getattr(access.value, "id", "") != "self" or of_class is None:
                return  # of an unknown object
            if of_class is node:
                own.append((start, isinstance(access.ctx, ast.Store)))
            elif any(getattr(base, "id", "?") != "object" for base in of_class.bases):
                return  # perhaps of a derived class
            else:
                others.setdefault(of_class.name, []).append(start)
        members = {getattr(part, "name", getattr(getattr(part, "target", None), "id", "")) for part in node.body}
        members |= {
            getattr(target, "id", "") for part in node.body if isinstance(part, ast.Assign) for target in part.targets
        }
        is_text = re.search(rf"[\"']{re.escape(name)}[\"']", self.text)
        if not own or not min(own)[1] or name in members or is_text:
            return
        elsewhere = [*map(min, others.values()), *self.others((0, name))]
        yield Definition.of("field", name, min(own)[0], [Use(start) for start, _ in own], (), elsewhere)
