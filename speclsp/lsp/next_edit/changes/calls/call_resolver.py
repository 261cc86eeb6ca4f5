"""Name resolution of calls: the function of the document that a call means, and the variables in scope at it.

The scope of a plain name says it; for a method the type of its receiver, as far as the file proves it. A receiver of
unknown type counts, unproven, if the method's name has several words and no other function of the file has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from speclsp.lsp.next_edit.changes.calls.call_lists import CONSTRUCTORS, Call, calls_in
from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import Occurrence, word_starts
from speclsp.lsp.syntax.expression_types import ExpressionTypes
from speclsp.lsp.syntax.languages.type_texts import OTHER, UNKNOWN
from speclsp.lsp.syntax.text_windows import line_at
from speclsp.lsp.syntax.tree import SyntaxTree

MAX_NAMED = 200  # occurrences of a function's name that are examined
MAX_LEFT = 12  # characters left of a name
USE = re.compile(r"(?:[.(,=\[!+/%|?-]|\b(?:return|await|yield|in|not|and|or|if|else|new|throw|go|defer|raise))[ \t]*$")
COMPOUND = re.compile(r"[^\W_]_[^\W_]|[a-z][A-Z]")  # a name of several words
NAMES = re.compile(r"(?<![\w.\"'])[^\W\d]\w*(?!\w|\s*[=:(\"'])")  # of variables in an expression
OWN = ("self", "this", "cls", "Self")


class CallResolver:
    """Resolves the calls of one request."""

    def __init__(self, recent: Recent, tree: SyntaxTree) -> None:
        self.recent, self.tree, self.text, self._bounds = recent, tree, tree.text, (recent.low, recent.high)
        self.functions, self._starts = cache(self._functions), cache(self._nearest)
        self._types = ExpressionTypes(tree, (), self._bounds, recent.is_late)

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
        functions = self.functions(function.name)
        defined = {other.owner for other in functions if not self._is_declaration(other)}
        namesakes = [other for other in functions if other.owner not in defined or not self._is_declaration(other)]
        same = [other.at for other in namesakes if other.owner == function.owner]
        is_method = bool(function.owner) and not function.is_constructor
        if not call.owner and not is_method:
            return self._is_plain_call_of(call, function, same)
        if not is_method or len(same) > 1:
            return False
        around = {scope.name for scope in self.tree.enclosing(call.at) if scope.kind == "class"}
        if not call.owner:
            use = bindings.at(self.tree, call.at, call.at + len(call.name))
            scopes = use.scopes if use is not None else ()
            return function.owner in around and any(scope.kind == bindings.MEMBERS_SCOPE for scope in scopes)
        if call.owner == function.owner or (call.owner in OWN and function.owner in around):
            return True
        access = self._types.member(call.at, call.at + len(call.name))
        owner = access.owner if access is not None else OTHER
        if owner == UNKNOWN and len(namesakes) == 1 and COMPOUND.search(function.name):
            return False if re.match(r"(?:self|this|cls)\W", call.owner) else None  # a member's own method
        member = self._types.declared(owner, call.name)
        return owner == function.owner or (member is not None and member.start == function.at)

    def _is_plain_call_of(self, call: Call, function: Call, same: list[int]) -> bool:
        """True if the scopes around a call without a receiver say that it means a function or constructor."""
        scopes = self.tree.enclosing(function.at) if function.is_constructor else ()
        header = [scope.start for scope in scopes if scope.kind == "class"]
        named = next(word_starts(self.text, function.name, header[-1], len(self.text)), 0) if header else function.at
        use, target = (bindings.at(self.tree, at, at + len(call.name)) for at in (call.at, named))
        if use is None or target is None:
            return False
        defined = self._types.visible(use, call.name)
        if target.defines not in [*use.visible_scopes()] or any(other.defines != target.defines for other in defined):
            return False
        others = [bindings.at(self.tree, at, at + len(call.name)) for at in same if at != function.at]
        if function.is_constructor:
            return not others
        return not any(other is not None and other.defines == target.defines for other in others)

    def _is_declaration(self, function: Call) -> bool:
        """True for a function without a body."""
        return self.text[function.end + 1 : function.end + 9].lstrip().startswith(";")

    # ── variables ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def visible(self, name: str, call: Call) -> Occurrence | None:
        """The last definition of a variable that is in scope at a call."""
        low = max(0, call.at - len(call.owner) - len("->"))
        words = re.finditer(r"[^\W\d]\w*", self.text[low : call.at + len(call.name)])  # a member may be no identifier
        names = (bindings.at(self.tree, low + word.start(), low + word.end()) for word in words)
        use = next((name for name in names if name is not None), None)
        above = [other for other in self._types.visible(use, name) if max(other.start, other.after) < call.at]
        return above[-1] if above and bindings.OUTER not in above[-1].roles else None

    def is_known(self, text: str, call: Call) -> bool:
        """True if the names of an expression are in scope at a call, or have no definition in the file."""
        for name in NAMES.findall(text):
            if name in OWN or self.visible(name, call) is None:
                names = bindings.occurrences(self.tree, name, *self._bounds, self.recent.is_late)
                if name in OWN or any(other.is_definition for other in names):
                    return False
        return True
