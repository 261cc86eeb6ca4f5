; Queries on a TSX syntax tree. Each ";;" line begins a section, which is compiled on first use.

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

;; definitions
(class_declaration name: (_) @name body: (_) @body) @class
(abstract_class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @interface
(enum_declaration name: (_) @name body: (_) @body) @enum
(enum_body name: (_) @name @member)
(enum_assignment name: (_) @name) @member
(type_alias_declaration name: (_) @name value: (object_type) @body) @type
(type_alias_declaration name: (_) @name) @type
(object_type (property_signature name: (_) @name) @field)
(method_definition name: (_) @init parameters: (formal_parameters
  (required_parameter (accessibility_modifier) pattern: (identifier) @name) @field))
(internal_module name: (_) @name body: (_) @body) @module
(module name: (_) @name body: (_) @body) @module
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(function_signature name: (_) @name) @function
(class_body (method_definition name: (_) @name body: (_) @body) @function)
(class_body [(method_signature name: (_) @name) (abstract_method_signature name: (_) @name)] @function)
(class_body (public_field_definition name: (_) @name) @field)
(interface_body (property_signature name: (_) @name) @field)
(interface_body (method_signature name: (_) @name) @function)
(program [(lexical_declaration (variable_declarator name: (identifier) @name value: (_)? @value))
  (variable_declaration (variable_declarator name: (identifier) @name value: (_)? @value))] @variable)
(program (export_statement
  declaration: (lexical_declaration (variable_declarator name: (identifier) @name value: (_)? @value))) @variable)
(program (ambient_declaration
  [(lexical_declaration (variable_declarator name: (identifier) @name))
   (variable_declaration (variable_declarator name: (identifier) @name))]) @variable)
