"""Definitions and uses by a strict rule on tree-sitter's tokens, for C, C++, Go, Java and Rust.

The rule knows no scopes. A name is taken only where every token of it must be a use:

    parameter, local  declared once in its function, nested functions included; a local's tokens follow its declaration
                      and stay in its block
    function, class   declared once in the file, and nowhere a member, a key, a path's last part or another definition
    import alias      as a function
    field             Java: declared once in the file, each token `this.name`, or bare in a method without that variable

A name with a token whose role is not certain (in a macro's definition, a key of a literal, a label) is left out.
roles.py, c_roles.py and other_roles.py give each token its role.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import tree_sitter

from benchmarks.editor.edit_replay.rename_truth import c_roles, other_roles, roles
from benchmarks.editor.edit_replay.rename_truth.definition import Definition, Use
from benchmarks.editor.edit_replay.rename_truth.roles import Role
from speclsp.lsp.syntax.tree import load_grammar

ROLES: Mapping[str, Callable[[tree_sitter.Node], Role]] = {
    "c": c_roles.of_c,
    "cpp": c_roles.of_c,
    "go": other_roles.of_go,
    "java": other_roles.of_java,
    "rust": other_roles.of_rust,
}
DOCUMENTED = r"[@\\]param(?:\[[a-z,]*\])?\s+({name})\b"
UNRELATED = (Role.MEMBER, Role.THIS_MEMBER, Role.OWN_CALL)  # to a variable
COMMENT_CHARACTERS = 3000  # above a function
FORMATS = re.compile(
    r"(?:e?print(?:ln)?|format(?:_args)?|write(?:ln)?|panic|(?:debug_)?assert(?:_eq|_ne)?|bail|anyhow|ensure|todo|unreachable"
    r"|unimplemented|log|trace|debug|info|warn|error)$"
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a name."""

    start: int  # code points
    node: tree_sitter.Node
    role: Role


@dataclass(slots=True)
class Tokens:
    """The tokens of a file by name, and the names that a macro or a format string mentions."""

    text: str
    grammar: str
    by_name: defaultdict[str, list[Token]] = field(default_factory=lambda: defaultdict(list))
    opaque: set[str] = field(default_factory=set)  # words of text that is not parsed

    @staticmethod
    def of(text: str, grammar: str) -> Tokens:
        """The tokens of a file."""
        data = text.encode()
        tree = tree_sitter.Parser(load_grammar(grammar)).parse(data)
        tokens = Tokens(text, grammar)
        is_ascii = len(data) == len(text)
        for node in leaves(tree.root_node):
            word = (node.text or b"").decode(errors="replace")
            start = node.start_byte if is_ascii else len(data[: node.start_byte].decode(errors="replace"))
            if node.is_named and roles.is_name(node):
                tokens.by_name[word].append(
                    Token(start, node, Role.UNCERTAIN if is_broken(node) else ROLES[grammar](node))
                )
            elif node.type == "preproc_arg":
                tokens.opaque.update(re.findall(r"\w+", word))
            elif grammar == "rust" and node.type == "string_content":
                tokens._add_formatted(node, word, start)
        return tokens

    def _add_formatted(self, node: tree_sitter.Node, content: str, start: int) -> None:
        """Add the names in a format string. The names in braces of any other string are opaque."""
        literal = node.parent
        macro = _macro_of(literal) if literal is not None else ""
        for match in re.finditer(r"(?<!\{)\{([A-Za-z_]\w*)(?=[:}])", content):
            if literal is not None and FORMATS.match(macro):
                self.by_name[match[1]].append(Token(start + match.start(1), node, Role.USE))
            else:
                self.opaque.add(match[1])


def is_broken(node: tree_sitter.Node) -> bool:
    """True for a token in a piece that the grammar cannot parse."""
    return any(parent.type == "ERROR" for parent in roles.parents(node))


