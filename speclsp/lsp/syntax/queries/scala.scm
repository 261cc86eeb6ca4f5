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
