; Queries on a Kotlin syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name [(class_body) (enum_class_body)] @body) @class
(object_declaration name: (_) @name (class_body) @body) @class
(companion_object (class_body) @body) @class
(function_declaration name: (_) @name (function_body)? @body) @function
(secondary_constructor (block) @body) @function
(anonymous_function (function_body) @body) @function

;; imports
[(package_header) (import)] @import

;; text
[(line_comment) (block_comment)] @comment
[(string_literal) (multiline_string_literal) (character_literal)] @string
(interpolation) @code
