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

;; definitions
(class_definition name: (_) @name body: (_) @body) @class
(function_definition name: (_) @name body: (_) @body) @function
(module (expression_statement (assignment left: (identifier) @name)) @variable)
(class_definition body: (block (expression_statement (assignment left: (identifier) @name)) @field))
(function_definition name: (identifier) @init body: (block (expression_statement
  (assignment left: (attribute object: (identifier) attribute: (identifier) @name))) @field))
(type_alias_statement left: (_) @name) @type
