; Queries on a Go syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(type_declaration (type_spec name: (_) @name type: [(struct_type (field_declaration_list) @body) (interface_type)])) @class
(function_declaration name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_) @body) @function
(func_literal body: (_) @body) @function

;; imports
[(package_clause) (import_declaration)] @import

;; text
(comment) @comment
[(interpreted_string_literal) (raw_string_literal) (rune_literal)] @string

;; locals
[(function_declaration) (method_declaration) (func_literal) (function_type) (method_elem)] @scope.function
[(type_spec) (type_alias) (if_statement) (for_statement) (expression_switch_statement) (type_switch_statement)
 (expression_case) (type_case) (default_case) (communication_case)] @scope
(statement_list (block) @scope)
(if_statement consequence: (block) @scope)
(if_statement alternative: (block) @scope)
(for_statement body: (block) @scope)

(function_declaration name: (identifier) @definition.outer)
(type_spec name: (type_identifier) @definition.outer)
(type_alias name: (type_identifier) @definition.outer)
(type_parameter_declaration name: (identifier) @definition)
(method_declaration receiver: (parameter_list (parameter_declaration type: [
 (generic_type type_arguments: (type_arguments (type_elem (type_identifier) @definition)))
 (pointer_type (generic_type type_arguments: (type_arguments (type_elem (type_identifier) @definition))))])))
(parameter_declaration name: (identifier) @definition)
(variadic_parameter_declaration name: (identifier) @definition)
(import_spec name: (package_identifier) @definition)
(const_spec name: (identifier) @definition)
(var_spec name: (identifier) @definition)
(statement_list (const_declaration (const_spec name: (identifier) @binds) @from))
(statement_list (var_declaration (var_spec name: (identifier) @binds) @from))
(statement_list (var_declaration (var_spec_list (var_spec name: (identifier) @binds) @from)))
(short_var_declaration left: (expression_list (identifier) @definition)) @from
(range_clause left: (expression_list (identifier) @definition) ":=") @from
(receive_statement left: (expression_list (identifier) @definition) ":=") @from
(type_switch_statement alias: (expression_list (identifier) @definition) value: (_) @from)

(keyed_element key: (literal_element (identifier) @member))
[(identifier) (type_identifier) (package_identifier)] @name

;; types
(type_identifier) @type

;; calls
(function_declaration name: (identifier) @name parameters: (_) @parameters)
(method_declaration receiver: (parameter_list (parameter_declaration type: [
 (type_identifier) @owner (pointer_type (type_identifier) @owner) (generic_type type: (_) @owner)
 (pointer_type (generic_type type: (_) @owner))])) name: (_) @name parameters: (_) @parameters)
(method_elem name: (_) @name parameters: (_) @parameters)
(call_expression function: (identifier) @callee arguments: (argument_list) @arguments)
(call_expression function: (selector_expression operand: (_) @receiver field: (_) @callee)
 arguments: (argument_list) @arguments)

;; members
[(type_spec name: (_) @type.name type: (struct_type) @type) (type_spec name: (_) @type.name type: (interface_type) @type)
 (struct_type) @type (interface_type) @type]
[(type_spec name: (_) @type.name type: (struct_type (field_declaration_list (field_declaration !name type: (_) @base))))
 (type_spec name: (_) @type.name type: (interface_type (type_elem (type_identifier) @base)))]

(field_declaration name: (_) @field type: (_) @is)
(method_elem name: (_) @field @called)
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @owner)) name: (_) @field @called)
(function_declaration name: (_) @called)
[(function_declaration name: (_) @called result: [(type_identifier) (pointer_type) (slice_type) (map_type) (generic_type)] @returns)
 (function_declaration name: (_) @called result: (parameter_list . (parameter_declaration type: (_) @returns)))
 (method_declaration name: (_) @called result: [(type_identifier) (pointer_type) (slice_type) (map_type) (generic_type)] @returns)
 (method_declaration name: (_) @called result: (parameter_list . (parameter_declaration type: (_) @returns)))
 (method_elem name: (_) @called result: [(type_identifier) (pointer_type) (slice_type) (map_type) (generic_type)] @returns)
 (method_elem name: (_) @called result: (parameter_list . (parameter_declaration type: (_) @returns)))]

(selector_expression operand: (_) @object field: (_) @access) @typed
(literal_value) @literal
(keyed_element key: (literal_element (identifier) @access))
(composite_literal type: (_) @is body: (_) @typed)
(literal_element (literal_value) @typed @within)

(parameter_declaration name: (_) @typed type: (_) @is)
(var_spec name: (_) @typed type: (_) @is)
(var_spec . name: (_) @typed !type value: (expression_list . (_) @same))
(short_var_declaration left: (expression_list . (identifier) @typed) right: (expression_list . (_) @same))
(range_clause left: (expression_list (_) . (identifier) @typed) right: (_) @element)
(composite_literal type: (_) @is) @typed
(type_assertion_expression type: (_) @is) @typed
((call_expression function: (identifier) @_function arguments: (argument_list . (_) @is)) @typed
 (#any-of? @_function "new" "make"))
((call_expression function: (identifier) @_function arguments: (argument_list . (_) @same)) @typed
 (#eq? @_function "append"))
(call_expression function: (_) @callee) @typed
[(unary_expression operand: (_) @same) (parenthesized_expression (_) @same) (slice_expression operand: (_) @same)] @typed
(index_expression operand: (_) @element) @typed
