"""The role of a name's token in Go, Java and Rust, from its place in tree-sitter's tree."""

from __future__ import annotations

from benchmarks.editor.edit_replay.rename_truth.roles import Node, Role, field_of, outermost_function, parents, text_of

# ── Go ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def of_go(node: Node) -> Role:
    """Go."""
    parent = node.parent
    assert parent is not None
    where = field_of(node, parent)
    if node.type == "field_identifier" or node.type == "label_name":
        return Role.MEMBER
    if node.type == "package_identifier":
        if parent.type == "import_spec":
            return Role.ALIAS
        return Role.USE if parent.type == "qualified_type" else Role.UNCERTAIN
    if node.type == "type_identifier":
        if parent.type in ("type_spec", "type_alias") and where == "name":
            return Role.CLASS if parent.type == "type_spec" else Role.OTHER
        if parent.type == "qualified_type":
            return Role.MEMBER
        embeds = parent.type == "field_declaration" and parent.child_by_field_name("name") is None
        return Role.UNCERTAIN if embeds or parent.type == "type_parameter_declaration" else Role.TYPE
    if parent.type in ("parameter_declaration", "variadic_parameter_declaration"):
        return _go_parameter(node, parent) if where == "name" else Role.USE
    if parent.type == "function_declaration" and where == "name":
        return Role.FUNCTION
    if parent.type in ("var_spec", "const_spec") and where == "name":
        return Role.LOCAL if outermost_function(node) is not None and parent.type == "var_spec" else Role.OTHER
    if parent.type == "literal_element" and parent.parent is not None and field_of(parent, parent.parent) == "key":
        return Role.UNCERTAIN  # a field, or a variable that is the key of a map
    if parent.type in ("type_parameter_declaration", "type_switch_statement"):
        return Role.OTHER
    return _go_assigned(node, parent)


def _go_parameter(node: Node, parameter: Node) -> Role:
    around = parents(parameter)
    if around[1].type not in ("function_declaration", "method_declaration"):
        return Role.OTHER  # of a function literal or a type
    return Role.PARAMETER if field_of(around[0], around[1]) in ("parameters", "receiver") else Role.OTHER


def _go_assigned(node: Node, parent: Node) -> Role:
    around = parent.parent
    if parent.type != "expression_list" or around is None or field_of(parent, around) not in ("left", "alias"):
        return Role.USE
    if around.type == "short_var_declaration":
        return Role.LOCAL
    defines = any(child.type == ":=" for child in around.children)
    if around.type == "range_clause":
        return Role.LOCAL if defines else Role.USE
    return Role.OTHER if around.type in ("receive_statement", "type_switch_statement") and defines else Role.USE


# ── Java ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

JAVA_DEFINES = {  # (parent, field) -> role
    ("enhanced_for_statement", "name"): Role.LOCAL,
    ("method_declaration", "name"): Role.METHOD,
    ("class_declaration", "name"): Role.CLASS,
    ("interface_declaration", "name"): Role.CLASS,
    ("enum_declaration", "name"): Role.CLASS,
    ("record_declaration", "name"): Role.OTHER,
    ("constructor_declaration", "name"): Role.TYPE,
    ("catch_formal_parameter", "name"): Role.OTHER,
    ("lambda_expression", "parameters"): Role.OTHER,
    ("inferred_parameters", ""): Role.OTHER,
    ("resource", "name"): Role.OTHER,
    ("enum_constant", "name"): Role.OTHER,
    ("instanceof_expression", "name"): Role.OTHER,
    ("type_pattern", ""): Role.OTHER,
    ("type_parameter", ""): Role.OTHER,
    ("annotation_type_declaration", "name"): Role.OTHER,
}
JAVA_UNCERTAIN = frozenset((
    "labeled_statement", "break_statement", "continue_statement", "switch_label", "method_reference",
    "element_value_pair", "package_declaration", "import_declaration", "scoped_identifier",
    "scoped_type_identifier", "module_declaration", "record_pattern_component", "record_pattern",
    "marker_annotation", "annotation",
))  # fmt: skip


