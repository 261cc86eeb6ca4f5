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

;; types
(type_identifier) @type
