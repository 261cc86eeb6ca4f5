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

;; definitions
(class_declaration "interface" name: (_) @name (class_body)? @body) @interface
(class_declaration name: (_) @name (enum_class_body) @body) @enum
(class_declaration "class" name: (_) @name (class_body)? @body) @class
(object_declaration name: (_) @name (class_body)? @body) @class
(type_alias type: (_) @name) @type
(enum_entry . (identifier) @name) @member
(function_declaration name: (_) @name (function_body)? @body) @function
(class_parameter ["val" "var"] (identifier) @name) @field
(class_body (property_declaration (variable_declaration . (identifier) @name)) @field)
(enum_class_body (property_declaration (variable_declaration . (identifier) @name)) @field)
(source_file (property_declaration (variable_declaration . (identifier) @name)) @variable)
