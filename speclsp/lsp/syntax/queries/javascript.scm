; Queries on a JavaScript or JSX syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(class body: (_) @body) @class
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(method_definition name: (_) @name body: (_) @body) @function
(variable_declarator name: (_) @name value: (arrow_function body: (statement_block) @body)) @function
(variable_declarator name: (_) @name value: (function_expression body: (_) @body)) @function
(arrow_function body: (statement_block) @body) @function
(function_expression body: (_) @body) @function

;; imports
(import_statement) @import
(export_statement source: (_)) @import
([(lexical_declaration) (variable_declaration)] @import (#match? @import "^(const|let|var)[^=]*=\\s*require\\s*\\("))

;; text
(comment) @comment
[(string) (template_string) (regex)] @string
(template_substitution) @code

;; definitions
(class_declaration name: (_) @name body: (_) @body) @class
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(class_body (method_definition name: (_) @name body: (_) @body) @function)
(method_definition name: (_) @init body: (statement_block (expression_statement
  (assignment_expression left: (member_expression object: (this) property: (_) @name)) @field)))
(class_body (field_definition property: (_) @name) @field)
(program (lexical_declaration (variable_declarator name: (identifier) @name value: (_)? @value)) @variable)
(program (variable_declaration (variable_declarator name: (identifier) @name value: (_)? @value)) @variable)
(program (export_statement
  declaration: (lexical_declaration (variable_declarator name: (identifier) @name value: (_)? @value))) @variable)
(program (expression_statement (assignment_expression
  left: (member_expression property: (property_identifier) @name) right: (_) @value)) @variable)
