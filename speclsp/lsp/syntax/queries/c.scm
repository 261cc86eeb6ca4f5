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

;; types
[(type_identifier) (primitive_type)] @type
