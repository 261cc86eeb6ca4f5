"""Types of expressions and owners of members, as far as one document proves them.

    member ─► the expression left of it, or the literal around it ─► its type ─► the type that defines the member

Captures of the section `members` of queries/NAME.scm:

    type, type.name       a node with definitions of members, and the name of their type; without one it is anonymous
    alias                 the type that a name stands for
    base                  a type whose members the type of its match has
    field, assigned       a member's name in its definition, in the innermost type around it; `owner` is another type
    access, object        a member's name in a use, and the expression whose member it is; without one it is that of
                          the innermost `literal` or pattern
    shorthand             the name is that of a variable too, with `destructured` one that is renamed with the member
    implicit              a function with a parameter `it`, whose type its match tells as that of `typed`
    typed                 a node whose type its match tells, by one of these:
      is, of                a type; its arguments
      same                  an expression of the same type
      element, item         an expression whose elements have this type; an element of the node
      access                a member
      callee                what is called; with `arguments`, what takes these, of which the node is one
      returned              the result of the innermost `function`
      within                an element of the innermost `literal` around it
      self, itself          the innermost type around the node; no type but its own
    called                a function's name, with what it `returns`, its `parameters`, its `body` or its `result`
    return                the keyword before a `result`

Only the text near some occurrences of a name is examined, so the time does not depend on the size of the document.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.bindings import Occurrence, word_starts
from speclsp.lsp.syntax.languages import type_texts
from speclsp.lsp.syntax.languages.type_texts import OTHER, UNKNOWN, element_of, name_of
from speclsp.lsp.syntax.tree import Captures, Facts, SyntaxTree

if TYPE_CHECKING:
    import tree_sitter

SECTION = "members"
FIELD, ASSIGNED, ACCESS = "field", "assigned", "access"
MAX_DEPTH, MAX_LINEAGE, MAX_PARAMETERS = 10, 6, 12
MAX_BODY, MAX_RESULTS = 4000, 4  # characters and results of a function that are examined
MAX_WORDS, MAX_NEAR = 120, 24  # occurrences of a name that are examined, and of a variable's name in one scope
AROUND = frozenset(("type", "function", "literal", "implicit"))
ASSIGNMENT = re.compile(r"\s*[:=](?!=)")


@dataclass(frozen=True, slots=True)
class Member:
    """A member's name at `[start, end)` of the document. `kind`: its capture. `owner`: the type whose member it is."""

    start: int
    end: int
    kind: str
    owner: str
    object: str = ""  # the text whose member it is
    is_shorthand: bool = False
    is_destructured: bool = False  # a shorthand whose variable is renamed too


def node_bytes(node: tree_sitter.Node) -> tuple[int, int]:
    return node.start_byte, node.end_byte