def leaves(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The nodes without children, from top to bottom."""
    cursor = root.walk()
    while True:
        if cursor.goto_first_child():
            continue
        if cursor.node is not None:
            yield cursor.node
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


def _macro_of(node: tree_sitter.Node) -> str:
    """The name of the macro that a token is an argument of; "" if it is none of its own arguments."""
    tokens = node.parent
    call = tokens.parent if tokens is not None and tokens.type == "token_tree" else None
    if call is None or call.type != "macro_invocation":
        return ""
    name = call.child_by_field_name("macro")
    return (name.text or b"").decode().rpartition("::")[2] if name is not None else ""


def definitions(text: str, grammar: str) -> list[Definition]:
    """Every definition of a file that the rule takes."""
    tokens = Tokens.of(text, grammar)
    result = []
    for name, listed in tokens.by_name.items():
        if name not in tokens.opaque and name not in ("self", "this", "_"):
            result += [*_variables(name, listed, text), *_of_file(name, listed, grammar)]
            if grammar == "java":
                result += _fields(name, listed)
    return sorted(result, key=lambda definition: definition.start)


def _variables(name: str, tokens: list[Token], text: str) -> Iterator[Definition]:
    """Parameters and locals."""
    by_function = defaultdict[tuple[int, int], list[Token]](list)
    functions = dict[tuple[int, int], tree_sitter.Node]()
    for token in tokens:
        function = roles.outermost_function(token.node)
        if function is not None:
            by_function[function.start_byte, function.end_byte].append(token)
            functions[function.start_byte, function.end_byte] = function
    for place, inside in by_function.items():
        declared = [token for token in inside if token.role in roles.DECLARING]
        if len(declared) != 1 or declared[0].role not in (Role.PARAMETER, Role.LOCAL) or functions[place].has_error:
            continue
        first = declared[0]
        uses = [token for token in inside if token.role in (Role.USE, Role.SHORTHAND)]
        rest = [token for token in inside if token.role not in (Role.USE, Role.SHORTHAND, *UNRELATED)]
        if rest != [first] or min(uses, key=lambda use: use.start, default=first).start < first.start:
            continue
        scope = roles.scope_of(first.node)
        header = roles.declaration_of(first.node)
        if any(not _is_inside(use.node, scope) or _is_inside(use.node, header) for use in uses):
            continue
        others = [token.start for token in tokens if token.role in roles.DECLARING and token not in inside]
        kind = "parameter" if first.role is Role.PARAMETER else "local"
        documented = _documented(text, name, functions[place]) if kind == "parameter" else ()
        places = [Use(use.start, f"{name}: " if use.role is Role.SHORTHAND else "") for use in uses]
        yield Definition.of(kind, name, first.start, places, documented, others)


def _is_inside(node: tree_sitter.Node, outer: tree_sitter.Node | None) -> bool:
    return outer is not None and outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def _documented(text: str, name: str, function: tree_sitter.Node) -> Iterator[int]:
    """The places of a parameter in the comment that ends above a function."""
    start = len(text.encode()[: function.start_byte].decode(errors="replace"))
    above = text[max(0, start - COMMENT_CHARACTERS) : start]
    comment = re.search(r"(?:/\*(?:(?!\*/).)*\*/|(?:[ \t]*//[^\n]*\n)+)\s*(?:[\w@<>(), ]+\s)?\Z", above, re.DOTALL)
    if comment is not None:
        for match in re.finditer(DOCUMENTED.format(name=re.escape(name)), comment[0]):
            yield start - len(above) + comment.start() + match.start(1)


def _of_file(name: str, tokens: list[Token], grammar: str) -> Iterator[Definition]:
    """Functions, classes and import aliases: declared once, and used as nothing else."""
    declared = [token for token in tokens if token.role in roles.DECLARING]
    if len(declared) != 1:
        return
    first, present = declared[0], {token.role for token in tokens}
    allowed = {
        Role.FUNCTION: {Role.FUNCTION, Role.USE, Role.PROTOTYPE},
        Role.METHOD: {Role.METHOD, Role.OWN_CALL},
        Role.CLASS: {Role.CLASS, Role.USE, Role.TYPE, Role.PATH},
        Role.ALIAS: {Role.ALIAS, Role.USE, Role.PATH, Role.TYPE},
    }.get(first.role)
    if allowed is None or not present <= allowed:
        return
    kind = {Role.CLASS: "class", Role.ALIAS: "import alias"}.get(first.role, "function")
    yield Definition.of(kind, name, first.start, [Use(token.start) for token in tokens])


def _fields(name: str, tokens: list[Token]) -> Iterator[Definition]:
    """Java's fields, of a file in which one class declares the name."""
    declared = [token for token in tokens if token.role is Role.FIELD]
    if len(declared) != 1:
        return
    owner, uses, others = roles.class_of(declared[0].node), [], []
    hiding = [roles.outermost_function(token.node) for token in tokens if token.role in roles.DECLARING - {Role.FIELD}]
    for token in tokens:
        if token.role in (Role.METHOD, Role.OWN_CALL, Role.FIELD) or token is declared[0]:
            continue
        hidden = any(_is_inside(token.node, function) for function in hiding)
        is_bare = token.role is Role.USE and not hidden
        if (is_bare or token.role is Role.THIS_MEMBER) and roles.class_of(token.node) == owner:
            uses.append(Use(token.start))
        elif token.role in (Role.PARAMETER, Role.LOCAL):
            others.append(token.start)
        elif not (token.role is Role.USE and hidden):
            return
    yield Definition.of("field", name, declared[0].start, uses, (), others)
