"""The role of a name's token in C and C++, from its place in tree-sitter's tree."""

from __future__ import annotations

from benchmarks.editor.edit_replay.rename_truth.roles import Node, Role, field_of, outermost_function, parents, text_of

DECLARATORS = ("pointer_declarator", "array_declarator", "init_declarator", "function_declarator")
NESTED = ("reference_declarator", "parenthesized_declarator", "attributed_declarator")


def of_c(node: Node) -> Role:
    """C and C++."""
    if node.type in ("field_identifier", "statement_identifier"):
        return Role.MEMBER
    parent = node.parent
    assert parent is not None
    if node.type in ("type_identifier", "namespace_identifier"):
        return _c_type(node, parent)
    if parent.type == "destructor_name":
        return Role.TYPE
    if parent.type == "qualified_identifier" and field_of(node, parent) == "name":
        return Role.TYPE if text_of(parent.child_by_field_name("scope")) == text_of(node) else Role.MEMBER
    if parent.type.startswith(
        ("preproc", "attribute", "using", "structured", "enumerator", "gnu_asm", "operator_name")
    ):
        return Role.OTHER if parent.type == "enumerator" else Role.UNCERTAIN
    if parent.type == "lambda_capture_initializer" and field_of(node, parent) == "left":
        return Role.OTHER
    return _c_declared(node, parent)


def _c_type(node: Node, parent: Node) -> Role:
    where = field_of(node, parent)
    if parent.type.endswith("_specifier") and where == "name":
        return Role.CLASS if parent.child_by_field_name("body") is not None else Role.TYPE
    if parent.type == "type_definition" and where == "declarator":
        return Role.CLASS
    if (
        parent.type in ("namespace_definition", "alias_declaration", "namespace_alias_definition")
        or "parameter" in parent.type
    ):
        return Role.TYPE if where == "type" else Role.OTHER
    if parent.type == "qualified_identifier":
        return Role.PATH if where == "scope" and parent.parent is not None and _is_first(parent) else Role.MEMBER
    if "declarator" in parent.type:
        return Role.OTHER  # a typedef of a pointer or function
    return Role.TYPE


def _is_first(path: Node) -> bool:
    return path.parent is None or path.parent.type != "qualified_identifier"


def _c_declared(node: Node, parent: Node) -> Role:
    """The role of an identifier that may be declared by the declarator that it is in."""
    child, is_function = node, False
    while parent.type in NESTED or (parent.type in DECLARATORS and field_of(child, parent) == "declarator"):
        is_function |= parent.type == "function_declarator"
        child, parent = parent, parent.parent  # type: ignore[assignment]
    where = field_of(child, parent)
    if parent.type in ("parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration"):
        return _c_parameter(parent) if where == "declarator" else Role.USE
    if parent.type == "function_definition" and where == "declarator":
        return _c_function(node, parent)
    if parent.type in ("declaration", "field_declaration", "for_range_loop") and where == "declarator":
        if is_function:
            return Role.TYPE if _names_class(node, parent) else Role.PROTOTYPE
        return Role.LOCAL if outermost_function(node) is not None else Role.OTHER
    return Role.USE


def _c_parameter(parameter: Node) -> Role:
    around = parents(parameter)
    if around[0].type == "parameter_list" and around[1].type == "function_declarator":
        outer = next((node for node in around[2:] if node.type not in (*DECLARATORS, *NESTED)), None)
        return Role.PARAMETER if outer is not None and outer.type == "function_definition" else Role.OTHER
    return Role.OTHER


def _c_function(node: Node, definition: Node) -> Role:
    if _names_class(node, definition):
        return Role.TYPE
    around = [parent.type for parent in parents(definition)]
    return Role.OTHER if "field_declaration_list" in around else Role.FUNCTION


def _names_class(node: Node, declaration: Node) -> bool:
    """True for a constructor in its class."""
    classes = (parent for parent in parents(declaration) if parent.type in ("class_specifier", "struct_specifier"))
    return any(text_of(parent.child_by_field_name("name")) == text_of(node) for parent in classes)
