; Queries on a Python syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_definition name: (_) @name body: (_) @body) @class
(function_definition name: (_) @name body: (_) @body) @function

;; imports
[(import_statement) (import_from_statement) (future_import_statement)] @import

;; text
(comment) @comment
(string) @string
(interpolation) @code

;; locals
[(function_definition) (lambda)] @scope.function
(class_definition) @scope.class
[(list_comprehension) (set_comprehension) (dictionary_comprehension) (generator_expression)] @scope
(default_parameter value: (_) @outside)
(typed_default_parameter value: (_) @outside)
[(list_comprehension body: (_) . (for_in_clause right: (_) @outside))
 (set_comprehension body: (_) . (for_in_clause right: (_) @outside))
 (dictionary_comprehension body: (_) . (for_in_clause right: (_) @outside))
 (generator_expression body: (_) . (for_in_clause right: (_) @outside))]

(function_definition name: (identifier) @definition.outer)
(class_definition name: (identifier) @definition.outer)
(parameters [(identifier) @definition (typed_parameter (identifier) @definition)])
(lambda_parameters (identifier) @definition)
(default_parameter name: (identifier) @definition)
(typed_default_parameter name: (identifier) @definition)
(list_splat_pattern (identifier) @definition)
(dictionary_splat_pattern (identifier) @definition)
(assignment left: (identifier) @definition)
(augmented_assignment left: (identifier) @definition)
(pattern_list (identifier) @definition)
(tuple_pattern (identifier) @definition)
(list_pattern (identifier) @definition)
(for_statement left: (identifier) @definition)
(for_in_clause left: (identifier) @definition)
(as_pattern_target [(identifier) @definition (tuple (identifier) @definition)])
(named_expression name: (identifier) @definition)
(case_pattern (dotted_name . (identifier) @definition .))
(keyword_pattern (identifier) (dotted_name . (identifier) @definition .))
(splat_pattern (identifier) @definition)
(import_statement name: (dotted_name . (identifier) @definition))
(import_from_statement name: (dotted_name . (identifier) @definition))
(aliased_import alias: (identifier) @definition)
(nonlocal_statement (identifier) @declared.outer)
(global_statement (identifier) @declared.global)
(type (string (string_content) @quoted))
((generic_type (identifier) @_form (type_parameter (type (string (string_content) @unquoted))))
 (#any-of? @_form "Literal" "Annotated"))

((attribute object: (identifier) @_self attribute: (identifier) @member.own) (#any-of? @_self "self" "cls"))
((assignment left: (attribute object: (identifier) @_self attribute: (identifier) @definition.field))
 (#eq? @_self "self"))
((assignment left: (_ (attribute object: (identifier) @_self attribute: (identifier) @definition.field)))
 (#eq? @_self "self"))
(attribute attribute: (identifier) @member)
(call function: [(identifier) @owner (attribute attribute: (identifier) @owner)]
 arguments: (argument_list (keyword_argument name: (identifier) @label)))
(keyword_argument name: (identifier) @label)
(keyword_pattern . (identifier) @label)
(import_from_statement module_name: (_ (identifier) @label))
(relative_import (dotted_name (identifier) @label))
(aliased_import name: (dotted_name (identifier) @label))
(dotted_name (identifier) . (identifier) @member)
(identifier) @name

;; types
(type) @type
