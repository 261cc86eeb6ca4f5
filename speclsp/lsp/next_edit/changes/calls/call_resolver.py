"""Name resolution of calls: the function of the document that a call means, and the variables in scope at it.

The scope of a plain name says it; for a method the class of its receiver, as far as the file shows it: `self`, an
annotation, a constructor. A receiver of unknown class counts, unproven, if the method's name has several words and no
other function of the file has it.
"""

from __future__ import annotations

import re
from functools import cache

from speclsp.lsp.next_edit.changes.calls.call_lists import CONSTRUCTORS, Call, calls_in
from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import Occurrence
from speclsp.lsp.syntax.tree import SyntaxTree

MAX_NAMED = 60  # occurrences of a function's name that are examined
BARE_METHODS = ("java", "c_sharp", "kotlin", "cpp")  # languages that call a method without its object
COMPOUND = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]")  # a name of several words
NAMES = re.compile(r"(?<![\w.\"'])[^\W\d]\w*(?!\w|\s*[=:(\"'])")  # of variables in an expression
OWN = ("self", "this", "cls", "Self", "super()")


class CallResolver:
    """Resolves the calls of one request."""

    def __init__(self, recent: Recent, tree: SyntaxTree) -> None:
        self.recent, self.tree = recent, tree
        self.named, self.definitions = cache(self._named), cache(self._definitions)

    def _named(self, name: str) -> list[Call]:
        """The calls and functions of a name, below the cursor first, then above, the nearest first."""
        cursor, result = self.recent.cursor, dict[int, Call]()
        starts = bindings.word_starts(self.tree.text, name, self.recent.low, self.recent.high)
        nearest = sorted(starts, key=lambda at: abs(at - cursor))[:MAX_NAMED]
        for at in sorted(nearest, key=lambda at: (at < cursor, abs(at - cursor))):
            for call in () if self.recent.is_late() else calls_in(self.tree, at, at + len(name), is_name=True):
                if call.owner or call.at not in result:
                    result[call.at] = call
        return list(result.values())

    def _definitions(self, name: str) -> list[Occurrence]:
        names = bindings.occurrences(self.tree, name, self.recent.low, self.recent.high, self.recent.is_late)
        return [occurrence for occurrence in names if occurrence.is_definition]

    def functions(self, name: str) -> list[Call]:
        """The functions that are called by a name, constructors included."""
        listed = [call for call in self.named(name) if call.is_function]
        for word in () if listed else CONSTRUCTORS:
            listed += [call for call in self.named(word) if call.is_function and call.name == name]
        return listed

    def function(self, call: Call) -> Call | None:
        """The function that a call means."""
        return next((other for other in self.functions(call.name) if self.means(call, other) is not False), None)

    def means(self, call: Call, function: Call) -> bool | None:
        """True if a call is proven to be of a function, False if it is not. None: only the name says so."""
        namesakes = [other for other in self.functions(function.name) if not self._is_prototype(other)] or [function]
        same = [other.at for other in namesakes if other.owner == function.owner]
        is_method = bool(function.owner) and not function.is_constructor
        if not call.owner and not is_method:
            definitions = self.definitions(call.name)
            occurrence = bindings.at(self.tree, call.at, call.at + len(call.name))
            meant = bindings.meaning(occurrence, definitions) if occurrence is not None else None
            if meant is None or function.is_constructor:
                return (
                    meant is not None and len(same) == 1 and meant.scopes[0].start <= function.at < meant.scopes[0].end
                )
            equal = [other.start for other in definitions if other.defines == meant.defines]
            return function.at in equal and len({*equal} & {*same}) < 2
        if not is_method or len(same) > 1:
            return False
        around = {scope.name for scope in self.tree.enclosing(call.at) if scope.kind == "class"}
        if not call.owner:
            return self.tree.grammar in BARE_METHODS and function.owner in around
        receiver = re.findall(r"\w+", call.owner)[-1:]
        if not receiver or receiver[0] == function.owner or (call.owner in OWN and function.owner in around):
            return bool(receiver)
        typed = rf"\b{receiver[0]}\b\s*(?::=|[=:])?\s*[&*]?(?:(?:new|await|mut)\s+|New)?{function.owner}\b"
        if re.search(rf"{typed}|\b{function.owner}\b[&*?\s]+{receiver[0]}\b", self.tree.text):
            return True
        return None if len(namesakes) == 1 and COMPOUND.search(function.name) else False

    def _is_prototype(self, function: Call) -> bool:
        is_declared = self.tree.text[function.end + 1 : function.end + 9].lstrip().startswith(";")
        return self.tree.grammar in ("c", "cpp") and is_declared

    def is_known(self, text: str, offset: int) -> bool:
        """True if the names of an expression are in scope at an offset, or have no definition in the file."""
        names = NAMES.findall(text)
        return all(self.visible(name, offset) or not (name in OWN or self.definitions(name)) for name in names)

    def visible(self, name: str, offset: int) -> Occurrence | None:
        """The definition of a variable that is in scope at an offset, the last one above it."""
        last = None
        for definition in self.definitions(name):
            scope = definition.defines
            is_visible = scope is not None and scope.start <= offset < scope.end and scope.kind != bindings.CLASS_SCOPE
            if (
                is_visible
                and bindings.OUTER not in definition.roles
                and max(definition.start, definition.after) < offset
            ):
                last = definition
        return last
