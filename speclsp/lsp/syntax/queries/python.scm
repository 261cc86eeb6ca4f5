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

;; members
(class_definition name: (identifier) @type.name body: (_) @type)
(class_definition name: (identifier) @type.name superclasses: (argument_list (identifier) @base))
(class_definition name: (identifier) @type.name superclasses: (argument_list (subscript value: (identifier) @base)))
(function_definition body: (_) @function)
(function_definition name: (identifier) @field @called)
(function_definition name: (identifier) @called return_type: (_) @returns)
(function_definition name: (identifier) @called body: (_) @body)
(return_statement "return" @return . (_) @result)
(assignment left: (identifier) @field @typed type: (_) @is)
(assignment left: (identifier) @field @typed !type right: (_) @same)
((assignment left: (attribute object: (identifier) @_self attribute: (identifier) @assigned) type: (_) @is)
 (#eq? @_self "self"))
((assignment left: (attribute object: (identifier) @_self attribute: (identifier) @assigned) !type right: (_) @same)
 (#eq? @_self "self"))

(attribute object: (_) @object attribute: (identifier) @access) @typed
(argument_list) @literal
(keyword_argument name: (identifier) @access)
(call function: (identifier) @same arguments: (argument_list) @typed)
(class_pattern (dotted_name) @object (case_pattern (keyword_pattern . (identifier) @access)))

((parameters . (identifier) @typed @self) (#any-of? @typed "self" "cls"))
(typed_parameter . (identifier) @typed type: (_) @is)
(typed_default_parameter name: (identifier) @typed type: (_) @is)
(named_expression name: (identifier) @typed value: (_) @same)
(for_statement left: (identifier) @typed right: (_) @element)
(for_in_clause left: (identifier) @typed right: (_) @element)
((for_statement left: (pattern_list (_) . (identifier) @typed .)
  right: (call function: (attribute object: (_) @element attribute: (identifier) @_method))) (#eq? @_method "items"))
((for_statement left: (pattern_list (_) . (identifier) @typed .)
  right: (call function: (identifier) @_function arguments: (argument_list . (_) @element)))
 (#eq? @_function "enumerate"))
(as_pattern (_) @same alias: (as_pattern_target (identifier) @typed))
(call function: (_) @callee) @typed
(parenthesized_expression (_) @same) @typed
(await (_) @same) @typed
[(boolean_operator left: (_) @same operator: "or") (conditional_expression . (_) @same)] @typed
(list . (_) @item) @typed
(list_comprehension body: (_) @item) @typed
(subscript value: (_) @element subscript: [(integer) (identifier)]) @typed
((call function: (_) @_function arguments: (argument_list . (_) @element
  (keyword_argument value: (lambda parameters: (lambda_parameters . (identifier) @typed)))))
 (#any-of? @_function "max" "min" "sorted"))

;; calls
(function_definition name: (identifier) @name parameters: (parameters) @parameters)
(call function: (identifier) @callee arguments: (argument_list) @arguments)
(call function: (attribute object: (_) @receiver attribute: (identifier) @callee) arguments: (argument_list) @arguments)
