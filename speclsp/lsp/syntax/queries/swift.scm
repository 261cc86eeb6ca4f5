; Queries on a Swift syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(protocol_declaration name: (_) @name body: (_) @body) @class
(function_declaration "func" . (_) @name (_) @body .) @function
(protocol_function_declaration name: (_) @name) @function
(init_declaration "init" @name body: (_) @body) @function

;; imports
(import_declaration) @import

;; text
[(comment) (multiline_comment)] @comment
[(line_string_literal) (multi_line_string_literal) (raw_string_literal)] @string
(interpolated_expression) @code

;; locals
[(function_declaration) (protocol_function_declaration) (init_declaration) (subscript_declaration) (lambda_literal)
 (computed_setter) (willset_clause) (didset_clause)] @scope.function
[(class_declaration) (protocol_declaration)] @scope.members
[(statements) (if_statement) (while_statement) (for_statement) (catch_block) (switch_entry) (typealias_declaration)] @scope
(_ "if" (else) . (_) @outside)
(capture_list_item !value name: (_) @outside)
(capture_list_item value: (_) @outside)

(class_declaration name: (type_identifier) @definition.outer)
(protocol_declaration name: (type_identifier) @definition.outer)
(_ "func" . (simple_identifier) @definition.outer)
(typealias_declaration . name: (type_identifier) @definition.outer)
(associatedtype_declaration name: (type_identifier) @definition)
(type_parameter . (type_identifier) @definition)
(pattern bound_identifier: (simple_identifier) @definition)
(pattern (value_binding_pattern) (pattern (simple_identifier) @definition))
(property_declaration name: (pattern (pattern (simple_identifier) @definition)))
(for_statement item: (pattern (pattern (simple_identifier) @definition)))
(parameter name: (simple_identifier) @definition)
(lambda_parameter name: (simple_identifier) @definition)
(capture_list_item name: (simple_identifier) @definition value: (_))
(computed_setter (simple_identifier) @definition)
[(willset_clause (simple_identifier) @definition) (didset_clause (simple_identifier) @definition)]
(statements (property_declaration name: (_) @binds value: (_) @from))
(for_statement item: (_) @binds collection: (_) @from)
(_ (value_binding_pattern) . (simple_identifier) @definition)
(_ (value_binding_pattern) . (simple_identifier) @binds . "=" . (_) @from)

(navigation_expression target: (self_expression) suffix: (navigation_suffix suffix: (simple_identifier) @member.own))
(navigation_suffix suffix: (simple_identifier) @member)
(call_expression . [(simple_identifier) @owner (navigation_expression suffix: (navigation_suffix suffix: (_) @owner))]
 (call_suffix (value_arguments (value_argument name: (value_argument_label (simple_identifier) @label)))))
(value_argument_label (simple_identifier) @label)
(parameter external_name: (simple_identifier) @member)
(enum_entry name: (simple_identifier) @member)
(enum_type_parameters (simple_identifier) @member)
(pattern "." . (simple_identifier) @ignored)
(_ "case" . "." . (simple_identifier) @ignored)
(prefix_expression operation: "." target: (simple_identifier) @member)
(key_path_expression (simple_identifier) @member)
(tuple_expression name: (simple_identifier) @member)
(tuple_type_item name: (simple_identifier) @member)
(import_declaration (identifier (simple_identifier) @member))
(user_type (type_identifier) . (type_identifier) @member)
[(simple_identifier) (type_identifier)] @name

;; types
(user_type) @type
