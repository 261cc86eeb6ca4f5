; Queries on a Ruby syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(module name: (_) @name body: (_)? @body) @class
(class name: (_) @name body: (_)? @body) @class
(singleton_class value: (_) @name body: (_)? @body) @class
(method name: (_) @name body: (_)? @body) @function
(singleton_method name: (_) @name body: (_)? @body) @function

;; imports
((call method: (identifier) @_method) @import (#any-of? @_method "require" "require_relative" "load"))

;; text
(comment) @comment
[(string) (heredoc_body) (regex) (string_array) (symbol_array) (subshell)] @string
(interpolation) @code

;; locals
[(method) (singleton_method)] @scope.closed
[(class) (module) (singleton_class)] @scope.members
[(block) (do_block) (lambda)] @scope

(class name: (constant) @definition.outer)
(module name: (constant) @definition.outer)
(method name: (identifier) @definition.outer @namespace.method)
(singleton_method name: (identifier) @definition.outer @namespace.method)
(assignment left: (constant) @definition)
(method_parameters (identifier) @definition)
(lambda_parameters (identifier) @definition)
(block_parameters (identifier) @definition)
(destructured_parameter (identifier) @definition)
(optional_parameter name: (identifier) @definition)
(keyword_parameter name: (identifier) @definition)
(splat_parameter name: (identifier) @definition)
(hash_splat_parameter name: (identifier) @definition)
(block_parameter name: (identifier) @definition)
(assignment left: (identifier) @assignment @from)
(operator_assignment left: (identifier) @assignment @from)
(left_assignment_list (identifier) @assignment @from)
(destructured_left_assignment (identifier) @assignment @from)
(rest_assignment (identifier) @assignment @from)
(exception_variable (identifier) @assignment @from)
(for pattern: (identifier) @assignment @from)
(in_clause pattern: (identifier) @assignment @from)
(array_pattern (identifier) @assignment @from)
(find_pattern (identifier) @assignment @from)
(as_pattern name: (identifier) @assignment @from)
(keyword_pattern value: (identifier) @assignment @from)
(keyword_pattern key: (hash_key_symbol) @assignment @shorthand @namespace.variable @from !value)

(instance_variable) @member.own
(assignment left: (instance_variable) @definition.field)
(operator_assignment left: (instance_variable) @definition.field)
(left_assignment_list (instance_variable) @definition.field)
(call !receiver method: (identifier) @name @namespace.method)
(call receiver: (self) method: (identifier) @member.own @namespace.method)
(call receiver: (_) method: (identifier) @member @namespace.method)
(call method: (_) @owner arguments: (argument_list (pair key: (hash_key_symbol) @label value: (_))))
(pair key: (hash_key_symbol) @label value: (_))
(pair key: (hash_key_symbol) @name @shorthand @namespace.variable !value)
(scope_resolution scope: (_) name: (constant) @member)
[(alias (identifier) @member) (undef (identifier) @member)]
(constant) @name
(identifier) @name @namespace.variable
