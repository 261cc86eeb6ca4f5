; Queries on a TypeScript syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(abstract_class_declaration name: (_) @name body: (_) @body) @class
(class body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(internal_module name: (_) @name body: (_) @body) @class
(module name: (_) @name body: (_) @body) @class
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(method_definition name: (_) @name body: (_) @body) @function
(method_signature name: (_) @name) @function
(abstract_method_signature name: (_) @name) @function
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

;; types
[(type_identifier) (predefined_type) (generic_type)] @type
