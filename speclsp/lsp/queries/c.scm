; What speclsp looks for in a C tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(struct_specifier name: (_) @name body: (_) @body) @class
(union_specifier name: (_) @name body: (_) @body) @class
(enum_specifier name: (_) @name body: (_) @body) @class
(function_definition declarator: (_) @name body: (_) @body) @function

;; blocks
[(compound_statement) (field_declaration_list) (enumerator_list) (initializer_list)] @block

;; imports
(preproc_include) @import

;; text
(comment) @comment
[(string_literal) (char_literal) (system_lib_string)] @string
