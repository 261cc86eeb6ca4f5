; Queries on a PHP syntax tree. Each ";;" line begins a section, which is compiled on first use.

;; scopes
(class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @class
(trait_declaration name: (_) @name body: (_) @body) @class
(enum_declaration name: (_) @name body: (_) @body) @class
(function_definition name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_)? @body) @function
(anonymous_function body: (_) @body) @function

;; imports
[(php_tag) (namespace_definition) (namespace_use_declaration)] @import
(expression_statement [(require_expression) (require_once_expression) (include_expression) (include_once_expression)]) @import

;; text
(comment) @comment
[(string) (encapsed_string) (heredoc) (nowdoc)] @string
