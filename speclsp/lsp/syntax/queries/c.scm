; Queries on a C syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(struct_specifier name: (_) @name body: (_) @body) @class
(union_specifier name: (_) @name body: (_) @body) @class
(enum_specifier name: (_) @name body: (_) @body) @class
(function_definition declarator: (_) @name body: (_) @body) @function

;; imports
(preproc_include) @import

;; text
(comment) @comment
[(string_literal) (char_literal) (system_lib_string)] @string

;; locals
(function_definition) @scope.function
[(compound_statement) (for_statement) (preproc_function_def)] @scope
[(declaration declarator: (function_declarator parameters: (_) @scope))
 (declaration declarator: (pointer_declarator declarator: (function_declarator parameters: (_) @scope)))
 (declaration declarator: (pointer_declarator declarator: (pointer_declarator
  declarator: (function_declarator parameters: (_) @scope))))
 (init_declarator declarator: (function_declarator parameters: (_) @scope))
 (parameter_declaration declarator: (function_declarator parameters: (_) @scope))
 (field_declaration declarator: (function_declarator parameters: (_) @scope))
 (type_definition declarator: (function_declarator parameters: (_) @scope))
 (function_definition declarator: (function_declarator declarator: (parenthesized_declarator)
  parameters: (_) @scope))]

[(function_definition declarator: (function_declarator declarator: (identifier) @definition.outer))
 (function_definition declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @definition.outer)))
 (function_definition declarator: (pointer_declarator declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @definition.outer))))]
(preproc_def name: (identifier) @definition)
(preproc_function_def name: (identifier) @definition.outer)
(preproc_params (identifier) @definition)
(declaration declarator: (identifier) @definition)
(parameter_declaration declarator: (identifier) @definition)
(init_declarator declarator: (identifier) @definition)
(pointer_declarator declarator: (identifier) @definition)
(array_declarator declarator: (identifier) @definition)
(declaration declarator: [(identifier) (pointer_declarator) (array_declarator) (function_declarator)] @binds @from)
(init_declarator declarator: (_) @binds @from)
(enumerator name: (identifier) @definition)
(type_definition declarator: (type_identifier) @definition)
(pointer_declarator declarator: (type_identifier) @definition)
(array_declarator declarator: (type_identifier) @definition)
(function_declarator declarator: (type_identifier) @definition)
(struct_specifier name: (type_identifier) @definition @namespace.tag body: (_))
(union_specifier name: (type_identifier) @definition @namespace.tag body: (_))
(enum_specifier name: (type_identifier) @definition @namespace.tag body: (_))

[(struct_specifier name: (type_identifier) @namespace.tag) (union_specifier name: (type_identifier) @namespace.tag)
 (enum_specifier name: (type_identifier) @namespace.tag)]
[(identifier) (type_identifier)] @name

;; types
[(type_identifier) (primitive_type)] @type

;; calls
(function_declarator declarator: (identifier) @name parameters: (parameter_list) @parameters)
(call_expression function: (identifier) @callee arguments: (argument_list) @arguments)