def of_java(node: Node) -> Role:
    """Java."""
    parent = node.parent
    assert parent is not None
    where = field_of(node, parent)
    if (parent.type, where) in JAVA_DEFINES:
        return JAVA_DEFINES[parent.type, where]
    if parent.type == "method_invocation" and where == "name":
        receiver = parent.child_by_field_name("object")
        return Role.OWN_CALL if receiver is None or receiver.type == "this" else Role.MEMBER
    if parent.type == "field_access" and where == "field":
        receiver = parent.child_by_field_name("object")
        return Role.THIS_MEMBER if receiver is not None and receiver.type == "this" else Role.MEMBER
    if parent.type == "formal_parameter" and where == "name":
        return _java_parameter(parent)
    if parent.type == "variable_declarator" and where == "name" and parent.parent is not None:
        around = parent.parent
        if around.type == "spread_parameter":
            return _java_parameter(around)
        if around.type == "local_variable_declaration":
            return Role.LOCAL if outermost_function(node) is not None else Role.OTHER
        return Role.FIELD if around.type == "field_declaration" else Role.OTHER
    if parent.type in JAVA_UNCERTAIN:
        return Role.UNCERTAIN
    return Role.TYPE if node.type == "type_identifier" else Role.USE


def _java_parameter(parameter: Node) -> Role:
    around = parents(parameter)
    has_body = around[1].child_by_field_name("body") is not None
    is_own = around[1].type in ("method_declaration", "constructor_declaration") and has_body
    return Role.PARAMETER if is_own else Role.OTHER


# ── Rust ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

RUST_DEFINES = {  # (parent, field) -> role
    ("struct_item", "name"): Role.CLASS,
    ("enum_item", "name"): Role.CLASS,
    ("union_item", "name"): Role.CLASS,
    ("trait_item", "name"): Role.CLASS,
    ("type_item", "name"): Role.OTHER,
    ("associated_type", "name"): Role.OTHER,
    ("mod_item", "name"): Role.OTHER,
    ("const_item", "name"): Role.OTHER,
    ("static_item", "name"): Role.OTHER,
    ("enum_variant", "name"): Role.OTHER,
    ("const_parameter", "name"): Role.OTHER,
    ("type_parameter", "name"): Role.OTHER,
    ("macro_definition", "name"): Role.OTHER,
    ("use_as_clause", "alias"): Role.ALIAS,
    ("macro_invocation", "macro"): Role.MEMBER,
    ("lifetime", ""): Role.MEMBER,
    ("label", ""): Role.MEMBER,
}
RUST_WRAPPERS = frozenset(("mut_pattern", "reference_pattern", "ref_pattern", "tuple_pattern"))
RUST_IN_MACROS = frozenset((
    "(", ",", "&", "*", "!", "[", "=", "+", "-", "/", "==", "!=", "<", ">", "{", ";", "return", "in", ">=",
    "<=", "&&", "||",
))  # fmt: skip


def of_rust(node: Node) -> Role:
    """Rust."""
    parent = node.parent
    assert parent is not None
    where = field_of(node, parent)
    if node.type == "shorthand_field_identifier":
        return Role.OTHER  # in a pattern
    if node.type == "field_identifier":
        return Role.MEMBER
    if (parent.type, where) in RUST_DEFINES:
        return RUST_DEFINES[parent.type, where]
    if parent.type in ("function_item", "function_signature_item") and where == "name":
        around = parents(parent)
        is_free = len(around) < 2 or around[1].type not in ("impl_item", "trait_item")
        return Role.FUNCTION if is_free and parent.type == "function_item" else Role.MEMBER
    if any(other.type in ("attribute_item", "macro_definition", "use_declaration") for other in parents(node)):
        return Role.UNCERTAIN
    if parent.type in ("scoped_identifier", "scoped_type_identifier"):
        is_first = where == "path" and parent.child_by_field_name("path") == node
        return Role.PATH if is_first else Role.MEMBER
    if parent.type == "token_tree":
        return _rust_in_macro(node)
    if parent.type == "shorthand_field_initializer":
        return Role.SHORTHAND
    return Role.TYPE if node.type == "type_identifier" else _rust_declared(node, parent)


def _rust_in_macro(node: Node) -> Role:
    """A name among a macro's tokens: certain only where it must be an expression of its own."""
    before, after = node.prev_sibling, node.next_sibling
    ends = text_of(after) not in ("=", ":", "::", "!", "{", "=>")
    return Role.USE if text_of(before) in RUST_IN_MACROS and ends else Role.UNCERTAIN


def _rust_declared(node: Node, parent: Node) -> Role:
    child = node
    while parent.type in RUST_WRAPPERS:
        child, parent = parent, parent.parent  # type: ignore[assignment]
    where = field_of(child, parent)
    if parent.type == "parameter" and where == "pattern":
        around = parents(parent)
        return Role.PARAMETER if around[1].type == "function_item" else Role.OTHER
    if parent.type in ("let_declaration", "for_expression") and where == "pattern":
        return Role.LOCAL
    is_pattern = where == "pattern" or "pattern" in parent.type or parent.type == "closure_parameters"
    return Role.OTHER if is_pattern or child is not node else Role.USE
