; Queries on a Java syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(record_declaration name: (_) @name body: (_) @body) @class
(annotation_type_declaration name: (_) @name body: (_) @body) @class
(constructor_declaration name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_)? @body) @function
(lambda_expression body: (block) @body) @function

;; imports
[(package_declaration) (import_declaration)] @import

;; text
[(line_comment) (block_comment)] @comment
[(string_literal) (character_literal)] @string

;; types
[(type_identifier) (generic_type)] @type
