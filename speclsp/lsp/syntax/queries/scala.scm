; Queries on a Scala syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_definition name: (_) @name body: (_) @body) @class
(object_definition name: (_) @name body: (_) @body) @class
(trait_definition name: (_) @name body: (_) @body) @class
(enum_definition name: (_) @name body: (_) @body) @class
(function_definition name: (_) @name body: (_) @body) @function
(function_declaration name: (_) @name) @function

;; imports
[(package_clause !body) (import_declaration)] @import

;; text
[(comment) (block_comment)] @comment
[(string) (interpolated_string_expression) (character_literal)] @string
(interpolation) @code

;; locals
[(function_definition) (function_declaration) (lambda_expression)] @scope.function
[(class_definition) (object_definition) (trait_definition) (enum_definition)] @scope.members
(instance_expression (template_body) @scope.members)
[(block) (indented_block) (case_clause) (for_expression) (extension_definition) (type_definition)] @scope

[(class_definition name: (identifier) @definition.outer)
 (object_definition name: (identifier) @definition.outer)
 (trait_definition name: (identifier) @definition.outer)
 (enum_definition name: (identifier) @definition.outer)
 (function_definition name: (identifier) @definition.outer)
 (function_declaration name: (identifier) @definition.outer)
 (type_definition name: (type_identifier) @definition.outer)]
(type_parameters name: (identifier) @definition)
(class_parameter name: (identifier) @definition)
(parameter name: (identifier) @definition)
(binding name: (identifier) @definition)
(lambda_expression parameters: (identifier) @definition)
[(val_definition pattern: (identifier) @definition) (var_definition pattern: (identifier) @definition)
 (val_declaration name: (identifier) @definition) (var_declaration name: (identifier) @definition)
 (given_definition name: (identifier) @definition) (simple_enum_case name: (identifier) @definition)]
(capture_pattern name: (identifier) @definition)
(typed_pattern pattern: (identifier) @definition)
([(tuple_pattern (identifier) @definition)
  (case_class_pattern type: (_) (identifier) @definition)
  (case_clause pattern: (identifier) @definition)
  (infix_pattern left: (identifier) @definition)
  (infix_pattern right: (identifier) @definition)] (#match? @definition "^[a-z_]"))
(enumerator . (identifier) @definition . (_))
(enumerator . (_) @binds . (_) @after)
(import_declaration (identifier) @definition .)
(namespace_selectors (identifier) @definition)
(arrow_renamed_identifier name: (identifier) @member)
(arrow_renamed_identifier alias: (identifier) @definition)

((field_expression value: (identifier) @_this field: (identifier) @member.own) (#eq? @_this "this"))
(field_expression field: (identifier) @member)
(call_expression function: [(identifier) @owner (field_expression field: (identifier) @owner)]
 arguments: (arguments (assignment_expression left: (identifier) @label)))
(instance_expression (type_identifier) @owner arguments: (arguments (assignment_expression left: (identifier) @label)))
(arguments (assignment_expression left: (identifier) @label))
(infix_expression operator: (identifier) @member)
(interpolated_string_expression interpolator: (identifier) @member)
(import_declaration (identifier) @member)
(package_identifier (identifier) @member)
(stable_type_identifier (_) (type_identifier) @member)
[(identifier) (type_identifier)] @name

;; types
(type_identifier) @type
