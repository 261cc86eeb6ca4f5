"""Every place of every name in a Python file: scopes by the standard library's `symtable`, places by `ast`."""

from __future__ import annotations

import ast
import re
import symtable
from collections import Counter, defaultdict
from dataclasses import dataclass, field

Key = tuple[int, str]  # the id of a symbol table, a name in it
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = {
    ast.ListComp: "listcomp", ast.SetComp: "setcomp", ast.DictComp: "dictcomp", ast.GeneratorExp: "genexpr",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword argument at a call."""

    start: int
    call: ast.Call
    owner: Key | None  # of a callee that is a plain name
    of_class: ast.ClassDef | None  # around the call


@dataclass(slots=True)
class Function:
    """One function and its surroundings."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    table: symtable.SymbolTable
    key: Key  # of its own name
    of_class: ast.ClassDef | None
    class_key: Key | None


@dataclass(slots=True)
class Places:
    """Every place of every name of a file."""

    owned: defaultdict[Key, set[int]] = field(default_factory=lambda: defaultdict(set))
    bound: defaultdict[Key, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    attributes: defaultdict[str, list[tuple[int, ast.Attribute, ast.ClassDef | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    receivers: dict[int, Key] = field(default_factory=dict)  # {place of an attribute: the name that it is read from}
    typed: defaultdict[Key, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))  # annotations, calls
    keywords: defaultdict[str, list[Keyword]] = field(default_factory=lambda: defaultdict(list))
    unknown: set[str] = field(default_factory=set)  # names with a place that is not known
    in_paths: Counter[str] = field(default_factory=Counter)  # parts of module paths, and imported names with an alias
    functions: list[Function] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)
    tables: dict[int, symtable.SymbolTable] = field(default_factory=dict)


class Walk(ast.NodeVisitor):
    """Collects the places of a file, with its symbol tables beside its tree."""

    def __init__(self, text: str, top: symtable.SymbolTable) -> None:
        self.text, self.places = text, Places()
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.stack: list[symtable.SymbolTable] = []
        self.left: dict[int, list[symtable.SymbolTable]] = {}  # children that were not entered yet
        self.class_nodes: list[ast.ClassDef | None] = [None]
        self.class_keys: list[Key | None] = [None]
        self._push(top)

    def _push(self, table: symtable.SymbolTable) -> None:
        self.stack.append(table)
        self.left[table.get_id()] = list(table.get_children())
        self.places.tables[table.get_id()] = table

    def enter(self, name: str, line: int) -> bool:
        """Enter the next child of this name and line; False if there is none, as in an annotation."""
        children = self.left[self.stack[-1].get_id()]
        match = next((child for child in children if (child.get_name(), child.get_lineno()) == (name, line)), None)
        if match is None:
            return False
        children.remove(match)
        self._push(match)
        return True

    def offset(self, line: int, column: int) -> int:
        start = self.starts[line - 1]
        head = self.text[start : self.starts[line] if line < len(self.starts) else len(self.text)].encode()[:column]
        return start + len(head.decode(errors="replace"))

    def start_of(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.excepthandler) -> int:
        return self.offset(node.lineno, node.col_offset)

    def owner(self, name: str) -> Key:
        """The table that a name of the innermost scope belongs to."""
        for depth in reversed(range(len(self.stack))):
            table = self.stack[depth]
            if table.get_type() == "class" and depth < len(self.stack) - 1:
                continue
            try:
                symbol = table.lookup(name)
            except KeyError:
                continue
            if symbol.is_local():
                return table.get_id(), name
            if symbol.is_global():
                break
        return self.stack[0].get_id(), name

    def add(self, name: str, start: int, bound: str = "") -> None:
        """Add a place of a name, at which it is bound as a `bound`."""
        if not self.text.startswith(name, start):
            self.places.unknown.add(name)
            return
        key = self.owner(name)
        self.places.owned[key].add(start)
        if bound:
            self.places.bound[key].append((start, bound))

    def add_after(self, pattern: str, name: str, start: int, bound: str = "") -> None:
        """Add the place where `pattern`, searched from `start`, ends with the name."""
        match = re.compile(rf"{pattern}(?={re.escape(name)}\b)").match(self.text, start)
        if match is None:
            self.places.unknown.add(name)
        else:
            self.add(name, match.end(), bound)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def visit_Name(self, node: ast.Name) -> None:
        bound = "variable" if isinstance(node.ctx, ast.Store) else ""
        self.add(node.id, self.start_of(node), bound)

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        proof = node.annotation if isinstance(node, ast.AnnAssign) else node.value
        for target in [node.target] if isinstance(node, ast.AnnAssign) else node.targets:
            if isinstance(target, ast.Name):
                self.places.typed[self.owner(target.id)].append(proof)
        self.generic_visit(node)

    visit_AnnAssign = visit_Assign

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        start = self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0) - len(node.attr)
        if self.text.startswith(node.attr, start):
            self.places.attributes[node.attr].append((start, node, self.class_nodes[-1]))
            if isinstance(node.value, ast.Name):
                self.places.receivers[start] = self.owner(node.value.id)
        else:
            self.places.unknown.add(node.attr)

    def visit_Call(self, node: ast.Call) -> None:
        owner = self.owner(node.func.id) if isinstance(node.func, ast.Name) else None
        for keyword in node.keywords:
            if keyword.arg is not None:
                start = self.start_of(keyword)
                if not self.text.startswith(keyword.arg, start):
                    self.places.unknown.add(keyword.arg)
                self.places.keywords[keyword.arg].append(Keyword(start, node, owner, self.class_nodes[-1]))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.add_after(r"(?:async\s+)?def\s+", node.name, self.start_of(node), "function")
        for part in [*node.decorator_list, *_outside(node.args), *([node.returns] if node.returns else [])]:
            self.visit(part)
        key, class_node, class_key = self.owner(node.name), self.class_nodes[-1], self.class_keys[-1]
        if not self.enter(node.name, node.lineno):
            raise ValueError(f"no symbol table of {node.name}, line {node.lineno}")
        self.places.functions.append(Function(node, self.stack[-1], key, class_node, class_key))
        for arg in _args(node.args):
            self.add(arg.arg, self.start_of(arg), "parameter")
            self.places.typed[self.owner(arg.arg)] += [arg.annotation] if arg.annotation else []
        for statement in node.body:
            self.visit(statement)
        self.stack.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in _outside(node.args):
            self.visit(part)
        entered = self.enter("lambda", node.lineno)
        for arg in _args(node.args):
            self.add(arg.arg, self.start_of(arg), "parameter")
        self.visit(node.body)
        if entered:
            self.stack.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.add_after(r"class\s+", node.name, self.start_of(node), "class")
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        key = self.owner(node.name)
        if not self.enter(node.name, node.lineno):
            raise ValueError(f"no symbol table of {node.name}, line {node.lineno}")
        self.places.classes.append(node)
        self.class_nodes.append(node)
        self.class_keys.append(key)
        for statement in node.body:
            self.visit(statement)
        self.class_nodes.pop()
        self.class_keys.pop()
        self.stack.pop()

    def generic_visit(self, node: ast.AST) -> None:
        name = COMPREHENSIONS.get(type(node))
        if name is None:
            super().generic_visit(node)
            return
        assert isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        self.visit(node.generators[0].iter)  # in the scope around
        entered = self.enter(name, node.lineno)
        for number, generator in enumerate(node.generators):
            for part in [generator.target, *([generator.iter] if number else []), *generator.ifs]:
                self.visit(part)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(part)
        if entered:
            self.stack.pop()

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            start, parts = self.start_of(alias), alias.name.split(".")
            self.places.in_paths.update(parts if alias.asname else parts[1:])
            if alias.asname:
                self.add_after(rf"{re.escape(alias.name)}\s+as\s+", alias.asname, start, "import alias")
            elif alias.name != "*":
                self.add(parts[0], start, "import")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.places.in_paths.update((node.module or "").split("."))
        self.visit_Import(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name and node.type:
            end = self.offset(node.type.end_lineno or 0, node.type.end_col_offset or 0)
            self.add_after(r"[\s)]*as\s+", node.name, end, "variable")
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        end = self.offset(node.end_lineno or 0, node.end_col_offset or 0)
        for name in node.names:
            for match in re.compile(rf"\b{re.escape(name)}\b").finditer(self.text, self.start_of(node), end):
                self.add(name, match.start())

    visit_Nonlocal = visit_Global


def _args(arguments: ast.arguments) -> list[ast.arg]:
    extra = [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def _outside(arguments: ast.arguments) -> list[ast.expr]:
    """The defaults and annotations, which are in the scope around the function."""
    annotations = [arg.annotation for arg in _args(arguments) if arg.annotation is not None]
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None), *annotations]
