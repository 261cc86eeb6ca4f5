; What speclsp looks for in a Python tree. Sections are split on the ";;" lines and compiled on first use.

;; scopes
(class_definition name: (_) @name body: (_) @body) @class
(function_definition name: (_) @name body: (_) @body) @function

;; blocks
(block) @block

;; imports
[(import_statement) (import_from_statement) (future_import_statement)] @import

;; text
(comment) @comment
(string) @string
(interpolation) @code
