; Queries on a Kotlin syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name [(class_body) (enum_class_body)] @body) @class
(object_declaration name: (_) @name (class_body) @body) @class
(companion_object (class_body) @body) @class
(function_declaration name: (_) @name (function_body)? @body) @function
(secondary_constructor (block) @body) @function
(anonymous_function (function_body) @body) @function

;; imports
[(package_header) (import)] @import

;; text
[(line_comment) (block_comment)] @comment
[(string_literal) (multiline_string_literal) (character_literal)] @string
(interpolation) @code

;; locals
(string_literal) @placeholders
[(function_declaration) (secondary_constructor) (anonymous_function) (lambda_literal) (getter) (setter)
 (function_type)] @scope.function
[(class_declaration) (object_declaration)] @scope.members
[(object_literal (class_body) @scope.members) (enum_entry (class_body) @scope.members)]
[(block) (for_statement) (catch_block) (when_expression) (when_entry) (type_alias)] @scope

(class_declaration name: (identifier) @definition.outer)
(object_declaration name: (identifier) @definition.outer)
(function_declaration name: (identifier) @definition.outer)
(type_alias type: (identifier) @definition.outer)
(type_parameter . (identifier) @definition)
((import (qualified_identifier (identifier) @definition .) .) @_import (#not-match? @_import "[*]"))
(import (qualified_identifier) (identifier) @definition)
(class_parameter (identifier) @definition . ":")
(enum_entry . (identifier) @definition)
(parameter (identifier) @definition . ":")
(variable_declaration (identifier) @definition)
(setter (identifier) @definition)
(catch_block . (identifier) @definition)
(block (property_declaration [(variable_declaration) (multi_variable_declaration)] @binds) @from)
(lambda_literal (property_declaration [(variable_declaration) (multi_variable_declaration)] @binds) @from)
(for_statement [(variable_declaration) (multi_variable_declaration)] @binds . (_) @from)

((navigation_expression (this_expression) @_this (identifier) @member.own) (#eq? @_this "this"))
(navigation_expression (_) (identifier) @member)
(callable_reference (_) (identifier) @member)
(call_expression . [(identifier) @owner (navigation_expression (_) (identifier) @owner)]
 (value_arguments (value_argument . (identifier) @label "=")))
(value_argument . (identifier) @label "=")
(qualified_identifier (identifier) @member)
(user_type (identifier) . (identifier) @member)
(labeled_expression (label) (identifier) @member)
(return_expression label: (identifier) @member)
(this_expression (identifier) @member)
(identifier) @name

;; calls
(function_declaration name: (identifier) @name (function_value_parameters) @parameters)
(function_declaration (user_type) @owner name: (identifier) @name (function_value_parameters) @parameters)
(class_declaration name: (identifier) @name (primary_constructor (class_parameters) @parameters))
(call_expression . (identifier) @callee . (value_arguments) @arguments)
(call_expression . (navigation_expression (_) @receiver (identifier) @callee .) . (value_arguments) @arguments)

;; members
[(class_declaration name: (_) @type.name [(class_body) (enum_class_body)] @type)
 (object_declaration name: (_) @type.name (class_body) @type)]
(class_declaration name: (_) @type.name)
(class_declaration name: (_) @type.name
 (delegation_specifiers (delegation_specifier [(user_type) @base (constructor_invocation (user_type) @base)])))
[(function_body) (lambda_literal) (anonymous_initializer)] @function

(property_declaration (variable_declaration . (identifier) @field @typed (_) @is))
(property_declaration (variable_declaration . (identifier) @field @typed .) . (_) @same)
(property_declaration (variable_declaration . (identifier) @field))
(class_declaration name: (_) @owner
 (primary_constructor (class_parameters (class_parameter ["val" "var"] (identifier) @field . (_) @is))))
(class_parameter (identifier) @typed . (_) @is)
(enum_entry . (identifier) @field)
(function_declaration name: (_) @field @called)
(function_declaration name: (_) @called (function_value_parameters) . [(user_type) (nullable_type)] @returns)

(navigation_expression . (_) @object (identifier) @access .) @typed
(value_arguments) @literal
(value_argument . (identifier) @access "=")
(call_expression . (identifier) @same (value_arguments) @typed)
((call_expression . (navigation_expression . (_) @same (identifier) @_method .) (value_arguments) @typed)
 (#eq? @_method "copy"))

(this_expression) @typed @self
(parameter . (identifier) @typed (_) @is)
(for_statement (variable_declaration . (identifier) @typed) . (_) @element)
((call_expression . (navigation_expression . (_) @element (identifier) @_method .)
  (annotated_lambda (lambda_literal (lambda_parameters . (variable_declaration . (identifier) @typed .)))))
 (#not-match? @_method "^(let|also|run|fold|reduce)$"))
((call_expression . (navigation_expression . (_) @element (identifier) @_method .) (annotated_lambda (lambda_literal) @implicit))
 (#not-match? @_method "^(let|also|run|fold|reduce|apply|with)$"))
((call_expression . (navigation_expression . (_) @same (identifier) @_method .) (annotated_lambda (lambda_literal) @implicit))
 (#any-of? @_method "let" "also"))
(call_expression . (_) @callee) @typed
[(parenthesized_expression (_) @same) (unary_expression argument: (_) @same)] @typed
(as_expression right: (_) @is) @typed
(index_expression . (_) @element) @typed

;; types
(user_type) @type
