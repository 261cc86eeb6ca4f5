; Queries on a Go syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(type_declaration (type_spec name: (_) @name type: [(struct_type (field_declaration_list) @body) (interface_type)])) @class
(function_declaration name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_) @body) @function
(func_literal body: (_) @body) @function

;; imports
[(package_clause) (import_declaration)] @import

;; text
(comment) @comment
[(interpreted_string_literal) (raw_string_literal) (rune_literal)] @string

;; definitions
(type_declaration (type_spec name: (_) @name type: (struct_type (field_declaration_list) @body)) @class)
(type_declaration (type_spec name: (_) @name type: (interface_type)) @interface)
(type_declaration (type_spec name: (_) @name type: [(type_identifier) (qualified_type) (pointer_type) (slice_type)
  (array_type) (map_type) (channel_type) (function_type) (generic_type)]) @type)
(type_declaration (type_alias name: (_) @name) @type)
(function_declaration name: (_) @name body: (_)? @body) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @container)) name: (_) @name
  body: (_)? @body) @function
(interface_type (method_elem name: (_) @name) @function)
(field_declaration name: (_) @name) @field
(source_file (const_declaration (const_spec name: (_) @name) @constant))
(source_file (var_declaration (var_spec name: (_) @name) @variable))
(source_file (var_declaration (var_spec_list (var_spec name: (_) @name) @variable)))
