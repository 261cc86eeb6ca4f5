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

;; locals
[(function_declaration) (function_expression) (generator_function) (generator_function_declaration) (arrow_function)
 (method_definition) (function_signature) (method_signature) (abstract_method_signature) (call_signature)
 (construct_signature) (function_type) (constructor_type)] @scope.function
(class_body) @scope.class
[(class_declaration) (abstract_class_declaration) (class) (interface_declaration) (type_alias_declaration)
 (statement_block) (for_statement) (for_in_statement) (catch_clause) (switch_body)] @scope

(function_declaration name: (identifier) @definition.outer)
(function_signature name: (identifier) @definition.outer)
(generator_function_declaration name: (identifier) @definition.outer)
(function_expression name: (identifier) @definition)
(class_declaration name: (type_identifier) @definition.outer)
(required_parameter pattern: (identifier) @definition)
(optional_parameter pattern: (identifier) @definition)
(required_parameter (accessibility_modifier) pattern: (identifier) @definition.field)
(abstract_class_declaration name: (type_identifier) @definition.outer)
(arrow_function parameter: (identifier) @definition)
(lexical_declaration (variable_declarator name: (identifier) @definition))
(variable_declaration (variable_declarator name: (identifier) @definition.function))
(for_in_statement kind: _ left: (identifier) @definition)
(catch_clause parameter: (identifier) @definition)
(object_pattern (shorthand_property_identifier_pattern) @definition @shorthand)
(object_assignment_pattern left: (shorthand_property_identifier_pattern) @definition @shorthand)
(pair_pattern value: (identifier) @definition)
(array_pattern (identifier) @definition)
(rest_pattern (identifier) @definition)
(assignment_pattern left: (identifier) @definition)
(import_clause (identifier) @definition)
(namespace_import (identifier) @definition)
(import_specifier !alias name: (identifier) @definition)
(import_specifier name: (identifier) @label alias: (identifier) @definition)
(interface_declaration name: (type_identifier) @definition.outer)
(type_alias_declaration name: (type_identifier) @definition.outer)
(enum_declaration name: (identifier) @definition)
(type_parameter name: (type_identifier) @definition)

(member_expression property: [(property_identifier) (private_property_identifier)] @member)
(member_expression object: (this) property: [(property_identifier) (private_property_identifier)] @member.own)
(assignment_expression left: (member_expression object: (this)
 property: [(property_identifier) (private_property_identifier)] @definition.field))
(public_field_definition name: [(property_identifier) (private_property_identifier)] @definition.field)
(method_definition name: [(property_identifier) (private_property_identifier)] @definition.field)
(pair key: (property_identifier) @label)
(pair_pattern key: (property_identifier) @label)
(nested_type_identifier name: (type_identifier) @member)
(export_statement !source (export_clause (export_specifier !alias name: (identifier) @exported)))
(export_specifier alias: (identifier) @label)
(export_statement (export_clause (export_specifier name: (identifier) @label)) source: (_))
(shorthand_property_identifier) @name @shorthand
[(identifier) (type_identifier)] @name

;; types
[(type_identifier) (predefined_type) (generic_type)] @type
