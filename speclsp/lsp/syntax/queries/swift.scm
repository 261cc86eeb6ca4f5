; Queries on a Swift syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(protocol_declaration name: (_) @name body: (_) @body) @class
(function_declaration "func" . (_) @name (_) @body .) @function
(protocol_function_declaration name: (_) @name) @function
(init_declaration "init" @name body: (_) @body) @function

;; imports
(import_declaration) @import

;; text
[(comment) (multiline_comment)] @comment
[(line_string_literal) (multi_line_string_literal) (raw_string_literal)] @string
(interpolated_expression) @code