class ExpressionTypes:
    """Types in one document in the middle of a rename. `names`: the old and the new name, of the same members."""

    def __init__(
        self, tree: SyntaxTree, names: tuple[str, ...], bounds: tuple[int, int], is_late: Callable[[], bool]
    ) -> None:
        """`bounds`: the part of the document that is examined."""
        self._tree, self._both, self._bounds, self._is_late, self._depth = tree, names, bounds, is_late, 0
        self._imports = tree.imports()
        self._facts = dict[tuple[int, int], Facts]()
        self._types = dict[tuple[int, int], str]()
        self._occurrences = dict[int, Occurrence | None]()
        self._definitions = dict[str, list[Member]]()
        self._lineages = dict[str, list[str]]()

    def member(self, start: int, end: int) -> Member | None:
        """The member whose definition or use is the identifier at `[start, end)` of the document."""
        facts = self._at(*self._bytes(start, end))
        kind = next((kind for kind in (FIELD, ASSIGNED, ACCESS) if kind in facts.exact), "")
        if not kind:
            return None
        captures, text = facts.exact[kind][0], ""
        if kind == ACCESS:
            node = captures["object"][0] if "object" in captures else facts.innermost("literal")[1]
            owner, text = (name_of(self.type_of(node)), self._tree.node_text(node)) if node else (UNKNOWN, "")
            kind = FIELD if node and owner == f"@{node.start_byte}" else ACCESS
        elif "owner" in captures:
            owner = name_of(self._text(captures["owner"][0]))
        else:
            owner = self._around(facts, *(("function",) if kind == FIELD else ()))
        if kind == FIELD and owner == OTHER:  # a local variable or function
            return None
        return Member(start, end, kind, owner, text, "shorthand" in captures, "destructured" in captures)

    def definitions(self, name: str) -> list[Member]:
        """The definitions of members of a name, from top to bottom."""
        if name not in self._definitions:
            text, self._definitions[name] = self._tree.text, []
            starts = (
                at
                for at in word_starts(text, name, *self._bounds)
                if text[at - 1 : at] not in (".", ">") or ASSIGNMENT.match(text, at + len(name))
            )
            members = (self.member(at, at + len(name)) for at in islice(starts, MAX_WORDS) if not self._is_late())
            self._definitions[name] = [member for member in members if member and member.kind != ACCESS]
        return self._definitions[name]

    def lineage(self, name: str) -> list[str]:
        """A type and those whose members it has, the nearest first."""
        if name not in self._lineages:
            self._lineages[name] = result = [name]
            for type_name in result:
                nodes = (n for match in self._named(type_name) for key in ("base", "alias") for n in match.get(key, ()))
                bases = [base for node in nodes if (base := name_of(self._tree.node_text(node))) not in result]
                result += bases[: MAX_LINEAGE - len(result)]
        return self._lineages[name]

    def declared(self, owner: str, name: str) -> Member | None:
        """The definition of a type's member, its own or that of a type whose members it has."""
        if owner in (UNKNOWN, OTHER):
            return None
        names = self._both if name in self._both else (name,)
        members = [member for same in names for member in self.definitions(same)]
        return next((member for level in self.lineage(owner) for member in members if member.owner == level), None)

    # ── expressions ───────────────────────────────────────────────────────────────────────────────────────────────────

    def type_of(self, node: tree_sitter.Node) -> str:
        """The type of an expression, a literal or a pattern."""
        at = node.start_byte, node.end_byte
        if at not in self._types:
            if self._depth == MAX_DEPTH or self._is_late():
                return OTHER
            self._types[at], self._depth = OTHER, self._depth + 1
            type_text = self._matched(*at, "typed")
            self._types[at] = type_text if type_text is not None else self._variable(node)
            self._depth -= 1
        return self._types[at]

    def _matched(self, low: int, high: int, *kinds: str) -> str | None:
        """The type that matches tell about the node at the bytes `[low, high)`; None if none does."""
        facts, result = self._at(low, high), None
        for captures in (match for kind in kinds for match in facts.exact.get(kind, ())):
            type_text = self._relation(captures, facts, low)
            result = type_text if type_text is not None else result
            if result not in (None, OTHER):
                break
        return result

    def _relation(self, captures: Captures, facts: Facts, low: int) -> str | None:
        """The type that one match tells about the node that begins at byte `low`."""
        if "is" in captures and (text := self._text(captures["is"][0])) not in type_texts.INFERRED:
            return text + "".join(map(self._text, captures.get("of", ())))
        if "same" in captures:
            is_nothing = self._tree.node_text(captures["same"][0]) in type_texts.NOTHING
            return UNKNOWN if is_nothing else self.type_of(captures["same"][0])
        if "element" in captures:
            return self._element(self.type_of(captures["element"][0]))
        if "item" in captures:
            return f"[]{self.type_of(captures['item'][0])}"
        if "arguments" in captures:
            return self._parameter(captures, low)
        if "callee" in captures:
            return self._result(self._function(captures["callee"][0]))
        if ACCESS in captures:
            return self._member_type(captures)
        if "returned" in captures:
            return self._result(facts.innermost("function")[2])
        if "itself" in captures:
            return f"@{low}"
        if "within" in captures:
            literal = facts.innermost("literal")[1]
            return self._element(self.type_of(literal)) if literal else OTHER
        return self._around(facts) if "self" in captures else None

    def _variable(self, node: tree_sitter.Node) -> str:
        """The type of what a name means."""
        start, end = self._range(node)
        if self._tree.text[start:end] == "Self":
            return self._around(self._at(*node_bytes(node)))
        if not self._tree.text[start:end].isidentifier() or self._tree.text[start - 1 : start] == ".":
            return UNKNOWN if "pattern" in node.type else OTHER
        types = [self._defined(definition) for definition in self._meanings(start, end)]
        if not types:
            facts, name = self._at(*node_bytes(node)), self._tree.text[start:end]
            implicit = self._relation(facts.innermost("implicit")[2], facts, -1) if name == "it" else None
            member = self.declared(self._around(facts), name)
            types = [implicit] if implicit else [self._declared_type(member)] if member is not None else []
        names = {name_of(text): text for text in types}
        if len(names) > 1:
            names.pop(UNKNOWN, None)
        return next(iter(names.values())) if len(names) == 1 else OTHER

    def _defined(self, definition: Occurrence) -> str:
        """The type of a variable, or the type that a name is; an imported name may be one."""
        at = self._bytes(definition.start, definition.end)
        exact = self._at(*at).exact
        if "type.name" in exact or any(start <= definition.start < end for start, end in self._imports):
            return self._tree.text[definition.start : definition.end]
        return OTHER if "called" in exact else self._matched(*at, "typed", FIELD) or UNKNOWN

    def _meanings(self, start: int, end: int) -> list[Occurrence]:
        """The definitions that a variable at `[start, end)` of the document may mean."""
        use = self._occurrence(start, end)
        defined = self.visible(use, self._tree.text[start:end]) if use is not None and use.is_variable else []
        if use is None or not defined or defined[0].after < 0:
            return defined
        last = bindings.meaning(use, defined)
        return [last] if last is not None else []

    def visible(self, use: Occurrence | None, name: str) -> list[Occurrence]:
        """The definitions of a name in the innermost scope around an identifier that has one."""
        for scope in use.visible_scopes() if use is not None else ():
            low, high = max(scope.start, self._bounds[0]), min(scope.end, self._bounds[1])
            starts = islice(word_starts(self._tree.text, name, low, high), MAX_NEAR)
            known = [self._occurrence(at, at + len(name)) for at in starts]
            if defined := [other for other in known if other is not None and other.is_defined_in(scope)]:
                return defined
        return []

    def _member_type(self, captures: Captures) -> str:
        """The type of the member that a name means, or of a result with the type of its object."""
        start, end = self._range(captures[ACCESS][0])
        member, name = self.member(start, end), self._tree.text[start:end]
        if member is None or member.owner == UNKNOWN:
            return UNKNOWN
        if declared := self.declared(member.owner, name):
            return self._declared_type(declared)
        owner = self.type_of(captures["object"][0]) if "object" in captures else OTHER
        is_same, is_element = type_texts.SAME.fullmatch(name), type_texts.ELEMENT.fullmatch(name)
        return owner if is_same else self._element(owner) if is_element else OTHER

    def _declared_type(self, member: Member) -> str:
        """The type of a member, as its definition tells."""
        type_text = self._matched(*self._bytes(member.start, member.end), FIELD, ASSIGNED)
        return type_text if type_text is not None else self._result(self._called(member))

    # ── functions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _function(self, callee: tree_sitter.Node) -> Captures | str:
        """The function or method that is called, or the type of the result."""
        for captures in self._at(*node_bytes(callee)).exact.get("typed", ()):
            if ACCESS in captures and "object" in captures:
                owner, name = name_of(self.type_of(captures["object"][0])), self._tree.node_text(captures[ACCESS][0])
                declared = self.declared(owner, name)
                return self._called(declared) if declared is not None else self._member_type(captures)
        for definition in self._meanings(*self._range(callee))[:1]:
            return self._called(definition) or self._defined(definition) or OTHER
        return OTHER

    def _called(self, name: Member | Occurrence) -> Captures:
        """The captures of matches about the function that a name defines."""
        matches = self._at(*self._bytes(name.start, name.end)).exact.get("called", ())
        return {name: nodes for captures in matches for name, nodes in captures.items()}

    def _result(self, function: Captures | str) -> str:
        """The type of a call: as annotated, or as all results of the function are."""
        if isinstance(function, str):
            return function
        if "returns" in function:
            return self._text(function["returns"][0])
        types = {name_of(text): text for node in self._results(function) if (text := self.type_of(node)) != UNKNOWN}
        return next(iter(types.values())) if len(types) == 1 else OTHER

    def _results(self, function: Captures) -> list[tree_sitter.Node]:
        """The expressions that a function without an annotation returns."""
        result, bodies = function.get("result", []), function.get("body", [])
        for body in bodies:
            start, end = self._range(body)
            starts = islice(word_starts(self._tree.text, "return", start, min(end, start + MAX_BODY)), MAX_RESULTS)
            for facts in (self._at(*self._bytes(at, at + len("return"))) for at in starts):
                is_own = facts.innermost("function")[1] == body
                result = [*result, *(match["result"][0] for match in facts.exact.get("return", ()) if is_own)]
        return result

    def _parameter(self, captures: Captures, low: int) -> str:
        """The type of the parameter that takes the argument at byte `low`."""
        for match in self._at(*node_bytes(captures["callee"][0])).exact.get("typed", ()):
            if ACCESS in match and type_texts.ADDS.fullmatch(self._tree.node_text(match[ACCESS][0])):
                return self._element(self.type_of(match["object"][0]))
        function = self._function(captures["callee"][0])
        if isinstance(function, str):  # a type
            constructor = self.declared(function, "constructor")
            function = self._called(constructor) if constructor is not None else {}
        if "props" in function:
            return self._text(function["props"][0])
        if "parameters" not in function:
            return OTHER
        arguments = islice(captures["arguments"][0].named_children, MAX_PARAMETERS)
        node = function["parameters"][0].named_child(sum(argument.start_byte < low for argument in arguments))
        matches = self._at(*node_bytes(node)).exact.get("parameter", ()) if node is not None else ()
        return next((self._text(match["is"][0]) for match in matches if "is" in match), OTHER)

    # ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _around(self, facts: Facts, *barriers: str) -> str:
        """The innermost type around a node; OTHER if there is none inside of the barriers."""
        name, node, captures = facts.innermost("type", *barriers)
        if node is None or name != "type":
            return OTHER
        names = captures.get("type.name")
        return name_of(self._tree.node_text(names[0])) if names else f"@{node.start_byte}"

    def _named(self, name: str) -> list[Captures]:
        """The matches with a type of a name."""
        starts = islice(word_starts(self._tree.text, name, *self._bounds), MAX_NEAR)
        ranges = [self._bytes(at, at + len(name)) for at in starts] if name not in (OTHER, UNKNOWN) else []
        return [match for at in ranges for match in self._at(*at).exact.get("type.name", ())]

    def _element(self, text: str) -> str:
        """The type of the elements of a type, or of the type that its name stands for."""
        if (element := element_of(text)) != OTHER or (name := name_of(text)) in (OTHER, UNKNOWN):
            return element
        return next(
            (element_of(self._text(node)) for match in self._named(name) for node in match.get("alias", ())), OTHER
        )

    def _text(self, node: tree_sitter.Node) -> str:
        """The type that a node writes."""
        text = self._tree.node_text(node)
        around = self._around(self._at(*node_bytes(node))) if "Self" in text else ""
        return type_texts.written(text, around, node.start_byte)

    def _occurrence(self, start: int, end: int) -> Occurrence | None:
        """The identifier at `[start, end)` of the document."""
        if start not in self._occurrences:
            self._occurrences[start] = bindings.at(self._tree, start, end)
        return self._occurrences[start]

    def _at(self, low: int, high: int) -> Facts:
        """The matches of the section at the bytes `[low, high)`."""
        if (low, high) not in self._facts:
            self._facts[low, high] = self._tree.facts(SECTION, low, high, AROUND)
        return self._facts[low, high]

    def _bytes(self, start: int, end: int) -> tuple[int, int]:
        view, is_private = self._tree.view, self._tree.text.startswith("#", start - 1)  # `#name` of JavaScript
        return view.byte_of(start - is_private), view.byte_of(end)

    def _range(self, node: tree_sitter.Node) -> tuple[int, int]:
        return self._tree.view.to_document(node.start_byte), self._tree.view.to_document(node.end_byte, end=True)
