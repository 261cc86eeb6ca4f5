; Queries on a C# syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(namespace_declaration name: (_) @name body: (_) @body) @class
(class_declaration name: (_) @name body: (_) @body) @class
(struct_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(record_declaration name: (_) @name body: (_) @body) @class
(constructor_declaration name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_)? @body) @function
(property_declaration name: (_) @name accessors: (_) @body) @function
(local_function_statement name: (_) @name body: (_) @body) @function
(lambda_expression body: (block) @body) @function

;; imports
[(using_directive) (file_scoped_namespace_declaration)] @import

;; text
(comment) @comment
[(string_literal) (verbatim_string_literal) (raw_string_literal) (interpolated_string_expression) (character_literal)] @string
(interpolation) @code
