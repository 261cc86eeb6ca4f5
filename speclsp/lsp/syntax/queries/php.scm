; Queries on a PHP syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(trait_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(function_definition name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_)? @body) @function
(anonymous_function body: (_) @body) @function

;; imports
[(php_tag) (namespace_definition) (namespace_use_declaration)] @import
(expression_statement [(require_expression) (require_once_expression) (include_expression) (include_once_expression)]) @import

;; text
(comment) @comment
[(string) (encapsed_string) (heredoc) (nowdoc)] @string

;; locals
[(function_definition) (method_declaration)] @scope.closed
[(anonymous_function) (arrow_function)] @scope.function
[(class_declaration) (interface_declaration) (trait_declaration) (enum_declaration) (anonymous_class)] @scope.class
(anonymous_function_use_clause (_) @outside)

(function_definition name: (name) @definition.outer @namespace.function)
[(class_declaration name: (name) @definition.outer)
 (interface_declaration name: (name) @definition.outer)
 (trait_declaration name: (name) @definition.outer)
 (enum_declaration name: (name) @definition.outer)]
(program (const_declaration (const_element . (name) @definition)))
(namespace_use_clause (qualified_name (name) @definition) !alias)
(namespace_use_clause alias: (name) @definition)
(simple_parameter name: (variable_name (name) @definition))
(variadic_parameter name: (variable_name (name) @definition))
(property_promotion_parameter name: (variable_name (name) @definition @definition.field))
(assignment_expression left: (variable_name (name) @definition.function))
(list_literal (variable_name (name) @definition.function))
(foreach_statement . (_) [(variable_name (name) @definition.function)
 (by_ref (variable_name (name) @definition.function))
 (pair (variable_name (name) @definition.function))
 (pair (by_ref (variable_name (name) @definition.function)))])
(catch_clause name: (variable_name (name) @definition.function))
(static_variable_declaration name: (variable_name (name) @definition.function))
(global_declaration (variable_name (name) @definition.function))

(property_element name: (variable_name (name) @definition.field))
(method_declaration name: (name) @definition.field @namespace.function)
[(declaration_list (const_declaration (const_element . (name) @definition.field)))
 (enum_declaration_list (const_declaration (const_element . (name) @definition.field)))]
(enum_case name: (name) @definition.field)
((member_access_expression object: (variable_name (name) @_this) name: (name) @member.own @namespace.variable)
 (#eq? @_this "this"))
((member_call_expression object: (variable_name (name) @_this) name: (name) @member.own @namespace.function)
 (#eq? @_this "this"))
((scoped_property_access_expression scope: (relative_scope) @_self name: (variable_name (name) @member.own))
 (#any-of? @_self "self" "static"))
((scoped_call_expression scope: (relative_scope) @_self name: (name) @member.own @namespace.function)
 (#any-of? @_self "self" "static"))
((class_constant_access_expression . (relative_scope) @_self . (name) @member.own) (#any-of? @_self "self" "static"))
[(member_access_expression name: (name) @member) (nullsafe_member_access_expression name: (name) @member)
 (member_call_expression name: (name) @member) (nullsafe_member_call_expression name: (name) @member)
 (scoped_property_access_expression name: (variable_name (name) @member)) (scoped_call_expression name: (name) @member)
 (class_constant_access_expression (_) . (name) @member) (qualified_name (name) @member)
 (namespace_name (name) @member) (goto_statement (name) @member) (named_label_statement (name) @member)]
(function_call_expression function: (name) @name @namespace.function)
[(function_call_expression function: (name) @owner arguments: (arguments (argument name: (name) @label)))
 (member_call_expression name: (name) @owner arguments: (arguments (argument name: (name) @label)))
 (scoped_call_expression name: (name) @owner arguments: (arguments (argument name: (name) @label)))
 (object_creation_expression (name) @owner (arguments (argument name: (name) @label)))]
(argument name: (name) @label)
(variable_name (name) @name @namespace.variable)
(dynamic_variable_name (name) @name @namespace.variable)
(name) @name

;; types
[(named_type) (primitive_type)] @type
