"""Roles of a name's token, and the blocks around it, in tree-sitter's trees of C, C++, Go, Java and Rust."""

from __future__ import annotations

import enum

import tree_sitter

Node = tree_sitter.Node


class Role(enum.Enum):
    """The role of one token."""

    PARAMETER = enum.auto()
    LOCAL = enum.auto()
    FUNCTION = enum.auto()
    METHOD = enum.auto()
    CLASS = enum.auto()
    ALIAS = enum.auto()  # of an import
    FIELD = enum.auto()
    OTHER = enum.auto()  # another definition: a pattern, an enum's value, a closure's parameter
    PROTOTYPE = enum.auto()  # C's declaration of a function that has no body
    USE = enum.auto()
    SHORTHAND = enum.auto()  # Rust's `Point { x }`
    TYPE = enum.auto()
    PATH = enum.auto()  # first part of a path
    MEMBER = enum.auto()  # of something else
    THIS_MEMBER = enum.auto()  # Java's `this.name`
    OWN_CALL = enum.auto()  # Java's call of a method without a receiver, or of `this`
    UNCERTAIN = enum.auto()


DECLARING = frozenset(
    (Role.PARAMETER, Role.LOCAL, Role.FUNCTION, Role.METHOD, Role.CLASS, Role.ALIAS, Role.FIELD, Role.OTHER)
)
NAMES = frozenset((
    "identifier", "field_identifier", "type_identifier", "namespace_identifier", "package_identifier",
    "statement_identifier", "label_name", "shorthand_field_identifier",
))  # fmt: skip
FUNCTIONS = frozenset((
    "function_definition", "function_item", "function_declaration", "method_declaration",
    "constructor_declaration",
))  # fmt: skip
CLASSES = frozenset((
    "class_declaration", "interface_declaration", "enum_declaration", "record_declaration",
    "object_creation_expression",
))  # fmt: skip
BLOCKS = frozenset((
    "compound_statement", "block", "for_statement", "for_range_loop", "for_expression", "if_statement",
    "constructor_body", "switch_statement", "expression_switch_statement", "enhanced_for_statement",
    "communication_case", "expression_case", "default_case", "type_case", "case_statement",
    "closure_expression", "lambda_expression", "func_literal", "match_arm", "while_statement",
    "type_switch_statement", "switch_block_statement_group", "try_with_resources_statement", *FUNCTIONS,
))  # fmt: skip
DECLARATIONS = frozenset((
    "declaration", "let_declaration", "short_var_declaration", "var_spec", "local_variable_declaration",
    "parameter_declaration", "parameter", "formal_parameter", "spread_parameter",
    "optional_parameter_declaration", "variadic_parameter_declaration", "range_clause",
))  # fmt: skip


def is_name(node: Node) -> bool:
    """True for a token that is a name."""
    return node.type in NAMES


def parents(node: Node) -> list[Node]:
    """The nodes around a node, the innermost first."""
    result = []
    parent = node.parent
    while parent is not None:
        result.append(parent)
        parent = parent.parent
    return result


def outermost_function(node: Node) -> Node | None:
    """The outermost function around a node, which may be its own name's."""
    return next((parent for parent in reversed(parents(node)) if parent.type in FUNCTIONS), None)


def class_of(node: Node) -> tuple[int, int] | None:
    """The innermost class around a node, by its bytes; an anonymous one counts."""
    parent = next((parent for parent in parents(node) if parent.type in CLASSES), None)
    return None if parent is None else (parent.start_byte, parent.end_byte)


def scope_of(node: Node) -> Node | None:
    """The innermost block around a declared name."""
    return next((parent for parent in parents(node) if parent.type in BLOCKS), None)


def declaration_of(node: Node) -> Node | None:
    """The declaration around a declared name. C declares names one after another: then the name's own part."""
    for parent in parents(node):
        if parent.type in ("init_declarator", "variable_declarator"):
            return parent
        if parent.type == "for_expression":
            return parent.child_by_field_name("value")
        if parent.type in ("for_range_loop", "enhanced_for_statement"):
            return parent.child_by_field_name("right") or parent.child_by_field_name("value")
        if parent.type in DECLARATIONS:
            return parent
    return None


def field_of(node: Node, parent: Node) -> str:
    """The name of the field of `parent` that `node` is; "" for none."""
    for index, child in enumerate(parent.children):
        if child == node:
            return parent.field_name_for_child(index) or ""
    return ""


def text_of(node: Node | None) -> str:
    return "" if node is None else (node.text or b"").decode(errors="replace")
