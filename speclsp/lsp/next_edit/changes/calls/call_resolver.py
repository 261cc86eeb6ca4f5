"""Name resolution of calls: the function of the document that a call means, and the variables in scope at it.

The scope of a plain name says it; for a method the type of its receiver, as far as the file proves it. A receiver of
unknown type counts, unproven, if the method's name has several words and no other function of the file has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice

from speclsp.lsp.next_edit.changes.calls.call_lists import CONSTRUCTORS, Call, calls_in
from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import NameScope, Occurrence, word_starts
from speclsp.lsp.syntax.expression_types import ExpressionTypes
from speclsp.lsp.syntax.languages.type_texts import OTHER, UNKNOWN
from speclsp.lsp.syntax.text_windows import line_at
from speclsp.lsp.syntax.tree import SyntaxTree

MAX_NAMED, MAX_NEAR = 200, 24  # occurrences of a function's name that are examined, and of a variable's in one scope
MAX_LEFT = 12  # characters left of a name
USE = re.compile(r"(?:[.(,=\[!+/%|?-]|\b(?:return|await|yield|in|not|and|or|if|else|new|throw|go|defer|raise))[ \t]*$")
BARE_METHODS = ("java", "c_sharp", "kotlin", "cpp")  # languages that call a method without its object
COMPOUND = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]")  # a name of several words
NAMES = re.compile(r"(?<![\w.\"'])[^\W\d]\w*(?!\w|\s*[=:(\"'])")  # of variables in an expression
OWN = ("self", "this", "cls", "Self")


class CallResolver:
    """Resolves the calls of one request."""

    def __init__(self, recent: Recent, tree: SyntaxTree) -> None:
        self.recent, self.tree, self.text, self._bounds = recent, tree, tree.text, (recent.low, recent.high)
        self.functions, self._starts, self._types = cache(self._functions), cache(self._nearest), cache(self._types_of)

    def _nearest(self, name: str) -> list[int]:
        """The offsets of a name, below the cursor first, then above, the nearest first."""
        cursor = self.recent.cursor
        starts = sorted(word_starts(self.text, name, *self._bounds), key=lambda at: abs(at - cursor))
        return sorted(starts[:MAX_NAMED], key=lambda at: (at < cursor, abs(at - cursor)))

    def _at(self, name: str, starts: Iterator[int]) -> Iterator[Call]:
        for start in starts:
            if self.recent.is_late():
                return
            yield from calls_in(self.tree, start, start + len(name), is_name=True)

    def calls(self, name: str, lines: set[str] | None = None) -> Iterator[Call]:
        """The calls of a name, as `_nearest`. `lines`: only those in lines with these texts."""
        starts = (at for at in self._starts(name) if lines is None or line_at(self.text, at) in lines)
        return (call for call in self._at(name, starts) if not call.is_function)

    def _functions(self, name: str) -> list[Call]:
        """The functions that are called by a name, constructors included."""
        listed = dict[int, Call]()
        for word in (name, *CONSTRUCTORS):
            starts = (at for at in self._starts(word) if not USE.search(self.text, max(0, at - MAX_LEFT), at))
            for call in self._at(word, starts) if not listed else ():
                if call.is_function and call.name == name and (call.owner or call.at not in listed):
                    listed[call.at] = call
        return list(listed.values())

    def function(self, call: Call) -> Call | None:
        """The function that a call means."""
        return next((other for other in self.functions(call.name) if self.means(call, other) is not False), None)

    def means(self, call: Call, function: Call) -> bool | None:
        """True if a call is proven to be of a function, False if it is not. None: only the name says so."""
        namesakes = [other for other in self.functions(function.name) if not self._is_prototype(other)] or [function]
        same = [other.at for other in namesakes if other.owner == function.owner]
        is_method = bool(function.owner) and not function.is_constructor
        if not call.owner and not is_method:
            return self._is_plain_call_of(call, function, same)
        if not is_method or len(same) > 1:
            return False
        around = {scope.name for scope in self.tree.enclosing(call.at) if scope.kind == "class"}
        if not call.owner:
            return self.tree.grammar in BARE_METHODS and function.owner in around
        if call.owner == function.owner or (call.owner in OWN and function.owner in around):
            return True
        access = self._types(call.name).member(call.at, call.at + len(call.name))
        owner = access.owner if access is not None else OTHER
        if owner == UNKNOWN and len(namesakes) == 1 and COMPOUND.search(function.name):
            return None
        member = self._types(call.name).declared(owner, call.name)
        return owner == function.owner or (member is not None and member.start == function.at)

    def _is_plain_call_of(self, call: Call, function: Call, same: list[int]) -> bool:
        """True if the scopes around a call without a receiver say that it means a function or constructor."""
        scopes = self.tree.enclosing(function.at) if function.is_constructor else ()
        header = [scope.start for scope in scopes if scope.kind == "class"]
        named = next(word_starts(self.text, function.name, header[-1], len(self.text)), 0) if header else function.at
        use, target = (bindings.at(self.tree, at, at + len(call.name)) for at in (call.at, named))
        if use is None or target is None:
            return False
        for scope in use.visible_scopes():
            if scope == target.defines:
                if function.is_constructor:
                    return len(same) == 1
                others = [bindings.at(self.tree, at, at + len(call.name)) for at in same if at != function.at]
                return not any(other is not None and other.defines == scope for other in others)
            if self._defined(call.name, scope, scope.end):
                return False
        return False

    def _types_of(self, name: str) -> ExpressionTypes:
        return ExpressionTypes(self.tree, (name, name), self._bounds, self.recent.is_late)

    def _is_prototype(self, function: Call) -> bool:
        is_declared = self.text[function.end + 1 : function.end + 9].lstrip().startswith(";")
        return self.tree.grammar in ("c", "cpp") and is_declared

    # ── variables ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _defined(self, name: str, scope: NameScope, end: int) -> list[Occurrence]:
        """The definitions of a name in a scope, above an offset."""
        starts = islice(word_starts(self.text, name, max(scope.start, self._bounds[0]), end), MAX_NEAR)
        known = [bindings.at(self.tree, at, at + len(name)) for at in starts]
        extent = scope.start, scope.end
        return [
            other
            for other in known
            if other is not None and other.defines is not None and (other.defines.start, other.defines.end) == extent
        ]

    def visible(self, name: str, call: Call) -> Occurrence | None:
        """The last definition of a variable that is in scope at a call."""
        low = max(0, call.at - len(call.owner) - len("->"))
        words = re.finditer(r"[^\W\d]\w*", self.text[low : call.at + len(call.name)])  # a member may be no identifier
        names = (bindings.at(self.tree, low + word.start(), low + word.end()) for word in words)
        use = next((name for name in names if name is not None), None)
        for scope in use.visible_scopes() if use is not None else ():
            defined = [other for other in self._defined(name, scope, call.at) if other.after < call.at]
            if defined:
                return None if bindings.OUTER in defined[-1].roles else defined[-1]
        return None

    def is_known(self, text: str, call: Call) -> bool:
        """True if the names of an expression are in scope at a call, or have no definition in the file."""
        for name in NAMES.findall(text):
            if name in OWN or self.visible(name, call) is None:
                names = bindings.occurrences(self.tree, name, *self._bounds, self.recent.is_late)
                if name in OWN or any(other.is_definition for other in names):
                    return False
        return True
